"""From rows to a model: folds, evidence, row weights.

``preparation``
    whether columns are divided by their spread, and rows by their norms
``copies``
    rows that occur more than once, which are held out together
``folds``
    the rows as a fit sees them, in folds
``evidence``
    how much each quadric counts
``cross_fit``
    quadrics fitted to all rows, and to the complement of each fold
``components``
    the coordinates of the quadrics: how many, and which
``neighbors``
    rows that are kept as neighbours of new ones, and how much they weigh
``relatives``
    a look for rows that come in groups although nobody has said so
``row_weights``
    how much each row counts
``fit``
    everything together, in passes over the rows
``comparison``
    :func:`compare_constraints`: the default, its parts, and training with penalty and on the manifold, on the same rows
``dimension``
    how many quadrics, by the variances along principal axes
"""
