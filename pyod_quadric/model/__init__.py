"""What a fit has learnt, and its parts.

``moments``
    means and covariances that can be added and subtracted
``linear``
    the linear part: a Mahalanobis distance with variances of held-out rows
``neighbors``
    distances to the nearest rows of the fit
``norms``
    the norms of rows, if rows are normalised
``coordinates``
    working coordinates, which make fits equivariant
``closed_form``
    quadrics in closed form: kernel PCA, its Hilbert-Schmidt version, Taubin's version
``model``
    :class:`Model`: scores, explanations, projections
``calibration``
    from scores to p-values, probabilities and drift
``blocks``
    a function of the model, applied to all rows block by block
``module``
    the fitted score as a torch module and as an ONNX graph
``saved``
    fitted detectors as files without code
``folder``
    fitted detectors as folders of a model hub
``pickled``
    fitted detectors in plain types, for pickle, joblib and skops
"""

from pyod_quadric.model.model import Model

__all__ = ["Model"]
