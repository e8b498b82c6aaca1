"""Outlier detection by intersections of quadrics, for PyOD.

The detector learns the data manifold as an intersection of quadrics, the zero sets of ``f(x) = xᵀ A x + b·x + c``, and scores a
point by its distance to them (Pavutnitskiy et al., AISTATS 2022).

The rooms, from the ground up; each imports only from those above it:

``allowed``, ``parameters``
    every parameter of the detector and of training, declared once
``progress``
    progress bars and timings of long computations
``geometry``
    quadrics as tensors: packing, values and gradients, distances, projection, zero sets
``parallel``
    processes, threads and devices
``storage``
    atomic files, their container, checkpoints
``data``
    rows from any source: arrays, tensors, files, folders, loaders, streams
``model``
    the fitted model and its parts: coordinates, linear part, closed forms, score, files
``training``
    descent under an orthonormality constraint, by penalty or on the Stiefel manifold
``fitting``
    the fit, from rows to a model: folds, evidence, row weights
``similarity``
    robust similarity and identification rate, the paper's second half
``plotting``
    pictures
``export``
    the fitted score as a torch module
``detector``
    :class:`QuadricDetector`, PyOD's interface
``report``
    an HTML report about rows
``cluster``
    scores on many workers, each of which reads the model once
``adengine``
    registration in PyOD's ADEngine
``cli``
    the command ``pyod-quadric``

Names are imported when they are first used, so that the command line can parse its arguments before torch is loaded.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyod_quadric._version import __version__ as __version__

if TYPE_CHECKING:
    from pyod_quadric.adengine import register as register
    from pyod_quadric.cluster import batch_scorer as batch_scorer
    from pyod_quadric.cluster import score_dask as score_dask
    from pyod_quadric.data.finite import finite_rows as finite_rows
    from pyod_quadric.detector import QuadricDetector as QuadricDetector
    from pyod_quadric.fitting.comparison import Comparison as Comparison
    from pyod_quadric.fitting.comparison import ConstraintRun as ConstraintRun
    from pyod_quadric.fitting.comparison import compare_constraints as compare_constraints
    from pyod_quadric.fitting.dimension import Spectrum as Spectrum
    from pyod_quadric.fitting.dimension import principal_spectrum as principal_spectrum
    from pyod_quadric.geometry.distances import algebraic_distance as algebraic_distance
    from pyod_quadric.geometry.distances import first_order_distance as first_order_distance
    from pyod_quadric.geometry.distances import second_order_distance as second_order_distance
    from pyod_quadric.geometry.exact import geometric_distance as geometric_distance
    from pyod_quadric.geometry.quadrics import Quadrics as Quadrics
    from pyod_quadric.model.closed_form import spectral_fit as spectral_fit
    from pyod_quadric.model.coordinates import WorkingCoordinates as WorkingCoordinates
    from pyod_quadric.model.coordinates import fit_working_coordinates as fit_working_coordinates
    from pyod_quadric.parameters import TrainingOptions as TrainingOptions
    from pyod_quadric.similarity.cutoffs import CutoffAtRate as CutoffAtRate
    from pyod_quadric.similarity.cutoffs import threshold_table as threshold_table
    from pyod_quadric.similarity.identification import IdentificationRate as IdentificationRate
    from pyod_quadric.similarity.identification import identification_curve as identification_curve
    from pyod_quadric.similarity.identification import identification_rate as identification_rate
    from pyod_quadric.similarity.protocol import HalfHalfResult as HalfHalfResult
    from pyod_quadric.similarity.protocol import half_half_protocol as half_half_protocol
    from pyod_quadric.similarity.robust import RobustSimilarity as RobustSimilarity
    from pyod_quadric.similarity.robust import outlier_scores as outlier_scores
    from pyod_quadric.similarity.robust import robust_similarity as robust_similarity
    from pyod_quadric.training.loop import Trained as Trained
    from pyod_quadric.training.loop import train as train
    from pyod_quadric.training.manifold import CholeskyStiefel as CholeskyStiefel
    from pyod_quadric.training.starts import random_quadrics as random_quadrics
    from pyod_quadric.training.starts import spectral_quadrics as spectral_quadrics
    from pyod_quadric.training.starts import starting_quadrics as starting_quadrics

# Where each public name is.
_PLACES = {
    "adengine": ["register"],
    "cluster": ["batch_scorer", "score_dask"],
    "data.finite": ["finite_rows"],
    "detector": ["QuadricDetector"],
    "fitting.comparison": ["Comparison", "ConstraintRun", "compare_constraints"],
    "fitting.dimension": ["Spectrum", "principal_spectrum"],
    "geometry.distances": ["algebraic_distance", "first_order_distance", "second_order_distance"],
    "geometry.exact": ["geometric_distance"],
    "geometry.quadrics": ["Quadrics"],
    "model.closed_form": ["spectral_fit"],
    "model.coordinates": ["WorkingCoordinates", "fit_working_coordinates"],
    "parameters": ["TrainingOptions"],
    "similarity.cutoffs": ["CutoffAtRate", "threshold_table"],
    "similarity.identification": ["IdentificationRate", "identification_curve", "identification_rate"],
    "similarity.protocol": ["HalfHalfResult", "half_half_protocol"],
    "similarity.robust": ["RobustSimilarity", "outlier_scores", "robust_similarity"],
    "training.loop": ["Trained", "train"],
    "training.manifold": ["CholeskyStiefel"],
    "training.starts": ["random_quadrics", "spectral_quadrics", "starting_quadrics"],
}
_MODULES = {name: f"{__name__}.{module}" for module, names in _PLACES.items() for name in names}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return [*globals(), *__all__]
