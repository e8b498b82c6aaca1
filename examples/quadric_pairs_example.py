"""Draw three pairs of quadrics in R³ and the curves in which they meet, like the paper's first figure.

From left to right: an elliptic paraboloid and a hyperbolic cylinder; an elliptic cone and an elliptic cylinder; a one-sheeted
hyperboloid and a hyperbolic paraboloid.

Run it with ``python -m examples.quadric_pairs_example``; it prints the lengths of the curves and saves a picture.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.colors import LightSource
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from torch import Tensor

from examples._drawing import draw_segments, intersection_segments, set_axes
from pyod_quadric import Quadrics, second_order_distance

HALF_WIDTH = 1.5  # of the cube in which everything is drawn
COLOURS = "#e69f00", "#56b4e9"  # for colour-blind people, too


@dataclass(frozen=True)
class Surface:
    """A quadric without mixed terms, ``squares·(x², y², z²) + linear·(x, y, z) + constant = 0``, and meshes of it.

    Parameters
    ----------
    name, equation : str
    squares, linear : tuple of three floats
    constant : float
    meshes : list of arrays of shape (rows, columns, 3)
        Points of the surface, one array for each of its sheets.
    """

    name: str
    equation: str
    squares: tuple[float, float, float]
    linear: tuple[float, float, float]
    constant: float
    meshes: list[np.ndarray]


def quadrics_of(pair: tuple[Surface, Surface]) -> Quadrics:
    """Return the two surfaces as quadrics."""
    return Quadrics(
        quadratic=torch.stack([torch.diag(torch.tensor(surface.squares, dtype=torch.float64)) for surface in pair]),
        linear=torch.tensor([surface.linear for surface in pair], dtype=torch.float64),
        constant=torch.tensor([surface.constant for surface in pair], dtype=torch.float64),
    )


def paraboloid_and_cylinder() -> tuple[Surface, Surface]:
    """Return an elliptic paraboloid and a hyperbolic cylinder."""
    r, angle = _grid((0, HALF_WIDTH), (0, 2 * np.pi))
    bowl = _mesh(r * np.cos(angle), r / np.sqrt(2) * np.sin(angle), 1.2 * (r**2 - 1))
    u, z = _grid((-np.arccosh(3), np.arccosh(3)), (-HALF_WIDTH, HALF_WIDTH))
    sheets = [_mesh(sign * 0.5 * np.cosh(u), 0.5 * np.sinh(u), z) for sign in (-1, 1)]
    return (
        Surface("elliptic paraboloid", "z = 1.2 (x² + 2y² − 1)", (1.2, 2.4, 0), (0, 0, -1), -1.2, [bowl]),
        Surface("hyperbolic cylinder", "x² − y² = 0.25", (1, -1, 0), (0, 0, 0), -0.25, sheets),
    )


def cone_and_cylinder() -> tuple[Surface, Surface]:
    """Return an elliptic cone and an elliptic cylinder across it."""
    z, angle = _grid((-HALF_WIDTH, HALF_WIDTH), (0, 2 * np.pi))
    cone = _mesh(z * np.cos(angle), z / np.sqrt(2) * np.sin(angle), z)
    y, turn = _grid((-HALF_WIDTH, HALF_WIDTH), (0, 2 * np.pi))
    tube = _mesh(0.7 * np.cos(turn), y, 1.1 * np.sin(turn))
    return (
        Surface("elliptic cone", "x² + 2y² = z²", (1, 2, -1), (0, 0, 0), 0, [cone]),
        Surface("elliptic cylinder", "x²/0.49 + z²/1.21 = 1", (1 / 0.49, 0, 1 / 1.21), (0, 0, 0), -1, [tube]),
    )


def hyperboloid_and_saddle() -> tuple[Surface, Surface]:
    """Return a one-sheeted hyperboloid and a hyperbolic paraboloid."""
    z, angle = _grid((-HALF_WIDTH, HALF_WIDTH), (0, 2 * np.pi))
    radius = np.sqrt(0.45 + 0.8 * z**2)
    waist = _mesh(radius * np.cos(angle), radius * np.sin(angle), z)
    x, y = _grid((-HALF_WIDTH, HALF_WIDTH), (-HALF_WIDTH, HALF_WIDTH))
    saddle = _mesh(x, y, 0.6 * (x**2 - y**2))
    return (
        Surface("one-sheeted hyperboloid", "x² + y² = 0.8z² + 0.45", (1, 1, -0.8), (0, 0, 0), -0.45, [waist]),
        Surface("hyperbolic paraboloid", "z = 0.6 (x² − y²)", (0.6, -0.6, 0), (0, 0, -1), 0, [saddle]),
    )


PAIRS = (paraboloid_and_cylinder, cone_and_cylinder, hyperboloid_and_saddle)


def _grid(first: tuple[float, float], second: tuple[float, float], n: int = 25) -> tuple[np.ndarray, np.ndarray]:
    """Return the two parameters of a mesh, each of shape (n, n)."""
    rows, columns = np.meshgrid(np.linspace(*first, n), np.linspace(*second, n), indexing="ij")
    return rows, columns


def _mesh(*coordinates: np.ndarray) -> np.ndarray:
    """Return points (rows, columns, 3)."""
    return np.stack(np.broadcast_arrays(*coordinates), axis=-1)


def draw(pairs: list[tuple[Surface, Surface]], curves: list[Tensor]) -> Figure:
    """Draw each pair of surfaces with its curve."""
    figure = plt.figure(figsize=(12, 5.2), layout="constrained")
    for panel, pair, curve in zip(figure.subfigures(1, 3), pairs, curves, strict=True):
        ax = panel.subplots(subplot_kw={"projection": "3d"})
        draw_surfaces(ax, pair)
        draw_segments(ax, curve, color="darkblue", linewidth=2.5, zorder=2)
        ax.computed_zorder = False  # the curve lies over both surfaces
        set_axes(ax, HALF_WIDTH)
        ax.view_init(elev=24, azim=-72)
        handles = [plt.Rectangle((0, 0), 1, 1, color=colour, alpha=0.6) for colour in COLOURS]
        labels = [f"{surface.name}, {surface.equation}" for surface in pair]
        handles.append(plt.Line2D([], [], color="darkblue", linewidth=2.5))
        panel.legend(handles, [*labels, "intersection"], loc="outside lower center", frameon=False)
    return figure


def draw_surfaces(ax: Axes3D, pair: tuple[Surface, Surface]) -> None:
    """Draw the meshes of both surfaces as one collection, so that faces hide each other by depth and not by surface."""
    faces = [np.concatenate([_faces(mesh) for mesh in surface.meshes]) for surface in pair]
    colours = np.repeat(COLOURS, [len(part) for part in faces])
    light = LightSource(azdeg=225, altdeg=50)
    style = {"alpha": 0.45, "linewidth": 0.3, "shade": True, "lightsource": light}
    ax.add_collection3d(Poly3DCollection(np.concatenate(faces), facecolors=colours, edgecolors=colours, **style))


def _faces(mesh: np.ndarray) -> np.ndarray:
    """Return the quadrilaterals (n, 4, 3) of a mesh."""
    corners = [mesh[:-1, :-1], mesh[1:, :-1], mesh[1:, 1:], mesh[:-1, 1:]]
    return np.stack(corners, axis=2).reshape(-1, 4, 3)


def main(picture: Path | None = None, quiet: bool = False) -> dict[str, float]:
    """Draw the pairs; return for each how far the points of its curve are from the two quadrics at most."""
    pairs = [build() for build in PAIRS]
    curves = [intersection_segments(quadrics_of(pair), HALF_WIDTH) for pair in pairs]
    if picture:
        figure = draw(pairs, curves)
        figure.savefig(picture, dpi=80)
        plt.close(figure)
    errors = {}
    for pair, curve in zip(pairs, curves, strict=True):
        name = " and ".join(surface.name for surface in pair)
        errors[name] = float(second_order_distance(curve.flatten(0, 1), quadrics_of(pair)).max())
        if not quiet:
            length = float((curve[:, 1] - curve[:, 0]).norm(dim=1).sum())
            print(f"{name}: curve of length {length:.2f} in the cube, at most {errors[name]:.1g} from both")
    if not quiet:
        print(f"picture: {picture}")
    return errors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=Path("quadric_pairs.png"), help="where to save the picture")
    main(parser.parse_args().picture)
