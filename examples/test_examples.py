"""Each example runs, says what it promises, and draws a picture."""

import numpy as np

from examples import drift_example, embedding_drift_example, face_gallery_example, out_of_scope_example, quadric_example


def test_quadric_example(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    assert quadric_example.main(picture) > 0.9
    assert "ROC:" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_window_follows_a_turning_ellipse(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    figures = drift_example.main(picture, n_chunks=10, n_rows=200, window=400)
    late = {name: sum(values[-3:]) / 3 for name, values in figures.items()}
    assert late[drift_example.LATEST] > late[drift_example.ALL] + 0.05
    assert late[drift_example.ALL] > late[drift_example.FIRST]
    assert "quarter turn" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_questions_are_turned_away_at_the_stated_error(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    found = out_of_scope_example.main(picture)
    assert found["in scope"] < 0.08 < found["in scope, fitted without groups"]
    assert found["other questions"] > 0.9
    assert found["other things"] > 0.7
    assert "allowed error of 5%" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_bad_pictures_do_not_pass_for_somebody(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    found = face_gallery_example.main(picture)
    assert found["good pictures flagged"] < 0.08
    assert found["ROC-AUC of bad against good pictures"] > 0.9
    assert found["full_ir_after"] > found["full_ir_before"] + 0.3
    assert "pictures of 300 others" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_days_that_are_different_are_noticed(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    found = embedding_drift_example.main(picture)
    alarms = np.array(found["p-value"]) < embedding_drift_example.ALARM
    assert not alarms[:10].any()
    assert alarms[16:].mean() > 0.7
    some = slice(10, 20)  # days with papers that lie sideways
    assert sum(found["named rightly"][some]) > 0.9 * sum(found["sideways"][some])
    assert sum(found["named"][some]) < 1.2 * sum(found["named rightly"][some])
    assert "alarm" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
