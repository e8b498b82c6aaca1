"""The fitted score as a torch module: :class:`ScoreModule`, of :mod:`pyod_quadric.model.module`."""

from pyod_quadric.model.module import ScoreModule

__all__ = ["ScoreModule"]
