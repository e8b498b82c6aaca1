"""Descent under an orthonormality constraint; the only room that imports geoopt.

``objective``
    the mean distance and its gradient, written out
``manifold``
    orthonormal frames, and a fast Stiefel manifold for geoopt
``riemannian``
    geoopt's part in it, or the same of our own where geoopt does not import
``constraints``
    orthonormality by penalty or on the manifold: the one place where the two differ
``starts``
    where training starts
``state``
    the state of a run, as checkpoints hold it
``loop``
    :func:`train`
"""

from pyod_quadric.parameters import TrainingOptions
from pyod_quadric.training.loop import Trained, train

__all__ = ["Trained", "TrainingOptions", "train"]
