"""The detector's parameters: what they may be, and the options of a fit that they stand for."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, get_args

import numpy as np
from sklearn.utils.validation import check_random_state

from pyod_quadric.fitting.folds import N_FOLDS
from pyod_quadric.geometry.distances import DISTANCE_FUNCTIONS
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.parameters import Loss
from pyod_quadric.training.options import FitOptions, Init, Score, TrainingOptions

# Parameters that training has under the same name.
OF_TRAINING = (
    *("constraint", "inner_product", "orthonormality_weight", "optimizer_name", "lr", "epoch_num", "batch_size"),
    *("validation_fraction", "patience", "verbose", "checkpoint"),
)


def fit_options(parameters: Mapping[str, Any]) -> FitOptions:
    """Return parameters as options of a fit, or raise a ValueError or TypeError that says what is wrong with them."""
    _check_contamination(parameters["contamination"])
    check_sizes(parameters)
    _check_choices(parameters)
    seed = seed_of(parameters["random_state"])
    distance, loss = parameters["distance"], parameters["loss"]
    return FitOptions(
        n_quadrics=as_int(parameters["n_quadrics"]),
        n_components=as_int(parameters["n_components"]),
        normalize=parameters["normalize"],
        score=parameters["score_function"],
        distance=distance,
        init=parameters["init"],
        robust=parameters["robust"],
        seed=seed,
        training=TrainingOptions(
            distance=distance if loss is None else loss, seed=seed, **{name: parameters[name] for name in OF_TRAINING}
        ),
    )


def check_sizes(parameters: Mapping[str, Any]) -> None:
    """Raise a ValueError if a size is none: of quadrics, coordinates, or the window of a stream."""
    m, k, window = (parameters[name] for name in ("n_quadrics", "n_components", "window"))
    if not (isinstance(m, str) and m == "auto") and not (isinstance(m, Integral) and int(m) >= 1):
        raise ValueError(f"n_quadrics must be 'auto' or a whole number from 1 on, got {m!r}")
    if not (k is None or (isinstance(k, str) and k == "auto") or (isinstance(k, Real) and float(k) > 0)):
        raise ValueError(f"n_components must be 'auto', None, a whole number or a share of the variance, got {k!r}")
    if window is not None and not (isinstance(window, Integral) and int(window) >= N_FOLDS):
        raise ValueError(f"window must be None or a whole number from {N_FOLDS} on, got {window!r}")


def seed_of(random_state: Any) -> int:
    """Return a number from what scikit-learn takes as ``random_state``: a new one each time for None or a RandomState."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    return int(check_random_state(random_state).randint(2**31 - 1))


def as_int(number: Any) -> Any:
    """Return a whole number of any type as an int, and anything else as it is."""
    return int(number) if isinstance(number, Integral) else number


def _check_contamination(share: Any) -> None:
    # Any other type of number, such as NumPy's float32, PyOD takes for a thresholder.
    if not hasattr(share, "fit") and not (isinstance(share, float | int) and 0 < share <= 0.5):
        raise ValueError(f"contamination must be a float above 0 and at most 0.5, or a thresholder, got {share!r}")


def _check_choices(parameters: Mapping[str, Any]) -> None:
    for name, names in (
        ("score_function", get_args(Score)),
        ("distance", tuple(DISTANCE_FUNCTIONS)),
        ("loss", (None, *get_args(Loss))),
    ):
        if parameters[name] not in names:
            raise ValueError(f"{name} must be one of {names}, got {parameters[name]!r}")
    init, robust, normalize = (parameters[name] for name in ("init", "robust", "normalize"))
    if not isinstance(init, Quadrics) and init not in get_args(Init):
        raise ValueError(f"init must be Quadrics or one of {get_args(Init)}, got {init!r}")
    if not isinstance(robust, bool | np.bool_):
        raise ValueError(f"robust must be True or False, got {robust!r}")
    if not isinstance(normalize, bool | np.bool_) and normalize != "auto":
        raise ValueError(f"normalize must be True, False or 'auto', got {normalize!r}")
