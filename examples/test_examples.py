"""Each example runs, says what it promises, and draws a picture."""

from examples import drift_example, quadric_example


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
