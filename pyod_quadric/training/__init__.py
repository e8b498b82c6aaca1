"""Descent under an orthonormality constraint; the only room that imports geoopt.

``objective``
    the mean distance and its gradient, written out
``manifold``
    orthonormal frames, and a fast Stiefel manifold for geoopt
``riemannian``
    the part that geoopt provides, with a replacement if geoopt cannot be imported
``constraints``
    orthonormality by penalty or on the manifold: the one place where the two differ
``starts``
    starting quadrics
``state``
    the state of a run, as checkpoints hold it
``loop``
    :func:`train`
"""

from pyod_quadric.parameters import TrainingOptions
from pyod_quadric.training.loop import Trained, train

__all__ = ["Trained", "TrainingOptions", "train"]
