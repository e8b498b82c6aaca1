"""Outlier detection by intersections of quadrics, for PyOD.

The data manifold is learnt as an intersection of quadrics, the zero sets of ``f(x) = xᵀ A x + b·x + c``, and a point is the
more abnormal the farther it is from them (Pavutnitskiy et al., AISTATS 2022).

The modules, from the ground up; each imports only from those above it:

``distributed``
    several processes that fit one model together
``_packing``
    symmetric matrices as vectors, Hilbert-Schmidt geometry as Euclidean geometry
``quadrics``
    :class:`Quadrics`: values, gradients, inner products, composition with maps
``distances``
    algebraic, first-order and second-order distance from points to quadrics
``geometric``
    the exact distance to a single quadric
``objective``
    the mean distance and its gradient, written out
``projection``
    the nearest point on an intersection
``moments``
    means and covariances that can be added and taken away
``lengths``
    lengths of rows that are normalised
``linear``
    the linear part: a Mahalanobis distance with variances of held-out rows
``spectral``
    quadrics in closed form: kernel PCA, its Hilbert-Schmidt version, Taubin's version
``stiefel``
    orthonormal frames, and a fast Stiefel manifold for geoopt
``constraints``
    orthonormality by penalty or on the manifold: the one place where the two differ
``initial``
    where training starts
``preprocessing``
    working coordinates, in which everything is equivariant
``sources``
    rows on disk, read a part at a time
``batches``
    rows from arrays, memory maps, files and loaders
``atomic``
    files that are whole or not there
``checkpoints``
    states of a run that survive a kill
``training``
    :func:`train`: the loop
``model``
    what a fit has learnt: scores, explanations, projections
``evidence``
    how much each quadric counts
``fitting``
    everything together, in passes over the rows
``speeds``, ``planning``
    what a fit will cost on a machine, before it starts
``spectrum``
    how many quadrics, by the variances along principal axes
``reservoir``
    a sample of a stream
``files``
    fitted detectors as files without code
``export``
    the fitted score as a torch module and as an ONNX graph
``threads``
    no more threads than cores where joblib runs several fits
``contours``
    zero sets in the plane and in space, in pieces
``plotting``
    pictures
``comparisons``
    rows that are compared: similarities, rates, scores
``identification``
    :func:`identification_rate`: genuine pairs found at a rate of false ones, tile by tile
``cutoffs``, ``half_half``
    cutoffs of outlier scores, and what they gain on data that did not choose them
``similarity``
    :class:`RobustSimilarity`: similarities without those of outliers, for any outlier score
``detector``
    :class:`QuadricDetector`, PyOD's interface
``cluster``
    :func:`batch_scorer`, :func:`score_dask`: scores on many workers, each of which reads the model once
``adengine``
    :func:`register`: what PyOD's ADEngine has to know
``cli``
    the command ``pyod-quadric``, which imports all of this
"""

from pyod_quadric._version import __version__ as __version__
from pyod_quadric.adengine import register
from pyod_quadric.cluster import batch_scorer, score_dask
from pyod_quadric.cutoffs import CutoffAtRate, threshold_table
from pyod_quadric.detector import QuadricDetector
from pyod_quadric.distances import (
    algebraic_distance,
    approximation_distance,
    first_order_distance,
    second_order_distance,
)
from pyod_quadric.geometric import geometric_distance
from pyod_quadric.half_half import HalfHalfResult, half_half_protocol
from pyod_quadric.identification import IdentificationRate, identification_curve, identification_rate
from pyod_quadric.initial import random_quadrics, spectral_quadrics, starting_quadrics
from pyod_quadric.options import TrainingOptions
from pyod_quadric.preprocessing import WorkingCoordinates, fit_working_coordinates
from pyod_quadric.quadrics import Quadrics
from pyod_quadric.similarity import RobustSimilarity, outlier_scores, robust_similarity
from pyod_quadric.spectral import spectral_fit
from pyod_quadric.spectrum import Spectrum, principal_spectrum
from pyod_quadric.stiefel import CholeskyStiefel
from pyod_quadric.training import Trained, train

__all__ = [
    "CholeskyStiefel",
    "CutoffAtRate",
    "HalfHalfResult",
    "IdentificationRate",
    "QuadricDetector",
    "Quadrics",
    "RobustSimilarity",
    "Spectrum",
    "Trained",
    "TrainingOptions",
    "WorkingCoordinates",
    "algebraic_distance",
    "approximation_distance",
    "batch_scorer",
    "first_order_distance",
    "fit_working_coordinates",
    "geometric_distance",
    "half_half_protocol",
    "identification_curve",
    "identification_rate",
    "outlier_scores",
    "principal_spectrum",
    "random_quadrics",
    "register",
    "robust_similarity",
    "score_dask",
    "second_order_distance",
    "spectral_fit",
    "spectral_quadrics",
    "starting_quadrics",
    "threshold_table",
    "train",
]
