"""Nothing creates a tensor on another device than its input's.

There is no accelerator here. Fake tensors that claim to be on ``cuda`` run every operation without data and raise when devices
are mixed, which shows placement, not results. What looks at its numbers, as a fit does, runs on a pretended device.
"""

from typing import get_args

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pyod_quadric import CholeskyStiefel, QuadricDetector
from pyod_quadric.data.rows import normalized
from pyod_quadric.geometry.distances import second_order_from
from pyod_quadric.geometry.frames import _qr, gram, orthonormality_error
from pyod_quadric.geometry.packing import pack, pack_outer, packed_size, unpack
from pyod_quadric.geometry.quadrics import Quadrics, hs_norm, values_and_gradient_norms
from pyod_quadric.model.closed_form import feature_moments
from pyod_quadric.model.coordinates import WorkingCoordinates
from pyod_quadric.model.moments import Moments
from pyod_quadric.parallel.devices import moved
from pyod_quadric.parameters import Loss
from pyod_quadric.training.manifold import InPlaceStiefel
from pyod_quadric.training.objective import mean_distance, mean_distance_and_gradient
from tests.support.elsewhere import DEVICE, Elsewhere

N, M, D = 7, 3, 4


@pytest.fixture
def cuda():
    """Return a function that makes fake CUDA tensors."""
    with FakeTensorMode():
        yield lambda *shape: torch.empty(*shape, device="cuda")


def parts(cuda):
    return cuda(M, D, D), cuda(M, D), cuda(M)


def test_fake_tensors_notice_mixed_devices(cuda):
    with pytest.raises(RuntimeError, match="device"):
        values_and_gradient_norms(torch.empty(N, D), *parts(cuda))


def test_geometry(cuda):
    quadrics = Quadrics(*parts(cuda), check_values=False)
    values, norms = values_and_gradient_norms(cuda(N, D), *parts(cuda))
    distances = second_order_from(values, norms, hs_norm(quadrics.quadratic))
    results = [values, norms, distances, quadrics.packed(), quadrics.coefficients(), quadrics.hs_inner(quadrics)]
    results += [unpack(pack(cuda(M, D, D))), pack_outer(cuda(N, D))]
    assert {result.device.type for result in results} == {"cuda"}
    assert distances.shape == (N, M)


@pytest.mark.parametrize("distance", get_args(Loss))
def test_objective(cuda, distance):
    quadrics = cuda(M, packed_size(D)), cuda(M, D), cuda(M)
    value, gradient = mean_distance_and_gradient(cuda(N, D), *quadrics, distance)
    results = [value, *gradient, mean_distance(cuda(N, D), *quadrics, distance)]
    assert {result.device.type for result in results} == {"cuda"}


def test_preprocessing(cuda):
    working = WorkingCoordinates(torch.empty(D), torch.empty(2, D))  # kept on the CPU
    moments = Moments.of(cuda(N, D)) + Moments.of(cuda(N, D))
    results = [working.transform(cuda(N, D)), normalized(cuda(N, D)), moments.mean, moments.covariance()]
    assert {result.device.type for result in results} == {"cuda"}


def test_moments_and_frames(cuda):
    results = [feature_moments([cuda(N, D), cuda(N, D)])[0], gram(cuda(N, M)), orthonormality_error(cuda(N, M))]
    assert {result.device.type for result in results} == {"cuda"}


# polar_factor, polar and orthonormalized, and with them projx and retr, branch on numbers, which fake tensors do not have.
@pytest.mark.parametrize("manifold", [CholeskyStiefel(), InPlaceStiefel()], ids=["new", "in place"])
@pytest.mark.parametrize("frame", [lambda cuda: cuda(N, M), lambda cuda: cuda(M, N).T, lambda cuda: cuda(2, N, M)])
def test_manifolds(cuda, manifold, frame):
    results = [project(frame(cuda), frame(cuda)) for project in (manifold.proju, manifold.egrad2rgrad)]
    results += [_qr(frame(cuda)), gram(frame(cuda))]  # what a retraction does without branches
    assert {result.device.type for result in results} == {"cuda"}
    assert {result.shape for result in results[:3]} == {frame(cuda).shape}


# Only from CUDA to CUDA: there are no fake pinned tensors.
def test_moved_is_one_batch_ahead_and_keeps_the_order(cuda):
    taken = []
    batches = (taken.append(n) or cuda(n, D) for n in (5, 6, 7))
    seen = [(len(batch), taken[-1], batch.device.type) for batch in moved(batches, torch.device("cuda:0"))]
    assert seen == [(5, 6, "cuda"), (6, 7, "cuda"), (7, 7, "cuda")]


def test_the_pretended_device_notices_mixed_devices():
    with Elsewhere():
        there = torch.ones(3, device=DEVICE)
        assert (there + there).cpu().tolist() == [2, 2, 2]
        with pytest.raises(RuntimeError, match="different devices"):
            there + torch.ones(3)
        with pytest.raises(RuntimeError, match="numpy"):
            there.numpy()


@pytest.mark.parametrize(
    ("settings", "n", "d"),
    [
        ({}, 100, 3),
        ({"epoch_num": 2, "init": "random", "batch_size": 64, "training_options": {"validation_fraction": 0.1}}, 100, 3),
        ({"score_function": "mean_distance", "n_components": None, "n_quadrics": 2, "robust": False}, 100, 3),
        ({"distance": "first_order"}, 30, 40),  # fewer rows than features, and normalised or not
    ],
    ids=str,
)
def test_fits_on_a_device_are_kept_on_the_cpu(settings, n, d, monkeypatch):
    """The Stiefel constraint is left out, since geoopt's tensors do not go with pretended ones."""
    monkeypatch.setattr("pyod_quadric.geometry.projection.N_STEPS", 1)  # enough to see where it computes
    monkeypatch.setattr("pyod_quadric.geometry.projection.N_HALVINGS", 2)
    rows = 2 + np.random.default_rng(0).normal(size=(n, d)) ** 2
    expected = QuadricDetector(**settings, device="cpu").fit(rows)
    with Elsewhere():
        detector = QuadricDetector(**settings, device=DEVICE).fit(rows)
        np.testing.assert_allclose(detector.decision_scores_, expected.decision_scores_)
        for method in ("decision_function", "quadric_distances", "explain", "project"):
            results = (getattr(each, method)(rows[:3]) for each in (detector, expected))
            np.testing.assert_allclose(*results, atol=1e-9, err_msg=method)
    detector.set_params(device="cpu")
    np.testing.assert_allclose(detector.decision_function(rows), expected.decision_function(rows))
