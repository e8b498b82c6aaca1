"""The exported score is that of the detector: as a torch module, as torch's graph, and as an ONNX graph."""

import copy
import itertools
import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pyod_quadric import QuadricDetector
from pyod_quadric.geometry.distances import DISTANCE_FUNCTIONS
from pyod_quadric.model import module
from pyod_quadric.model.module import OPSET, exported
from tests.support.circle import TEST, X
from tests.support.elsewhere import DEVICE, Elsewhere
from tests.support.profiles import n_examples
from tests.support.runs import global_states

# What is asked for of a circle are more quadrics than it has.
pytestmark = pytest.mark.filterwarnings("ignore:.* quadrics that were asked for count:UserWarning")
# torch copies its own trees in a way that it warns of.
torch_warns = pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning")
SCORES = ("combined", "quadrics", "linear", "mean_distance")
# The same in more features than there are rows.
RNG = np.random.default_rng(0)
WIDE, WIDE_TEST = np.split(X[:100] @ RNG.normal(size=(3, 60)) + 0.1 * RNG.normal(size=(100, 60)) + 1, 2)


@cache
def fitted(score_function="combined", distance="second_order", normalize=False, wide=False):
    parameters = {"score_function": score_function, "normalize": normalize}
    if score_function != "linear":
        parameters |= {"distance": distance, "n_quadrics": 2}
    return QuadricDetector(**parameters).fit(WIDE if wide else X)


def scored(detector, rows):
    return detector.to_module()(torch.as_tensor(rows)).numpy()


# As a module


@pytest.mark.parametrize("wide", [False, True], ids=["", "wide"])
@pytest.mark.parametrize(("score", "distance"), [*itertools.product(SCORES, DISTANCE_FUNCTIONS)])
def test_modules_score_like_the_detector(score, distance, wide):
    for normalize in (True, False):
        detector = fitted(score, distance, normalize, wide)
        test = WIDE_TEST if wide else TEST
        scores = scored(detector, test)
        assert scores.dtype == np.float64
        np.testing.assert_allclose(scores, detector.decision_function(test), rtol=1e-10)
        single = test.astype(np.float32)
        scores_of_single = scored(detector, single)
        np.testing.assert_allclose(scores_of_single, detector.decision_function(single.astype(np.float64)), rtol=1e-10)
        if score in ("combined", "linear"):  # the rest are small differences of large terms, of which float32 knows less
            np.testing.assert_allclose(scores_of_single, detector.decision_function(single), rtol=1e-5)
        np.testing.assert_allclose(scored(detector, test[:1]), scores[:1], rtol=1e-10)


@n_examples(40)
@given(
    st.sampled_from([*itertools.product(SCORES, DISTANCE_FUNCTIONS, [True, False])]),
    arrays(np.float64, (3, 3), elements=st.floats(-1e200, 1e200)),
)
def test_modules_score_like_the_detector_everywhere(choice, rows):
    np.testing.assert_allclose(scored(fitted(*choice), rows), fitted(*choice).decision_function(rows), rtol=1e-8)


def test_many_quadrics_are_scored_in_parts(monkeypatch):
    detector = QuadricDetector(score_function="mean_distance", n_quadrics=6).fit(X)
    monkeypatch.setattr(module, "BLOCK_NUMBERS", 4 * 3 * module.BLOCK_ROWS)
    np.testing.assert_allclose(scored(detector, TEST), detector.decision_function(TEST), rtol=1e-10)


def test_nan_has_the_largest_score():
    scores = scored(fitted(), np.array([[np.nan, 0.0, 0.0], [1e300, -1e300, np.inf], *TEST[:2]]))
    assert scores[0] == scores[1] == 1e150
    np.testing.assert_allclose(scores[2:], fitted().decision_function(TEST[:2]))


@pytest.mark.parametrize("choice", [(), ("mean_distance", "first_order", True), ("combined", "second_order", True, True)])
def test_gradients_are_those_of_differences(choice):
    detector = fitted(*choice)
    rows = torch.tensor(WIDE_TEST[:3] if len(choice) > 3 else TEST[:3], requires_grad=True)
    assert torch.autograd.gradcheck(detector.to_module(), rows)


def test_modules_follow_encoders():
    encoder = torch.nn.Linear(5, 3)
    with torch.no_grad():
        encoder.weight.normal_(generator=torch.Generator().manual_seed(0))
    model = torch.nn.Sequential(encoder, fitted().to_module())
    rows = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    scores = model(rows)
    np.testing.assert_allclose(scores.detach(), fitted().decision_function(encoder(rows).detach().double().numpy()), rtol=1e-10)
    scores.sum().backward()
    assert torch.isfinite(encoder.weight.grad).all()
    assert encoder.weight.grad.abs().sum() > 0
    assert sum(parameter.numel() for parameter in model.parameters()) == 18  # the score has nothing to train


def test_modules_have_memory_of_their_own_and_can_be_kept(tmp_path):
    detector = copy.deepcopy(fitted())
    module = detector.to_module()
    expected = detector.decision_function(TEST)
    torch.save(module.state_dict(), tmp_path / "state")
    for buffer in module.buffers():
        buffer.mul_(2)
    np.testing.assert_array_equal(detector.decision_function(TEST), expected)
    module.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    np.testing.assert_allclose(module(torch.tensor(TEST)), expected, rtol=1e-10)


