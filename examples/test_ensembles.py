"""The examples of ensembles, of both constraints, of ADEngine and of all pictures run, and show what they say."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from examples import adengine_example, penalty_vs_manifold_example, plots_example


def test_ensemble_example(capsys):
    pytest.importorskip("combo")
    from examples import ensemble_example

    means = ensemble_example.main(n_splits=1)["breast cancer"]
    assert len(means) == len(ensemble_example.members()) + 8
    assert min(means["QuadricDetector"], means["average"]) > 0.9
    printed = capsys.readouterr().out
    assert f"| QuadricDetector | {means['QuadricDetector']:.3f} |" in printed
    assert "over the best member" in printed


def test_ensemble_example_with_files(tmp_path):
    pytest.importorskip("combo")
    from examples import ensemble_example

    rng = np.random.default_rng(0)
    labels = (np.arange(120) % 12 == 0).astype(int)
    folder = tmp_path / "adbench" / "Classical"
    folder.mkdir(parents=True)
    np.savez(folder / "some.npz", X=rng.normal(size=(120, 4)) * (1 + 5 * labels[:, None]), y=labels)
    means = ensemble_example.main(data=tmp_path, quiet=True)
    assert list(means) == ["Classical"]
    assert means["Classical"]["average"] > 0.8
    with pytest.raises(SystemExit, match=rf"no file adbench/<group>/<set>.npz in the folder {folder}"):
        ensemble_example.main(data=folder, quiet=True)


@pytest.mark.filterwarnings("ignore:y should not be presented in unsupervised learning", r"ignore:(?s).*silent.*are not used")
@pytest.mark.filterwarnings("ignore:UNK does not have a predefined code")  # SUOD's list of names has only PyOD's
def test_ensemble_models_example(capsys):
    for package in ("combo", "suod", "xgboost", "pythresh"):
        pytest.importorskip(package)
    from examples import ensemble_models_example

    figures = ensemble_models_example.main(n_jobs=1)
    assert len(figures) == 6
    assert min(figures.values()) > 0.8
    assert capsys.readouterr().out.count("ROC:") == 6


def test_penalty_and_manifold_agree(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    found, combined = penalty_vs_manifold_example.main(picture, epoch_num=8)
    assert found.rank_correlation > 0.4
    assert min(combined, *(found.roc_auc[name] for name in found.runs)) > 0.7
    assert min(found.roc_auc["default"], found.roc_auc["closed_form"]) > 0.9
    assert found.runs["stiefel"].errors[-1] < 1e-5 < found.runs["penalty"].errors[-1]
    assert "rank correlation" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_adengine_example(capsys):
    figures = adengine_example.main()
    assert next(iter(figures)) == "QuadricDetector"  # the first of the plan
    assert min(figures.values()) > 0.95
    printed = capsys.readouterr().out
    assert "Plan: QuadricDetector" in printed
    assert "# Investigation Report" in printed


def test_gallery(tmp_path):
    picture = tmp_path / "picture.png"
    figure = plots_example.main(picture, quiet=True, epoch_num=2, n_cells=8)
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert len(titles) == 7
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert figure.number not in plt.get_fignums()  # it is closed
