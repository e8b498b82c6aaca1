"""An encoder and the score behind it, exported by torch alone, are one ONNX file that scores like torch."""

import numpy as np
import pytest
import torch
from torch import nn

from pyod_quadric import QuadricDetector
from pyod_quadric.model.module import OPSET

# Encoders compute in float32, and onnxruntime sums in another order: at most 1.1e-6 was seen, relative to the score.
AGREEMENT = 2e-5
N_ROWS = 500
# torch copies its own trees in a way that it warns of.
torch_warns = pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning")


class Attention(nn.Module):
    """Tokens through a layer of a transformer, and their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True)

    def forward(self, tokens):
        return self.layer(tokens).mean(dim=1)


def images():
    features = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
    return nn.Sequential(features, nn.Flatten(), nn.Linear(16, 8))


def rows():
    return nn.Sequential(nn.Linear(20, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 8))


ENCODERS = {"conv": (images, (1, 10, 10)), "mlp": (rows, (20,)), "attention": (Attention, (5, 8))}
# What comes behind each of them: all operations of a score, and p-values or none.
DETECTORS = {
    "conv": ({"normalize": True, "distance": "first_order"}, False),
    "mlp": ({}, True),
    "attention": ({"score_function": "mean_distance", "n_quadrics": 4}, True),
}


@pytest.mark.parametrize("name", ENCODERS)
@torch_warns
@torch.no_grad()
def test_encoder_and_score_are_one_file(name, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder, shape = ENCODERS[name][0]().eval(), ENCODERS[name][1]
        training, test = torch.randn(N_ROWS, *shape), 2 * torch.randn(100, *shape)
    parameters, p_values = DETECTORS[name]
    detector = QuadricDetector(**parameters).fit(encoder(training))
    model = nn.Sequential(encoder, detector.to_module(p_values=p_values)).eval()
    outputs = ["scores", "p_values"] if p_values else ["scores"]
    torch.onnx.export(
        model,
        (training[:2],),
        tmp_path / "model.onnx",
        input_names=["inputs"],
        output_names=outputs,
        dynamic_shapes=({0: torch.export.Dim("n")},),
        opset_version=OPSET,
        external_data=False,
        dynamo=True,
        verbose=False,
    )
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == outputs
    for n in (1, 2, 100):
        found = session.run(None, {"inputs": test[:n].numpy()})
        expected = model(test[:n]) if p_values else (model(test[:n]),)
        assert all(numbers.shape == (n,) and numbers.dtype == np.float64 for numbers in found)
        np.testing.assert_allclose(found[0], expected[0], rtol=AGREEMENT)
        # Exact embeddings leave nothing to the encoder: the score behind it is the detector's.
        exact = detector.decision_function(encoder(test[:n]).double().numpy())
        np.testing.assert_allclose(expected[0], exact, rtol=1e-10)
        if p_values:
            np.testing.assert_allclose(found[1], expected[1], atol=2 / N_ROWS)
            np.testing.assert_allclose(expected[1], detector.predict_pvalue(encoder(test[:n]).double().numpy()), atol=1e-12)
    strange = np.full((1, *shape), np.nan, dtype=np.float32)
    assert session.run(["scores"], {"inputs": strange})[0] > 1e100
