"""From rows to a model: folds, evidence, row weights.

``parameters``
    the detector's parameters as options of a fit
``folds``
    the rows as a fit sees them, in folds
``evidence``
    how much each quadric counts
``fit``
    everything together, in passes over the rows
``dimension``
    how many quadrics, by the variances along principal axes
"""
