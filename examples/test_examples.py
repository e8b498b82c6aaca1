"""Each example runs, says what it promises, and draws a picture."""

from examples import quadric_example


def test_quadric_example(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    assert quadric_example.main(picture) > 0.9
    assert "ROC:" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