@pytest.mark.parametrize("wide", [False, True])
def test_modules_can_be_made_single(wide):
    detector = fitted(normalize=wide, wide=wide)
    test = torch.tensor(WIDE_TEST if wide else TEST)
    scores = detector.to_module().float()(test)
    assert scores.dtype == torch.float32
    np.testing.assert_allclose(scores, detector.decision_function(test.numpy()), rtol=1e-3)
    assert torch.isfinite(detector.to_module().float()(1e30 * test)).all()


def test_modules_move_to_devices():
    with Elsewhere():
        scores = fitted().to_module().to(DEVICE)(torch.tensor(TEST).to(DEVICE))
        assert scores.device.type == DEVICE
        np.testing.assert_allclose(scores.cpu().numpy(), fitted().decision_function(TEST), rtol=1e-10)


def test_only_fitted_detectors_can_be_exported(tmp_path):
    for task in (QuadricDetector().to_module, lambda: QuadricDetector().to_onnx(tmp_path / "scores.onnx")):
        with pytest.raises(Exception, match="not fitted"):
            task()


# As a graph

# Normalised rows, first-order distances, a linear part that does not fill the space.
WIDE_FIT = ("combined", "first_order", True, True)


# Of torch 2.6, to itself.
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node", "ignore:Node lifted_tensor_")
@pytest.mark.parametrize("choice", [(), WIDE_FIT], ids=str)
def test_graphs_of_torch_score_any_number_of_rows(choice):
    detector = fitted(*choice)
    test = torch.tensor(WIDE_TEST if choice else TEST).float()
    graph = exported(detector.to_module()).module()
    for n in (1, 2, 7, 30):
        np.testing.assert_allclose(graph(test[:n]), detector.decision_function(test[:n].double().numpy()), rtol=1e-10)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """Return a session of onnxruntime, for rows of float64."""
    runtime = pytest.importorskip("onnxruntime")
    path = tmp_path_factory.mktemp("onnx") / "scores.onnx"
    fitted(*WIDE_FIT).to_onnx(path, dtype=torch.float64)
    return runtime.InferenceSession(path, providers=["CPUExecutionProvider"])


@torch_warns
def test_onnx_scores_like_the_detector(session):
    for n in (1, 2, len(WIDE_TEST)):
        (scores,) = session.run(["scores"], {"rows": WIDE_TEST[:n]})
        np.testing.assert_allclose(scores, fitted(*WIDE_FIT).decision_function(WIDE_TEST[:n]), rtol=1e-10)


@torch_warns
@pytest.mark.parametrize("row", [[0.0], [1e200, 1.0], [-1e-200], [np.nan], [np.inf], [3.0, -np.inf]], ids=str)
def test_onnx_scores_strange_rows_like_the_module(session, row):
    rows = np.resize(row, (1, 60))
    (scores,) = session.run(["scores"], {"rows": rows})
    np.testing.assert_allclose(scores, scored(fitted(*WIDE_FIT), rows), rtol=1e-10)


@torch_warns
def test_the_file_of_the_guide_is_whole_and_holds_no_folders(tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    guide = (Path(__file__).parents[2] / "docs/guide/files-and-export.md").read_text()
    (code,) = re.findall(r"```py\n(.*?)```", guide, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    detector = QuadricDetector().fit(pandas.DataFrame(X, columns=["x", "y", "z"]))
    namespace = {"detector": detector, "embeddings": TEST.astype(np.float32)}
    before = global_states()
    exec(code, namespace)  # the guide is ours
    assert global_states() == before
    test = pandas.DataFrame(TEST.astype(np.float32), columns=["x", "y", "z"])
    np.testing.assert_allclose(namespace["scores"], detector.decision_function(test), rtol=1e-5)
    np.testing.assert_allclose(namespace["scores"], detector.decision_function(test.astype(np.float64)), rtol=1e-10)
    assert [path.name for path in tmp_path.iterdir()] == ["scores.onnx"]
    session = namespace["session"]
    graph = onnx.load(tmp_path / "scores.onnx")
    onnx.checker.check_model(graph, full_check=True)
    assert [(opset.domain, opset.version) for opset in graph.opset_import] == [("", OPSET)] == [("", 18)]
    (rows,), (scores, p_values) = session.get_inputs(), session.get_outputs()
    assert (p_values.name, p_values.shape, p_values.type) == ("p_values", ["n"], "tensor(double)")
    assert (rows.name, rows.shape, rows.type) == ("rows", ["n", 3], "tensor(float)")
    assert (scores.name, scores.shape, scores.type) == ("scores", ["n"], "tensor(double)")
    properties = {entry.key: entry.value for entry in graph.metadata_props}
    assert json.loads(properties["feature_names"]) == ["x", "y", "z"]
    assert float(properties["threshold"]) == detector.threshold_
    assert properties["torch_version"] == torch.__version__
    assert str(Path(module.__file__).parent).encode() not in (tmp_path / "scores.onnx").read_bytes()


def test_without_the_packages_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'pyod-quadric\[onnx\]'"):
        fitted().to_onnx(tmp_path / "scores.onnx")
