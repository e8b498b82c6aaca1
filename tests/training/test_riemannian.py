"""geoopt comes without its warnings, and where it does not come at all training takes the same steps."""

import subprocess
import sys
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric.training.manifold import CholeskyStiefel, InPlaceStiefel
from pyod_quadric.training.riemannian import RiemannianSGD, geoopt, on_manifold

HIDDEN = "sys.modules['geoopt'] = None"
TAKEN_AWAY = "import torch; del torch.jit.script"  # as a later torch may do
TRAIN = """
import torch
from pyod_quadric import TrainingOptions, random_quadrics, train

generator = torch.Generator().manual_seed(0)
rows = torch.nn.functional.normalize(torch.randn(200, 4, generator=generator))
start = random_quadrics(3, 4, generator)
for name in ("sgd", "adam"):
    options = TrainingOptions(constraint="stiefel", optimizer_name=name, lr=0.02, momentum=0.9, epoch_num=3)
    trained = train(rows, start, options)
    error = trained.history["orthonormality_error"][-1]
    assert error < 1e-5, error
    print(trained.quadrics.coefficients().double().sum().item().hex(), trained.history["loss"])
"""


@cache
def output_of(*lines, options=()):
    done = subprocess.run([sys.executable, *options, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize("trouble", [HIDDEN, TAKEN_AWAY], ids=["not installed", "does not import"])
def test_stiefel_training_needs_no_geoopt_and_gives_the_same(trouble):
    missing = "from pyod_quadric.training.riemannian import geoopt; assert geoopt is None"
    assert output_of("import sys", trouble, missing, TRAIN) == output_of(TRAIN)


def test_geoopt_is_imported_in_silence_and_filters_stay():
    lines = [
        "import sys, warnings, pyod_quadric",
        "pyod_quadric.train",  # some packages set filters when they are imported
        "before = list(warnings.filters)",
        "pyod_quadric.CholeskyStiefel",
        "assert 'geoopt' in sys.modules",
        "assert warnings.filters == before",
    ]
    assert not output_of(*lines, options=("-W", "error"))


@given(
    seed=st.integers(0, 2**16),
    lr=st.sampled_from([0.001, 0.1, 3.0]),
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
    kind=st.sampled_from([CholeskyStiefel, InPlaceStiefel, geoopt.EuclideanStiefel]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_own_descent_is_that_of_geoopt_bit_for_bit(seed, lr, momentum, kind, dtype):
    generator = torch.Generator().manual_seed(seed)
    start = torch.linalg.qr(torch.randn(9, 3, generator=generator, dtype=dtype)).Q
    gradients = [[torch.randn(shape, generator=generator, dtype=dtype) for shape in ((9, 3), (3, 4))] for _ in range(4)]

    def trajectory(optimizer):
        points = [on_manifold(start.clone(), kind()), torch.nn.Parameter(torch.zeros(3, 4, dtype=dtype))]
        steps = optimizer(points, lr=lr, momentum=momentum)
        for row in gradients:
            for point, gradient in zip(points, row, strict=True):
                point.grad = gradient.clone()
            steps.step()
        return [point.detach() for point in points]

    for own, theirs in zip(trajectory(RiemannianSGD), trajectory(geoopt.optim.RiemannianSGD), strict=True):
        assert torch.equal(own, theirs)


def test_own_descent_takes_a_closure_and_leaves_points_without_a_gradient():
    still, moving = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    optimizer = RiemannianSGD([still, moving], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = moving.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) == 2
    assert still.tolist() == [1, 1]
    assert moving.tolist() == [0, 0]
