"""From rows to a model: folds, evidence, row weights.

``preparation``
    standardising columns and normalising rows
``copies``
    duplicate rows, which are held out together
``folds``
    the rows of a fit, in folds
``evidence``
    the weight of each quadric
``cross_fit``
    quadrics fitted to all rows, and to the complement of each fold
``components``
    the coordinates of the quadrics: number and axes
``neighbors``
    the rows kept as neighbours of new ones, and their weight
``local_means``
    axes along which rows are in clusters, for the neighbours
``relatives``
    a search for rows that look like groups although no groups were given
``row_weights``
    the weight of each row
``fit``
    the whole fit, in passes over the rows
``comparison``
    :func:`compare_constraints`: the default, its parts, and training with penalty and on the manifold, on the same rows
``dimension``
    the number of quadrics, from the variances along principal axes
"""
