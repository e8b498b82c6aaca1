"""Frame and rest carry the quadrics, their gradients are right, and each constraint does what it says."""

import numpy as np
import pytest
import torch

from pyod_quadric import Quadrics
from pyod_quadric.geometry.frames import orthonormality_error
from pyod_quadric.geometry.packing import packed_size, unpack
from pyod_quadric.training.constraints import Constraint, PenaltyConstraint, StiefelConstraint
from pyod_quadric.training.manifold import FrameAdam
from pyod_quadric.training.objective import mean_distance_and_gradient
from pyod_quadric.training.riemannian import geoopt

GENERATOR = torch.Generator().manual_seed(0)
D, M = 4, 3
HALF = torch.randn(M, D, D, generator=GENERATOR, dtype=torch.float64)
START = Quadrics(HALF + HALF.mT, HALF[:, 0], HALF[:, 0, 0])
POINTS = torch.randn(50, D, generator=GENERATOR, dtype=torch.float64)
INNER_PRODUCTS = ["hs", "coefficient"]
CONSTRAINTS = [PenaltyConstraint, StiefelConstraint]


def rebuilt(frame, rest, inner_product):
    """Return the quadrics of a frame and a rest, by another way than the constraint's."""
    if inner_product == "coefficient":
        return Quadrics.from_coefficients(frame)
    return Quadrics(unpack(frame), rest[:, :-1], rest[:, -1])


def gram(quadrics, inner_product):
    if inner_product == "hs":
        return quadrics.hs_inner(quadrics)
    return quadrics.coefficients() @ quadrics.coefficients().T


@pytest.mark.parametrize("inner_product", INNER_PRODUCTS)
@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_starts_at_the_nearest_orthonormal_quadrics(kind, inner_product):
    constraint = kind(START, inner_product)
    np.testing.assert_allclose(gram(constraint.quadrics(), inner_product), np.eye(M), atol=1e-12)
    frame = START.packed() if inner_product == "hs" else START.coefficients()
    left, _, right = np.linalg.svd(frame.numpy(), full_matrices=False)
    np.testing.assert_allclose(constraint.frame, left @ right, atol=1e-10)
    # The polynomials span what the given ones do.
    both = torch.cat([constraint.quadrics().coefficients(), START.coefficients()])
    assert torch.linalg.matrix_rank(both, rtol=1e-9) == M
    again = kind(constraint.quadrics(), inner_product).quadrics()
    for name in ("quadratic", "linear", "constant"):
        np.testing.assert_allclose(getattr(again, name), getattr(constraint.quadrics(), name), atol=1e-12)


@pytest.mark.parametrize("inner_product", INNER_PRODUCTS)
def test_parts_are_those_of_frame_and_rest(inner_product):
    constraint = PenaltyConstraint(START, inner_product)
    expected = rebuilt(constraint.frame, constraint.rest, inner_product)
    for actual, wanted in zip(constraint.parts(), (expected.packed(), expected.linear, expected.constant), strict=True):
        np.testing.assert_allclose(actual, wanted, atol=1e-14)


@pytest.mark.parametrize("inner_product", INNER_PRODUCTS)
@pytest.mark.parametrize("weight", [0.0, 1.0, 3.0])
def test_gradients_by_frame_and_rest_equal_autograd(inner_product, weight):
    constraint = PenaltyConstraint(START, inner_product, weight)
    constraint.frame *= 1.1  # off the manifold, so that the penalty has a slope
    frame = constraint.frame.clone().requires_grad_()
    rest = constraint.rest.detach().clone().requires_grad_()
    quadrics = rebuilt(frame, rest, inner_product)
    values, norms = quadrics.values_and_gradient_norms(POINTS)
    hs_norms = quadrics.hs_norm()
    distances = 2 * values.abs() / (norms + (norms**2 + 4 * hs_norms * values.abs()).sqrt())
    penalty = weight * (frame @ frame.T - torch.eye(M)).square().sum()
    (distances.sum() / len(POINTS) + penalty).backward()

    _, gradient = mean_distance_and_gradient(POINTS, *constraint.parts(), out=constraint.gradient_buffer)
    constraint.set_gradient(gradient)
    np.testing.assert_allclose(constraint.frame_parameter.grad, frame.grad, atol=1e-12)
    if inner_product == "hs":
        np.testing.assert_allclose(constraint.rest.grad, rest.grad, atol=1e-12)


def descend(constraint: Constraint, name: str, lr: float, steps: int = 60) -> list[float]:
    optimizer = constraint.optimizer(name, lr, 0.5)
    losses = []
    for _ in range(steps):
        loss, gradient = mean_distance_and_gradient(POINTS, *constraint.parts(), out=constraint.gradient_buffer)
        constraint.set_gradient(gradient)
        optimizer.step()
        losses.append(float(loss))
    return losses


@pytest.mark.parametrize("inner_product", INNER_PRODUCTS)
@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_steps_reduce_the_loss_and_hold_the_constraint(kind, name, inner_product):
    constraint = kind(START, inner_product)
    losses = descend(constraint, name, 0.02)
    assert losses[-1] < losses[0]
    error = float(orthonormality_error(constraint.frame.T))
    assert error == pytest.approx(float(constraint.error()))
    assert error < (1e-13 if kind is StiefelConstraint else 0.2)
    assert (error > 1e-6) == (kind is PenaltyConstraint)


def test_fast_and_slow_manifold_take_the_same_steps():
    fast, slow = StiefelConstraint(START), StiefelConstraint(START, manifold=geoopt.EuclideanStiefel())
    # Few steps: where an absolute value turns, descent amplifies the last bits.
    np.testing.assert_allclose(descend(fast, "sgd", 0.02, 25), descend(slow, "sgd", 0.02, 25), rtol=1e-9)


def test_frame_is_a_point_of_the_stiefel_manifold_of_packed_matrices():
    parameter = StiefelConstraint(START).frame_parameter
    assert isinstance(parameter, geoopt.ManifoldParameter)
    assert parameter.shape == (packed_size(D), M)


def test_a_larger_weight_holds_orthonormality_better():
    errors = []
    for weight in (0.1, 1.0, 10.0):
        constraint = PenaltyConstraint(START, "hs", weight)
        descend(constraint, "sgd", 0.005, steps=200)
        errors.append(float(constraint.error()))
    assert errors == sorted(errors, reverse=True)


def test_refuses():
    with pytest.raises(ValueError, match=r"one of \('hs', 'coefficient'\), got 'gradient'"):
        PenaltyConstraint(START, "gradient")
    with pytest.raises(ValueError, match="orthonormality_weight must be a number >= 0, got -1"):
        PenaltyConstraint(START, "hs", -1)


def test_optimizers_are_those_that_were_asked_for():
    kinds = {(PenaltyConstraint, "sgd"): torch.optim.SGD, (PenaltyConstraint, "adam"): torch.optim.Adam}
    kinds |= {(StiefelConstraint, "sgd"): geoopt.optim.RiemannianSGD, (StiefelConstraint, "adam"): FrameAdam}
    for (kind, name), expected in kinds.items():
        optimizer = kind(START).optimizer(name, 0.1, 0.7)
        assert type(optimizer) is expected
        (group,) = optimizer.param_groups
        assert group["lr"] == 0.1
        assert 0.7 in (group.get("momentum"), group.get("betas", [None])[0])
