"""Shift a cloud of points and see whether the fitted conic shifts along, in the paper's base problem and in its improved one.

The base problem asks for the smallest mean squared algebraic distance under orthonormal coefficients. Its solution for a
shifted cloud is another conic, not the shifted one, because a shift changes the length of the coefficient vector. The improved
problem asks for the smallest mean order-2 distance under Hilbert-Schmidt orthonormality. Both of these go along with
isometries, and so does the solution. The closed form with the Hilbert-Schmidt inner product does too.

Run it with ``python -m examples.shifted_cloud_example``; it prints how far the fits are from shifts of each other and saves a
picture.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from pyod_quadric import Quadrics, second_order_distance, spectral_fit
from pyod_quadric.model.coordinates import fit_working_coordinates
from pyod_quadric.parameters import TrainingOptions
from pyod_quadric.training.loop import train
from pyod_quadric.training.starts import spectral_quadrics

SHIFT = torch.tensor([10.0, 0.0], dtype=torch.float64)
HALF_WIDTH = 3.0  # of the square around the cloud in which fits are compared and drawn
LEARNING_RATES = (1e-2, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6)


def generate_data(n_points: int = 100, noise: float = 0.2, seed: int = 0) -> Tensor:
    """Return points (n, 2) near an ellipse around 0."""
    generator = torch.Generator().manual_seed(seed)
    angle = 2 * torch.pi * torch.rand(n_points, generator=generator, dtype=torch.float64)
    ellipse = torch.stack([2 * torch.cos(angle), torch.sin(angle)], dim=1)
    return ellipse + noise * torch.randn(n_points, 2, generator=generator, dtype=torch.float64)


def base_fit(points: Tensor) -> Quadrics:
    """Return the exact solution of the base problem, which is kernel PCA with a quadratic kernel."""
    return spectral_fit(points, 1, inner_product="coefficient")


def closed_form_fit(points: Tensor) -> Quadrics:
    """Return the quadric with the smallest mean squared value under Hilbert-Schmidt normalisation."""
    return spectral_fit(points, 1, inner_product="hs")


def improved_fit(points: Tensor) -> Quadrics:
    """Return the trained solution of the improved problem.

    Training is in centred, scaled principal coordinates, which are the same for the cloud and its shift up to rounding. A mean
    of absolute values is least at a corner, a conic through five of the points, and descent with a constant step dances around
    it, which makes rounding errors grow. So the steps become small in several stages. With seeds 0 to 9 the order-2 distance
    then changed by less than 1e-7 in eight clouds; in two, rounding decided between neighbouring corners 3e-4 apart.
    """
    coordinates = fit_working_coordinates(lambda: [points])
    working = coordinates.transform(points)
    quadrics = spectral_quadrics([working], 1)
    for lr in LEARNING_RATES:
        quadrics = train(working, quadrics, TrainingOptions(lr=lr, epoch_num=400, batch_size=len(points))).quadrics
    return coordinates.in_input_space(quadrics)


FITS: dict[str, Callable[[Tensor], Quadrics]] = {
    "base problem": base_fit,
    "improved problem": improved_fit,
    "HS closed form": closed_form_fit,
}


def shift_difference(original: Quadrics, shifted: Quadrics, n_grid: int = 61) -> float:
    """Return the largest change of the order-2 distance, over a grid around the cloud that is shifted with it."""
    axis = torch.linspace(-HALF_WIDTH, HALF_WIDTH, n_grid, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    difference = second_order_distance(grid + SHIFT, shifted) - second_order_distance(grid, original)
    return float(difference.abs().max())


def draw(points: Tensor, fits: dict[str, tuple[Quadrics, Quadrics]], differences: dict[str, float]) -> Figure:
    """Draw the cloud (left) and its shift (right) with the conics of the base (top) and the improved problem (bottom)."""
    figure, panels = plt.subplots(2, 2, figsize=(9, 9.4), layout="constrained", sharex="col", sharey=True)
    moved = torch.eye(2, dtype=torch.float64), -SHIFT
    for row, name in zip(panels, ("base problem", "improved problem"), strict=True):
        original, shifted = fits[name]
        draw_panel(row[0], points, torch.zeros_like(SHIFT), {"#d55e00": original})
        draw_panel(row[1], points + SHIFT, SHIFT, {"#d55e00": shifted, "black": original.compose(*moved)})
        row[0].set(title=f"{name}: the cloud", ylabel="x₂")
        row[1].set(title=f"{name}: shifted by (10, 0)\nd₂ changes by up to {differences[name]:.2g}")
    for ax in panels[1]:
        ax.set_xlabel("x₁")
    figure.legend(*_legend(points), loc="outside lower center", ncols=3)
    return figure


def draw_panel(ax: Axes, points: Tensor, centre: Tensor, conics: dict[str, Quadrics]) -> None:
    """Draw points and conics, solid in red and dashed in black, in the square around a centre."""
    axis = torch.linspace(-HALF_WIDTH, HALF_WIDTH, 401, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), dim=-1) + centre
    x, y = grid[0, :, 0].numpy(), grid[:, 0, 1].numpy()
    ax.scatter(*points.T.numpy(), s=14, color="#0072b2")
    for colour, conic in conics.items():
        style = "dashed" if colour == "black" else "solid"
        values = conic.values(grid.reshape(-1, 2)).reshape(grid.shape[:2])
        ax.contour(x, y, values.numpy(), levels=[0], colors=colour, linestyles=style, linewidths=2)
    ax.set(aspect="equal", xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    ax.grid(alpha=0.3)


def _legend(points: Tensor) -> tuple[list[object], list[str]]:
    """Return handles and labels for what all panels share."""
    handles = [
        plt.Line2D([], [], color="#0072b2", marker="o", markersize=4, linestyle=""),
        plt.Line2D([], [], color="#d55e00", linewidth=2),
        plt.Line2D([], [], color="black", linewidth=2, linestyle="dashed"),
    ]
    return handles, [f"{len(points)} points", "fit to these points", "fit on the left, shifted"]


def main(picture: Path | None = None, quiet: bool = False) -> dict[str, float]:
    """Fit the cloud and its shift; return for each method by how much the order-2 distance changes."""
    points = generate_data()
    fits = {name: (fit(points), fit(points + SHIFT)) for name, fit in FITS.items()}
    differences = {name: shift_difference(*pair) for name, pair in fits.items()}
    if picture:
        figure = draw(points, fits, differences)
        figure.savefig(picture, dpi=100)
        plt.close(figure)
    if not quiet:
        print("largest change of the order-2 distance when cloud, fit and grid are shifted by (10, 0)")
        for name, difference in differences.items():
            print(f"{name:18} {difference:.2g}")
        print(f"picture: {picture}")
    return differences


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=Path("shifted_cloud.png"), help="where to save the picture")
    main(parser.parse_args().picture)
