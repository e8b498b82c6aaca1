"""Each benchmark runs at small sizes and leaves its figures and its picture; none of its times are judged here."""
# ruff: noqa: D103  the name of a test is its documentation

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from examples.benchmarks import (
    _data,
    _rivals,
    certainty,
    classes,
    cost,
    curved,
    decisions,
    detection,
    identification,
    orthonormality,
    out_of_core,
    penalty_vs_manifold,
    speed,
    widths,
)
from examples.benchmarks import _detection_cells as cells_module
from pyod_quadric import Quadrics, second_order_distance
from pyod_quadric.geometry.frames import orthonormality_error
from pyod_quadric.geometry.packing import unpack
from pyod_quadric.training.constraints import PenaltyConstraint
from pyod_quadric.training.objective import mean_distance_and_gradient
from pyod_quadric.training.starts import random_quadrics, spectral_quadrics


def files(output, name):
    assert (output / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    return json.loads((output / f"{name}.json").read_text(encoding="utf-8"))


def numbers(results):
    """Yield all numbers of nested lists and dictionaries."""
    if isinstance(results, dict | list):
        for entry in results.values() if isinstance(results, dict) else results:
            yield from numbers(entry)
    elif isinstance(results, float):
        yield results


ON_REAL_DATA = [certainty, decisions, detection, orthonormality, penalty_vs_manifold, widths]


@pytest.mark.parametrize("benchmark", ON_REAL_DATA, ids=lambda module: module.__name__.rpartition(".")[2])
def test_missing_data_end_a_run_with_a_sentence(benchmark, tmp_path):
    with pytest.raises(SystemExit, match=rf"not in the folder {tmp_path}: \w+/.*README.md says what they are"):
        benchmark.main(tmp_path / "results", data=tmp_path)
    assert not list(tmp_path.iterdir())


def test_missing_data_of_classes_end_a_run_with_a_sentence(tmp_path):
    with pytest.raises(SystemExit, match=rf"^2 of the 2 files .* not in the folder {tmp_path}: clinc150/minilm.npz, wordnet/"):
        classes.main(tmp_path, [0])


def test_one_missing_set_is_named(tmp_path):
    for path in [*_data.adbench(tmp_path), *(tmp_path / name for name in (_data.SENTENCES, _data.CLINC150, _data.WORDNET))]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    _data.need(tmp_path)
    with pytest.raises(SystemExit, match=rf"^There is no file {tmp_path}/faces.npz\. Leave out --faces"):
        _data.need(tmp_path, faces=tmp_path / "faces.npz")
    (tmp_path / "adbench/Classical/8_celeba.npz").unlink()
    with pytest.raises(SystemExit, match=r"^1 of the 34 files .*: adbench/Classical/8_celeba.npz\. Give"):
        _data.need(tmp_path)


def test_curved(capsys):
    found = curved.main(seeds=[0], shapes=["8 circles"])
    assert "| 8 circles |" in capsys.readouterr().out
    measured = {method: entries[0] for method, entries in found["8 circles"].items()}
    assert measured.pop(curved.OURS) > 0.9
    assert measured.pop("quadrics alone") > 0.9
    assert all(0.3 < other < 0.7 for other in measured.values())


@pytest.mark.parametrize("name", curved.SHAPES)
def test_outliers_of_curved_shapes_have_their_mean_and_covariance(name):
    training, test, labels = curved.draw(curved.SHAPES[name], 3000, 0.01, seed=0)
    for differing in (training, test[labels == 0]):
        assert abs(differing.mean(axis=0) - test[labels == 1].mean(axis=0)).max() < 0.3
    spectra = [np.linalg.eigvalsh(np.cov(rows, rowvar=False))[-2:] for rows in (training, test[labels == 1])]
    np.testing.assert_allclose(*spectra, rtol=0.3)


def test_curved_prints_nothing_when_quiet(capsys):
    curved.main(n_rows=50, seeds=[0], shapes=["circle"], quiet=True)
    assert not capsys.readouterr().out


def test_speed(tmp_path, capsys):
    speed.main(tmp_path, fast=True)
    results = files(tmp_path, "speed")
    assert "| penalty step |" in capsys.readouterr().out
    assert results["units"][speed.UNIT] == 1
    timed = [results[name] for name in ("seconds", "units", "seconds_per_row", "times_ours")]
    timed += [curve["seconds"] for curve in results["scaling"].values()]
    assert all(0 < number < math.inf for number in numbers(timed))
    assert all(math.isfinite(number) for number in numbers(results))
    (tmp_path / "speed.png").unlink()
    speed.main(tmp_path, redraw=True)
    assert files(tmp_path, "speed") == results


@pytest.mark.parametrize("differentiate", [True, False])
def test_naive_reference_minimises_the_same_loss(differentiate):
    points, quadrics = speed.make_problem(20, 5, 3, seed=0)
    tilted = Quadrics(quadrics.quadratic * 1.1, quadrics.linear, quadrics.constant)
    penalty = orthonormality_error(tilted.packed().T) ** 2
    expected = second_order_distance(points, tilted).sum(dim=1).mean() + penalty
    loss = speed.NaiveQuadrics(tilted, differentiate).loss(points).detach()
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("differentiate", [True, False])
def test_naive_reference_moves_the_linear_parts_alike(differentiate):
    points, quadrics = speed.make_problem(20, 5, 3, seed=0)
    naive = speed.NaiveQuadrics(quadrics, differentiate)
    naive.step(points)
    linear = naive.coefficients.detach()[:, naive.size : -1]
    constraints = []

    def keep(start):
        constraints.append(PenaltyConstraint(start))
        return constraints[0]

    speed.full_step(speed.Problem(points, quadrics), keep)()
    torch.testing.assert_close(linear, constraints[0].quadrics().linear)


def test_orthonormality(tmp_path, capsys):
    orthonormality.main(tmp_path, fast=True)
    results = files(tmp_path, "orthonormality")
    assert "| penalty λ = 1, lr 0.01 |" in capsys.readouterr().out
    assert all(0 <= number < math.inf for number in numbers(results))
    for result in results["results"]:
        runs = result["runs"]
        assert all(run["last"] < orthonormality.TARGET for name, run in runs.items() if name.startswith("manifold"))
        assert all(run["last"] > orthonormality.TARGET for name, run in runs.items() if name.startswith("penalty"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak of memory is read as Linux tells it")
def test_identification(tmp_path, capsys):
    identification.main(tmp_path, fast=True)
    results = files(tmp_path, "identification")
    assert f"| {identification.SINGLE} |" in capsys.readouterr().out
    assert [result["size"]["n_distractors"] for result in results["results"]] == [100, 500]
    assert all(0 <= number < math.inf for number in numbers(results))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited and read as Linux does it")
def test_decisions(tmp_path, capsys):
    decisions.main(tmp_path, fast=True)
    results = files(tmp_path, "decisions")
    assert "Share of new inliers flagged" in capsys.readouterr().out
    shares = [entry[method]["flagged"] for entry in results["results"].values() for method in decisions.METHODS]
    assert all(0 <= number <= 1 for number in numbers(shares))


def test_certainty(tmp_path, capsys):
    certainty.main(tmp_path, fast=True)
    results = files(tmp_path, "certainty")
    assert "| two circles apart | 1 |" in capsys.readouterr().out
    assert all(draw["ours"] > 0.9 for draw in results["draws"])
    assert all(0.5 < number <= 1 for number in numbers(results["random_states"]))


def test_out_of_core(tmp_path, capsys):
    out_of_core.main(tmp_path, fast=True)
    results = files(tmp_path, "out_of_core")
    assert "peak beyond the start" in capsys.readouterr().out
    assert [result["n_scores"] for result in results["results"]] == [2000, 4000]
    assert all(0 <= result["peak_bytes"] < results["limit"] for result in results["results"])
    (tmp_path / "out_of_core.png").unlink()
    out_of_core.main(tmp_path, redraw=True)
    assert files(tmp_path, "out_of_core") == results


def test_redraw_without_figures_says_so(tmp_path):
    with pytest.raises(SystemExit, match=r"there are no figures to draw in .*cost\.json"):
        cost.main(tmp_path, redraw=True)


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")  # of torch, to itself, where POGO is installed
def test_penalty_vs_manifold(tmp_path, capsys):
    penalty_vs_manifold.main(tmp_path, fast=True)
    results = files(tmp_path, "penalty_vs_manifold")
    assert "| manifold, Adam |" in capsys.readouterr().out
    assert len(results["records"]) == 6
    for entries in results["records"].values():
        assert all(0 < number < math.inf for entry in entries.values() for number in entry["losses"])
        assert all(entries[name]["error"] < 1e-5 for name in penalty_vs_manifold.FEASIBLE)
        assert entries["penalty, SGD"]["error"] > 1e-5
        start = {entry["losses"][0] for entry in entries.values()}
        assert len(start) == 1  # all methods start alike


def test_quadrics_of_spheres_have_no_loss_at_the_known_optimum():
    points = penalty_vs_manifold.in_working_coordinates(penalty_vs_manifold.product_of_spheres(3, 2), 6, seed=0)
    quadrics = spectral_quadrics([points.fitted], 3).to(dtype=torch.float32)
    assert penalty_vs_manifold.mean_d2(points.held_out, quadrics) < 1e-5
    assert points.test.roc_auc(lambda rows: second_order_distance(rows, quadrics).mean(dim=1)) > 0.99


@pytest.mark.parametrize("kind", [_rivals.ExactPenalty, _rivals.Landing])
def test_a_rival_has_the_gradient_that_its_formula_gives(kind):
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(50, 4, generator=generator, dtype=torch.float64)
    constraint = kind(random_quadrics(3, 4, generator, torch.float64))
    constraint.frame.mul_(1.1)  # off the manifold
    frame = constraint.frame.clone().requires_grad_()
    products = frame @ frame.T
    is_exact = kind is _rivals.ExactPenalty
    inside = (1.5 * torch.eye(3) - products / 2) @ frame if is_exact else frame
    quadrics = Quadrics(unpack(inside), constraint.rest[:, :-1], constraint.rest[:, -1])
    loss = second_order_distance(points, quadrics).sum(dim=1).mean()
    penalty = (products - torch.eye(3)).square().sum()
    (gradient,) = torch.autograd.grad(loss, frame, retain_graph=True)
    if is_exact:
        expected = gradient + torch.autograd.grad(penalty, frame)[0]
    else:
        skew = frame.T @ gradient - gradient.T @ frame
        expected = frame @ skew + torch.autograd.grad(penalty, frame)[0] / 4
    constraint.set_gradient(mean_distance_and_gradient(points, *constraint.parts())[1])
    torch.testing.assert_close(constraint.frame_parameter.grad, expected.detach())


@pytest.mark.parametrize("name", ["manifold, Adam", "geoopt, Adam", "Muon, retracted", "landing, SGD", "exact penalty, Adam"])
def test_every_rival_comes_down(name):
    points = penalty_vs_manifold.in_working_coordinates(penalty_vs_manifold.product_of_spheres(2, 2), 4, seed=0)
    case = penalty_vs_manifold.Case("circles", lambda seed: points, 2, "random")
    run = penalty_vs_manifold.run(case, penalty_vs_manifold.METHODS[name], 0.03, seed=0, n_steps=100)
    assert run.losses[-1] < run.losses[0] / 2
    assert run.gradient_norm > 0


def test_widths_go_on_from_their_cells(tmp_path, capsys, monkeypatch):
    widths.main(tmp_path, fast=True)
    results = files(tmp_path, "widths")
    assert "| Q-BASE |" in capsys.readouterr().out
    (entries,) = results["results"].values()
    assert entries["default"]["mean"] > 0.9
    assert all(entry["held_out_loss"] for name, entry in entries.items() if name.endswith("random start"))
    monkeypatch.setattr(widths, "measure", None)
    widths.main(tmp_path, fast=True)
    assert files(tmp_path, "widths") == results


def test_detection_goes_on_from_its_cells(tmp_path, capsys, monkeypatch):
    detection.main(tmp_path, fast=True, seeds=[0])
    results = files(tmp_path, "detection")
    assert "| KNN |" in capsys.readouterr().out
    for column in results["entries"].values():
        assert len(column) == 1 + len(cells_module.ABLATIONS) + len(cells_module.FAST_PEERS)
        assert all(0.5 < number <= 1 for number in numbers([entry["roc_auc"] for entry in column.values()]))
        assert all(entry["n_failed"] == 0 for entry in column.values())
    path = tmp_path / "detection_cells.json"
    cells = cells_module.read_cells(path)
    missing, kept = cells.popitem()
    cells_module.write_cells(path, cells)
    monkeypatch.setattr(cells_module, "measure", lambda task, data: (task.key(), kept))
    detection.main(tmp_path, fast=True, seeds=[0])
    assert f"{len(cells) + 1} cells, 1 of them" in capsys.readouterr().out
    assert cells_module.read_cells(path) == cells | {missing: kept}
    assert files(tmp_path, "detection") == results


def test_a_peer_that_fails_counts_as_chance(monkeypatch):
    monkeypatch.setitem(cells_module.PEERS, "failing", cells_module.Peer("KNN", "knn", parameters={"n_neighbors": -1}))
    task = cells_module.Task(cells_module.Column("synthetic", "clean"), "5", 0, "failing", "mm")
    _, cell = cells_module.measure(task, None)
    assert cell["roc_auc"] == 0.5
    assert "n_neighbors" in cell["error"]


def test_cost(tmp_path, capsys):
    cost.main(tmp_path, fast=True)
    results = files(tmp_path, "cost")
    assert "| KNN |" in capsys.readouterr().out
    assert len(results["timings"]) == 12
    assert all(0 < number < math.inf for number in numbers(results))
    (tmp_path / "cost.png").unlink()
    cost.main(tmp_path, redraw=True)
    assert files(tmp_path, "cost") == results


@pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning")  # of torch, to itself
def test_export(tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    from examples.benchmarks import export

    export.main(tmp_path, fast=True)
    results = files(tmp_path, "export")
    assert "| onnxruntime |" in capsys.readouterr().out
    (result,) = results["results"]
    assert all(0 < number < math.inf for number in numbers(result["seconds"]))
    assert result["files"]["onnx"] > 1000
    exact = {
        name: error for name, error in result["relative_error"].items() if name in ("module", "torch.export", "onnxruntime")
    }
    assert len(exact) == 3
    assert max(exact.values()) < 1e-10


def test_cost_expects_a_power_of_the_rows():
    earlier = [cost.Timing("", n, 2, fit_seconds=n**2 / 1e6, score_seconds=1.0) for n in (1000, 2000)]
    assert cost.expected(earlier, 8000) == pytest.approx((64, 1))
    assert cost.expected(earlier[:1], 8000) == pytest.approx((8, 1))


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning")
def test_start(capsys):
    pytest.importorskip("onnxruntime")
    from examples.benchmarks import start

    costs = start.main(n_rows=200, n_features=4, repetitions=1)  # both ways give the detector's score, or it raises
    assert costs.keys() == start.WAYS.keys()
    assert all(cost.seconds > 0 for cost in costs.values())
    assert costs["NumPy alone"].megabytes < costs["onnxruntime"].megabytes < costs["load, decision_function"].megabytes
    assert "| onnxruntime |" in capsys.readouterr().out


def test_classes(tmp_path, capsys):
    results = classes.main(tmp_path, seeds=[0], fast=True)
    assert results.keys() == classes.METHODS.keys()
    assert results["classes, relative"][0] > 0.95
    assert "| one default for each class |" in capsys.readouterr().out


TESTS_OF_ANOTHER = """
import unittest
from pyod.models.knn import KNN
from pyod.models.mad import MAD
class TestKNN(unittest.TestCase):
    def setUp(self):
        self.clf = KNN(n_neighbors=5, contamination=0.2).fit([[float(i), float(i * i % 7)] for i in range(30)])
    def test_labels(self):
        assert self.clf.labels_.sum() == 6 and type(self.clf).__bases__[0].__name__ == "QuadricDetector"
        assert MAD.__module__ == "pyod.models.mad"
    def test_parameters(self):
        assert hasattr(self.clf, "tree_")
"""


def test_tests_of_pyod_are_run_on_our_class(tmp_path):
    (tmp_path / "pyod" / "test").mkdir(parents=True)
    (tmp_path / "pyod" / "test" / "test_another.py").write_text(TESTS_OF_ANOTHER)
    command = [sys.executable, "-m", "examples.benchmarks.pyod_own_tests", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert "1 test files, 1 classes replaced: 1 passed, 1 failed" in done.stdout
    assert "| attributes or methods of another detector | 1 | test_another.py |" in done.stdout
