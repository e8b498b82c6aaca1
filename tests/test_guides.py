"""Code of the guides that needs packages which are not installed everywhere."""

import re
from pathlib import Path

import numpy as np
import pytest

GUIDES = Path(__file__).parent.parent / "docs" / "guide"


def code_under(page, heading):
    """Return the blocks of ``py`` under a heading, one after another."""
    sections = re.split(r"^## ", (GUIDES / page).read_text(), flags=re.MULTILINE)
    (section,) = [part for part in sections if part.startswith(heading)]
    return "\n".join(re.findall(r"```py\n(.*?)```", section, flags=re.DOTALL))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return what runs the code under a heading in a folder of its own, and gives the names that it has made."""
    monkeypatch.chdir(tmp_path)

    def run(page, heading):
        namespace = {"__name__": "page"}
        exec(code_under(page, heading), namespace)  # the pages are ours
        return namespace

    return run


# torch copies its own trees in a way that it warns of.
torch_warns = pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning")


@torch_warns
def test_one_file(run):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    names = run("deployment.md", "The fastest way")
    exact = names["detector"].decision_function(names["rows"][:5].astype(np.float64))
    np.testing.assert_allclose(names["scores"], exact, rtol=1e-10)
    assert names["threshold"] == names["detector"].threshold_


@torch_warns
def test_encoder_and_detector_in_one_file(run):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    torch = pytest.importorskip("torch")
    with torch.random.fork_rng():
        names = run("deployment.md", "An encoder")
    assert [path.name for path in Path.cwd().iterdir()] == ["model.onnx"]
    rows = names["inputs"][:7]
    found = runtime.InferenceSession("model.onnx").run(None, {"inputs": rows.numpy()})
    expected = [numbers.detach().numpy() for numbers in names["model"](rows)]
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-5)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-3)


def test_skops(run):
    pytest.importorskip("skops")
    names = run("deployment.md", "Files in Python")
    assert names["scores"].shape == (500,)
