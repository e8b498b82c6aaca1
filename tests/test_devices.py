"""Nothing creates a tensor on another device than its input's.

There is no accelerator here. Fake tensors that claim to be on ``cuda`` run every operation without data and raise when devices
are mixed, which shows placement, not results.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pyod_quadric import CholeskyStiefel
from pyod_quadric._packing import pack, pack_outer, packed_size, unpack
from pyod_quadric.batches import moved
from pyod_quadric.distances import second_order_from
from pyod_quadric.moments import Moments
from pyod_quadric.objective import DISTANCES, mean_distance, mean_distance_and_gradient
from pyod_quadric.preprocessing import WorkingCoordinates, normalized
from pyod_quadric.quadrics import Quadrics, hs_norm, values_and_gradient_norms
from pyod_quadric.spectral import feature_moments
from pyod_quadric.stiefel import InPlaceStiefel, _qr, gram, orthonormality_error

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


@pytest.mark.parametrize("distance", DISTANCES)
def test_objective(cuda, distance):
    quadrics = cuda(M, packed_size(D)), cuda(M, D), cuda(M)
    value, gradient = mean_distance_and_gradient(cuda(N, D), *quadrics, distance)
    results = [value, *gradient, mean_distance(cuda(N, D), *quadrics, distance)]
    assert {result.device.type for result in results} == {"cuda"}


def test_preprocessing(cuda):
    working = WorkingCoordinates(torch.empty(D), torch.empty(2, D), True, torch.empty(D))  # kept on the CPU
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
