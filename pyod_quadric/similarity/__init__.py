"""Robust similarity and identification rate: the paper's second half.

``pairs``
    rows to compare: similarities, rates, scores
``identification``
    :func:`identification_rate`: genuine pairs found at a rate of false ones, tile by tile
``cutoffs``
    cutoffs of outlier scores
``protocol``
    the gain of a cutoff, on data that did not choose it
``robust``
    :class:`RobustSimilarity`: similarities without those of outliers, for any outlier score
"""

from pyod_quadric.similarity.robust import RobustSimilarity, outlier_scores, robust_similarity

__all__ = ["RobustSimilarity", "outlier_scores", "robust_similarity"]
