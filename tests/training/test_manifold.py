"""The fast Stiefel manifold obeys the laws of a manifold, and agrees with geoopt's own one."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric.geometry.frames import orthonormality_error, orthonormalized, polar
from pyod_quadric.training.manifold import CholeskyStiefel, FrameAdam, InPlaceStiefel
from pyod_quadric.training.riemannian import geoopt
from tests.support.tolerances import DTYPES

MANIFOLD, SLOW = CholeskyStiefel(), geoopt.EuclideanStiefel()
ERROR = {torch.float32: 1e-5, torch.float64: 1e-13}


@st.composite
def frames(draw):
    """Draw a seeded generator, a frame, and two tangent vectors at it, all float64."""
    n = draw(st.integers(1, 12))
    m = draw(st.integers(1, n))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    x = torch.linalg.qr(torch.randn(n, m, generator=generator, dtype=torch.float64)).Q
    u, v = (SLOW.proju(x, torch.randn(n, m, generator=generator, dtype=torch.float64)) for _ in range(2))
    return x, u, v


@given(frame=frames(), size=st.sampled_from([0.0, 1e-6, 0.1, 1.0, 30.0]))
def test_retraction_lands_on_the_manifold(frame, size):
    x, u, _ = frame
    assert orthonormality_error(MANIFOLD.retr(x, size * u)) < 1e-13


@given(frame=frames(), size=st.sampled_from([0.0, 0.1, 1.0, 30.0]))
def test_retraction_equals_that_of_geoopt(frame, size):
    x, u, _ = frame
    np.testing.assert_allclose(MANIFOLD.retr(x, size * u), SLOW.retr(x, size * u), atol=1e-10)


@pytest.mark.parametrize("by_columns", [False, True])
@given(frame=frames())
def test_in_place_manifold_gives_the_same(frame, by_columns):
    x, u, v = (t.mT.contiguous().mT if by_columns else t.contiguous() for t in frame)
    fast = InPlaceStiefel()
    np.testing.assert_allclose(fast.retr(x, u.clone()), MANIFOLD.retr(x, u), atol=1e-12)
    np.testing.assert_allclose(fast.egrad2rgrad(x, (v + x).clone()), MANIFOLD.egrad2rgrad(x, v + x), atol=1e-12)
    batched = fast.egrad2rgrad(x[None], (v + x)[None].clone())
    np.testing.assert_allclose(batched[0], MANIFOLD.egrad2rgrad(x, v + x), atol=1e-12)


@given(frame=frames())
def test_retraction_is_of_first_order(frame):
    """R_x(0) = x and the derivative of R_x(t u) at 0 is u."""
    x, u, _ = frame
    np.testing.assert_allclose(MANIFOLD.retr(x, 0 * u), x, atol=1e-14)
    step = 1e-5
    derivative = (MANIFOLD.retr(x, step * u) - MANIFOLD.retr(x, -step * u)) / (2 * step)
    np.testing.assert_allclose(derivative, u, atol=1e-7 * (1 + float(u.norm()) ** 3))


@given(frame=frames())
def test_vector_projection_is_a_projection_onto_the_tangent_space(frame):
    x, u, v = frame
    ambient = u + x @ (v.mT @ v)
    projected = MANIFOLD.proju(x, ambient)
    np.testing.assert_allclose(projected.mT @ x + x.mT @ projected, np.zeros(2 * x.shape[1:]), atol=1e-11)
    np.testing.assert_allclose(MANIFOLD.proju(x, projected), projected, atol=1e-11)
    # What was taken off is orthogonal to the tangent space.
    assert float(((ambient - projected) * u).sum()) == pytest.approx(0, abs=1e-9 * float(1 + ambient.norm() * u.norm()))


@given(frame=frames())
def test_gradient_conversion_represents_the_derivative(frame):
    x, u, v = frame
    euclidean = v + x
    riemannian = MANIFOLD.egrad2rgrad(x, euclidean)
    assert float(MANIFOLD.inner(x, riemannian, u)) == pytest.approx(
        float((euclidean * u).sum()), abs=1e-9 * (1 + float(u.norm()))
    )


@given(frame=frames())
def test_transport_follows_the_retraction_into_the_tangent_space(frame):
    x, u, v = frame
    y, transported = MANIFOLD.retr_transp(x, u, v)
    np.testing.assert_allclose(y, MANIFOLD.retr(x, u), atol=1e-12)
    np.testing.assert_allclose(transported.mT @ y + y.mT @ transported, np.zeros(2 * x.shape[1:]), atol=1e-11)


@given(frame=frames(), seed=st.integers(0, 2**16))
def test_projection_gives_the_nearest_frame(frame, seed):
    x, u, _ = frame
    columns = x + 0.3 * u / (1 + u.norm())
    nearest = MANIFOLD.projx(columns)
    assert orthonormality_error(nearest) < 1e-13
    np.testing.assert_allclose(nearest, SLOW.projx(columns), atol=1e-10)
    np.testing.assert_allclose(MANIFOLD.projx(nearest), nearest, atol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("condition", [1.0, 1e2, 1e5, 1e12])
def test_orthonormalization_copes_with_bad_conditioning(dtype, condition):
    """One round, two rounds, and QR where Cholesky fails."""
    generator = torch.Generator().manual_seed(0)
    q = torch.linalg.qr(torch.randn(300, 5, generator=generator, dtype=torch.float64)).Q
    mix = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64)).Q
    columns = (q * torch.logspace(0, -np.log10(condition), 5, dtype=torch.float64) @ mix).to(dtype)
    frame = orthonormalized(columns)
    assert orthonormality_error(frame.double()) < ERROR[dtype]
    upper = frame.mT @ columns
    np.testing.assert_allclose(upper.tril(-1), np.zeros((5, 5)), atol=1e-5 if dtype == torch.float32 else 1e-14)
    assert (upper.diagonal() > -1e-7).all()


def test_batches_of_frames():
    columns = torch.randn(4, 9, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for function in (orthonormalized, polar):
        together = function(columns)
        for one, alone in zip(together, columns, strict=True):
            np.testing.assert_allclose(one, function(alone), atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("condition", [1.0, 1e3])
def test_polar_copes_with_bad_conditioning(dtype, condition):
    generator = torch.Generator().manual_seed(0)
    q = torch.linalg.qr(torch.randn(300, 5, generator=generator, dtype=torch.float64)).Q
    mix = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64)).Q
    columns = (q * torch.logspace(0, -np.log10(condition), 5, dtype=torch.float64) @ mix).to(dtype)
    assert orthonormality_error(polar(columns).double()) < ERROR[dtype]


def test_steps_that_are_alike_in_all_columns_do_not_spoil_float32_frames():
    """The Gram matrix of such a step has one large eigenvalue that the diagonal of its factor hides."""
    generator = torch.Generator().manual_seed(0)
    x = torch.linalg.qr(torch.randn(3000, 400, generator=generator)).Q
    direction = torch.randn(3000, 1, generator=generator)
    direction = direction - x @ (x.mT @ direction)
    u = (direction / direction.norm()).expand(3000, 400)
    assert orthonormality_error(MANIFOLD.retr(x, u).double()) < 1e-5


def test_gradients_flow_through_orthonormalization():
    columns = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(orthonormalized, columns)


def test_polar_refuses_dependent_columns():
    with pytest.raises(ValueError, match="linearly dependent"):
        polar(torch.ones(5, 2))


GEOOPT_OPTIMIZERS = [geoopt.optim.RiemannianSGD, geoopt.optim.RiemannianAdam]


@pytest.mark.parametrize(("optimizer", "options"), [*product(GEOOPT_OPTIMIZERS, [{}, {"stabilize": 3}]), (FrameAdam, {})])
def test_optimizers_find_the_leading_subspace(optimizer, options):
    """Minimising -tr(Xᵀ D X) over frames gives the eigenvectors of the largest entries of D."""
    generator = torch.Generator().manual_seed(0)
    diagonal = torch.arange(8.0, dtype=torch.float64)
    start = torch.linalg.qr(torch.randn(8, 2, generator=generator, dtype=torch.float64)).Q
    frame = geoopt.ManifoldParameter(start, manifold=CholeskyStiefel())
    steps = optimizer([frame], lr=0.05, **options)
    for _ in range(300):
        steps.zero_grad()
        (-(frame.mT * diagonal @ frame).trace()).backward()
        steps.step()
    assert -(frame.mT * diagonal @ frame).trace().item() == pytest.approx(-13, rel=1e-4)
    assert orthonormality_error(frame.detach()) < 1e-13


def trajectory(x, rest, gradients, manifold=MANIFOLD, lr=0.1, betas=(0.9, 0.999)):
    """Return frame and rest after steps of FrameAdam by given Euclidean gradients (of the frame, of the rest)."""
    frame, free = geoopt.ManifoldParameter(x.clone(), manifold=manifold), torch.nn.Parameter(rest.clone())
    optimizer = FrameAdam([frame, free], lr=lr, betas=betas)
    for by_frame, by_rest in gradients:
        frame.grad, free.grad = by_frame.clone(), by_rest.clone()
        optimizer.step()
    return frame.detach(), free.detach()


@st.composite
def runs(draw):
    """Draw a frame, a rest, and gradients of three steps."""
    x, _, _ = draw(frames())
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    shapes = x.shape, (x.shape[1], 4)
    rest, *gradients = ([torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes] for _ in range(4))
    return x, rest[1], gradients


@given(run=runs(), seed=st.integers(0, 2**16))
def test_frame_adam_moves_with_signs_and_with_the_order_of_entries(run, seed):
    x, rest, gradients = run
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(x), generator=generator)
    entries, quadrics = (2.0 * torch.randint(2, (n,), generator=generator) - 1 for n in x.shape)
    frame, free = trajectory(x, rest, gradients)

    def moved(of_frame, of_rest):
        return (entries[:, None] * of_frame * quadrics)[order], of_rest * quadrics[:, None]

    found = trajectory(*moved(x, rest), [moved(*pair) for pair in gradients])
    for actual, expected in zip(found, moved(frame, free), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-8 * (1 + float(free.abs().max())))


@given(run=runs(), lr=st.sampled_from([1e-3, 0.01, 0.1]))
def test_without_memory_frame_adam_is_a_step_of_the_gradient_over_its_sizes(run, lr):
    x, rest, gradients = run
    by_frame, by_rest = gradients[0]
    riemannian = SLOW.egrad2rgrad(x, by_frame).numpy()
    by_quadric = (riemannian**2).mean(axis=0)
    by_entry = (riemannian**2 / np.maximum(by_quadric, 1e-16)).mean(axis=1)
    sizes = np.sqrt(np.outer(by_entry, by_quadric))
    step = torch.tensor(-10 * lr / np.sqrt(len(x)) * riemannian / (sizes + 1e-8))
    moved = x + step
    is_near = torch.linalg.matrix_norm(moved.mT @ moved - torch.eye(x.shape[1])) < 1
    expected = SLOW.projx(moved) if is_near else SLOW.retr(x, SLOW.proju(x, step))
    frame, free = trajectory(x, rest, gradients[:1], lr=lr, betas=(0.0, 0.0))
    np.testing.assert_allclose(frame, expected, atol=1e-6)
    np.testing.assert_allclose(free, rest - lr * by_rest / (by_rest.abs() + 1e-8), rtol=1e-9, atol=1e-9)


@given(run=runs(), lr=st.sampled_from([1e-5, 1e-4, 1e-3]))
def test_short_steps_of_frame_adam_are_projected_and_retracted_ones(run, lr):
    """To first order: what is not in the tangent space is taken away."""
    x, rest, gradients = run
    riemannian = SLOW.egrad2rgrad(x, gradients[0][0])
    by_quadric = riemannian.square().mean(dim=0)
    by_entry = (riemannian.square() / by_quadric.clamp(min=1e-16)).mean(dim=1)
    step = -10 * lr / len(x) ** 0.5 * riemannian / (torch.outer(by_entry, by_quadric).sqrt() + 1e-8)
    frame, _ = trajectory(x, rest, gradients[:1], lr=lr)
    expected = SLOW.retr(x, SLOW.proju(x, step))
    assert float((frame - expected).norm()) <= 10 * float(step.norm()) ** 2 + 1e-6


def test_free_coefficients_have_the_adam_of_torch():
    generator = torch.Generator().manual_seed(0)
    x, rest = torch.eye(4, 2).double(), torch.randn(2, 3, generator=generator, dtype=torch.float64)
    gradients = [(torch.zeros(4, 2).double(), torch.randn(2, 3, generator=generator, dtype=torch.float64)) for _ in range(5)]
    expected = torch.nn.Parameter(rest.clone())
    adam = torch.optim.Adam([expected], lr=0.1)
    for _, by_rest in gradients:
        expected.grad = by_rest.clone()
        adam.step()
    np.testing.assert_allclose(trajectory(x, rest, gradients)[1], expected.detach(), rtol=1e-6)


@given(run=runs(), power=st.integers(0, 6))
def test_the_size_of_gradients_does_not_matter_to_frame_adam(run, power):
    x, rest, gradients = run
    large, larger = ([(size * a, size * b) for a, b in gradients] for size in (1e3, 10.0 ** (3 + power)))
    np.testing.assert_allclose(trajectory(x, rest, larger)[0], trajectory(x, rest, large)[0], atol=1e-5)


def test_a_quadric_of_small_gradients_moves_as_far_as_the_others():
    generator = torch.Generator().manual_seed(0)
    x = torch.linalg.qr(torch.randn(300, 3, generator=generator, dtype=torch.float64)).Q
    gradient = torch.randn(300, 3, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 1e-3, 1e3])
    gradient = gradient - x @ (x.mT @ gradient)  # no column turns another one
    frame, _ = trajectory(x, torch.zeros(3, 1).double(), [(gradient, torch.zeros(3, 1).double())], lr=0.01)
    moved = (frame - x).norm(dim=0)
    assert float(moved.min() / moved.max()) > 0.8


@pytest.mark.parametrize("n_entries", [30, 300, 3000])
def test_a_step_of_frame_adam_is_as_long_in_a_wide_frame_as_in_a_narrow_one(n_entries):
    generator = torch.Generator().manual_seed(0)
    x = torch.linalg.qr(torch.randn(n_entries, 3, generator=generator, dtype=torch.float64)).Q
    gradient = torch.randn(n_entries, 3, generator=generator, dtype=torch.float64)
    frame, _ = trajectory(x, torch.zeros(3, 1).double(), [(gradient, torch.zeros(3, 1).double())], lr=1e-4)
    np.testing.assert_allclose((frame - x).norm(dim=0), 10 * 1e-4, rtol=0.2)


def test_float32_frames_stay_orthonormal_under_frame_adam():
    generator = torch.Generator().manual_seed(0)
    x = torch.linalg.qr(torch.randn(2000, 30, generator=generator)).Q
    gradients = ((torch.randn(2000, 30, generator=generator), torch.zeros(30, 1)) for _ in range(200))
    frame, _ = trajectory(x.mT.contiguous().mT, torch.zeros(30, 1), gradients, InPlaceStiefel(), lr=0.03)
    assert orthonormality_error(frame.double()) < 1e-5
