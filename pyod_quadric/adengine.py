"""Registration of :class:`QuadricDetector` in ADEngine, the part of PyOD that chooses detectors.

Each ADEngine has its own knowledge base of detectors and rules, and ADEngine has no plugin discovery. So the detector has to be
registered in each engine, by :func:`register`. Other engines do not change.
"""

from copy import deepcopy
from typing import Any

from pyod_quadric._version import __version__

NAME = "QuadricDetector"
PAPER = "quadric_intersection"

# The figures are those of the table of results in the README.
ENTRY: dict[str, Any] = {
    "class_path": "pyod_quadric.QuadricDetector",
    "full_name": "Distance to an Intersection of Quadrics",
    "status": "shipped",
    "data_types": ["tabular", "embedding"],
    "category": "linear",  # where PyOD has PCA, kernel PCA and MCD
    "complexity": {
        "time": "O(n * (d^2 + k^4) + d^3 + k^6), in k <= 50 principal coordinates",
        "space": "O(n * d + d^2 + k^4)",
    },
    "strengths": [
        "ResNet18 image embeddings, 8 sets, fitted on inliers: mean ROC-AUC .812 (GMM .800, KNN .788)",
        "The same with outliers among the training rows: .787 (KNN .776, GMM .773)",
        "Tabular data, 22 sets, fitted on inliers: .900 (KPCA .891); with outliers among the rows .784 (KNN .769, GMM .764)",
        "Embeddings of faces and of handwritten numbers, people and numbers in groups: .705 (GMM .697) and .952 (KNN .911)",
        "No parameter has to be chosen, and rows need no scaling",
        "Scores do not change when embeddings are rotated, reflected, shifted or scaled",
        "Explains a score by features, and projects rows on what it has learnt",
    ],
    "weaknesses": [
        "Behind neighbours where rows are in very many topics: glosses of WordNet .705 (KNN .714)",
        "Outliers that are neighbours of each other in the training rows: the same glosses .543 (CBLOF .597)",
        "Slower than detectors that look at one feature at a time",
    ],
    "best_for": "Embeddings of images and text, and tabular data with many features that depend on each other",
    "avoid_when": "There are missing values, or speed matters more than accuracy",
    "benchmark_refs": [],
    "benchmark_rank": {},
    "paper": {"id": PAPER, "short": "Pavutnitskiy et al., AISTATS 2022"},
    "default_params": {"contamination": 0.1},
    "preprocessing_mode": "internal",
    "requires": ["torch", "pyod_quadric"],
    "version_added": f"pyod_quadric {__version__}",
}
PUBLICATION = {
    "title": "Quadric Hypersurface Intersection for Manifold Learning in Feature Space",
    "authors": "Pavutnitskiy, Ivanov, Abramov, Borovitskiy, Klochkov, Vialov, Zaikovskii, Petiushko",
    "venue": "AISTATS 2022",
    "url": "https://proceedings.mlr.press/v151/pavutnitskiy22a.html",
}
NO_HURRY: list[dict[str, Any]] = [
    {"field": "priority", "op": "in", "value": ["accuracy", "balanced"]},
    {"field": "has_nan", "op": "eq", "value": False},
]
RULES: list[dict[str, Any]] = [
    {
        "id": "quadric_embeddings",
        "conditions": [{"field": "data_type", "op": "eq", "value": "embedding"}, *NO_HURRY],
        "recommendations": [
            {"detector": NAME, "params": {}, "confidence": 0.92},
            {"detector": "GMM", "params": {}, "confidence": 0.85},
            {"detector": "KNN", "params": {}, "confidence": 0.8},
        ],
        "reason": "Embeddings: a Gaussian cloud, what is curved in it, and neighbours; the next best are the parts alone",
        "evidence": ["pyod_quadric README"],
    },
    {
        "id": "quadric_high_dim",
        "conditions": [
            {"field": "data_type", "op": "eq", "value": "tabular"},
            {"field": "n_features", "op": "gte", "value": 100},
            *NO_HURRY,
        ],
        # Above 0.9, the most that PyOD's own rules for this case say, so that it is the first of the three that are run.
        "recommendations": [{"detector": NAME, "params": {}, "confidence": 0.92}],
        "reason": "High-dimensional tabular data: features that depend on each other, as the entries of embeddings do",
        "evidence": ["pyod_quadric README"],
    },
]


def register(engine: Any) -> Any:
    """Register :class:`QuadricDetector` in an ADEngine of PyOD, which then recommends it for embeddings and many features.

    Only this engine is changed. A second call changes nothing.

    Parameters
    ----------
    engine : pyod.utils.ad_engine.ADEngine

    Returns
    -------
    The engine.

    Examples
    --------
    >>> from pyod.utils.ad_engine import ADEngine
    >>> from pyod_quadric import register
    >>> engine = register(ADEngine())
    >>> profile = {"data_type": "embedding", "n_features": 512, "has_nan": False}
    >>> engine.plan_detection(profile)["detector_name"]
    'QuadricDetector'
    """
    base: Any = getattr(engine, "kb", None)
    if not (hasattr(base, "algorithms") and hasattr(base, "routing_rules") and hasattr(base, "papers")):
        raise TypeError(f"engine must be an ADEngine (pyod.utils.ad_engine), which has a knowledge base, got {engine!r}")
    base.algorithms[NAME] = deepcopy(ENTRY)
    base.papers[PAPER] = dict(PUBLICATION)
    ours = {rule["id"] for rule in RULES}
    others = [rule for rule in base.routing_rules["rules"] if rule.get("id") not in ours]
    base.routing_rules["rules"] = others + deepcopy(RULES)
    return engine
