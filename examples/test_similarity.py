"""The second table of the paper is made, from handwritten numbers and from files of embeddings."""

import numpy as np
import pytest
import torch

from examples import similarity_robustification
from examples._baselines import methods


def test_handwritten_numbers(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    results = similarity_robustification.main(picture, false_positive_rate=0.01, fast=True)
    assert list(results) == list(methods())
    initial = {tuple(result.before) for result in results.values()}
    assert len(initial) == 1  # all methods are measured on the same halves
    assert "initial" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def files(tmp_path):
    """Write embeddings of forty people, with some outliers that are short and alike."""
    rng = np.random.default_rng(0)

    def faces(n_people, n_images):
        labels = np.repeat(np.arange(n_people), n_images)
        return rng.normal(size=(n_people, 8))[labels] + 0.4 * rng.normal(size=(len(labels), 8)), labels

    X, labels = faces(40, 4)
    X[::10] = [0.1, 0, 0, 0, 0, 0, 0, 0] + 0.01 * rng.normal(size=(16, 8))
    arrays = {"embeddings": X, "labels": labels, "distractors": faces(60, 2)[0], "training": faces(100, 4)[0]}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array if name == "labels" else array.astype(np.float32))
    return {name: f"--{name}={tmp_path / name}.npy" for name in arrays}


@pytest.mark.parametrize("left_out", [None, "distractors", "training"])
def test_embeddings_from_files(files, left_out, tmp_path, capsys):
    arguments = [argument for name, argument in files.items() if name != left_out]
    picture = tmp_path / "picture.png"
    options = ["--fast", "--false-positive-rate=0.001", f"--picture={picture}"]
    results = similarity_robustification.from_command_line([*arguments, *options])
    norm = results["NORM"].summary()
    assert norm["ir_after"][0] > norm["ir_before"][0]
    assert results["NORM"].before[0].n_distractors == (0 if left_out == "distractors" else 60)
    assert "NORM" in capsys.readouterr().out
    assert picture.exists()


def test_files_that_are_missing_are_named(files, capsys):
    with pytest.raises(SystemExit):
        similarity_robustification.from_command_line([files["embeddings"], files["distractors"]])
    assert "--labels" in capsys.readouterr().err


def test_quiet_example_prints_nothing(capsys):
    rng = np.random.default_rng(0)
    data = similarity_robustification.Embeddings(rng.normal(size=(50, 4)), rng.normal(size=(40, 4)), np.arange(40) // 2, None)
    similarity_robustification.main(data=data, false_positive_rate=0.1, fast=True, quiet=True)
    assert capsys.readouterr().out == ""


def test_margin_makes_the_loss_larger():
    embeddings, centres = torch.eye(3)[:, [1, 2, 0]] + torch.eye(3), torch.eye(3)
    losses = [
        similarity_robustification.angular_margin_loss(embeddings, centres, torch.arange(3), margin=m) for m in (0.0, 0.2)
    ]
    assert losses[0] < losses[1]
