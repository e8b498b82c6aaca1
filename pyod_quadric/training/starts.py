"""Starting quadrics for training: random, in closed form, or given."""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor

from pyod_quadric.geometry.frames import orthonormalized
from pyod_quadric.geometry.packing import features_of_packed_size, packed_size, unpack
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.model.closed_form import feature_moments, hs_solution, warn_if_underdetermined

# The closed form decomposes a matrix of the size of the packed features. That takes 20 s at 100 features on two cores, and
# grows with the sixth power.
SPECTRAL_FEATURES = 100


def starting_quadrics(
    init: Literal["auto", "spectral", "random"] | Quadrics,
    blocks: Iterable[Tensor],
    n_quadrics: int,
    n_features: int,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
) -> Quadrics:
    """Return starting quadrics, by name.

    Parameters
    ----------
    init : {"auto", "spectral", "random"} or Quadrics
        The closed form, a random frame, or given quadrics. "auto" is the closed form up to 100 features and a random frame
        above, where the closed form takes too long.
    blocks : iterable of Tensor of shape (?, d)
        Rows in working coordinates, read only for the closed form.
    n_quadrics, n_features : int
    generator : torch.Generator
        For the random frame; the result is on its device.
    dtype : torch.dtype, default=torch.float32

    Examples
    --------
    >>> import torch
    >>> generator = torch.Generator().manual_seed(0)
    >>> starting_quadrics("auto", [torch.randn(50, 3, generator=generator)], 2, 3, generator)
    Quadrics(n_quadrics=2, n_features=3, dtype=torch.float32, device='cpu')
    """
    check_n_quadrics(n_quadrics, n_features)
    if isinstance(init, Quadrics):
        check_given(init, n_quadrics, n_features)
        return init.to(dtype=dtype, device=generator.device)
    if init not in ("auto", "spectral", "random"):
        raise ValueError(f"init must be 'auto', 'spectral', 'random' or Quadrics, got {init!r}")
    if init == "random" or (init == "auto" and n_features > SPECTRAL_FEATURES):
        return random_quadrics(n_quadrics, n_features, generator, dtype)
    quadrics = spectral_quadrics(blocks, n_quadrics)
    if quadrics.n_features != n_features:
        raise ValueError(f"the blocks must have {n_features} features, got {quadrics.n_features}")
    return quadrics.to(dtype=dtype, device=generator.device)


def random_quadrics(
    n_quadrics: int, n_features: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> Quadrics:
    """Return quadrics with a random HS-orthonormal frame, uniform on the Stiefel manifold, and no linear or constant part.

    Examples
    --------
    >>> import torch
    >>> quadrics = random_quadrics(3, 4, torch.Generator().manual_seed(0), torch.float64)
    >>> bool(torch.allclose(quadrics.hs_inner(quadrics), torch.eye(3, dtype=torch.float64)))
    True
    """
    check_n_quadrics(n_quadrics, n_features)
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, such as torch.Generator().manual_seed(0), got {generator!r}")
    columns = torch.randn(packed_size(n_features), n_quadrics, generator=generator, dtype=dtype, device=generator.device)
    quadratic = unpack(orthonormalized(columns).T)
    return Quadrics(quadratic, quadratic.new_zeros(n_quadrics, n_features), quadratic.new_zeros(n_quadrics))


def spectral_quadrics(blocks: Iterable[Tensor], n_quadrics: int) -> Quadrics:
    """Return the HS-orthonormal quadrics with the smallest mean squared values, from one pass over blocks of rows.

    The streaming version of :func:`pyod_quadric.spectral_fit` for working coordinates, which are centred and scaled already. It
    warns in the same cases.

    Parameters
    ----------
    blocks : iterable of Tensor of shape (?, d)
    n_quadrics : int
        The number m of quadrics, at most d (d + 1) / 2. The cost grows with the sixth power of d: 20 seconds at 100
        features, so work in fewer principal coordinates.

    Examples
    --------
    >>> import torch
    >>> angle = torch.arange(12.0)
    >>> circle = torch.stack([angle.cos(), angle.sin()], dim=1)
    >>> found = spectral_quadrics([circle[:5], circle[5:]], 1).to(dtype=torch.float32)
    >>> bool(found.values(circle).abs().max() < 1e-5)
    True
    """
    moments, n = feature_moments(blocks)
    d = features_of_packed_size(len(moments)) - 1
    check_n_quadrics(n_quadrics, d)
    mean = moments[-1, -1 - d : -1]
    variances = torch.linalg.eigvalsh(moments[-1 - d : -1, -1 - d : -1] - torch.outer(mean, mean))
    warn_if_underdetermined(n, variances, mean, torch.finfo(torch.float32).eps)
    return hs_solution(moments, n_quadrics)


def check_n_quadrics(n_quadrics: int, n_features: int) -> None:
    """Raise a ValueError if this many quadrics cannot be orthonormal."""
    if not 1 <= n_quadrics <= packed_size(n_features):
        raise ValueError(
            f"n_quadrics must be from 1 to d (d + 1) / 2 = {packed_size(n_features)} for d = {n_features} features, since no "
            f"more can be orthonormal; got {n_quadrics}"
        )


def check_given(init: Quadrics, n_quadrics: int, n_features: int) -> None:
    """Raise a ValueError if given quadrics have the wrong number or dimension."""
    if (init.n_quadrics, init.n_features) != (n_quadrics, n_features):
        raise ValueError(f"init must hold {n_quadrics} quadrics in {n_features} working coordinates, got {init}")
