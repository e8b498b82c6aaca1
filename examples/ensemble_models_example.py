"""Use QuadricDetector as a member of PyOD's ensembles: LSCP, FeatureBagging, SUOD, XGBOD, and with a threshold by pythresh.

The rows are points near a tilted ellipse with outliers around it, and two features of noise. XGBOD learns from the labels of
the training rows as well, the others do not.

Needs the extra ``ensemble``. Run it with ``python -m examples.ensemble_models_example``.
"""

import numpy as np
from pyod.models.base import BaseDetector
from pyod.models.feature_bagging import FeatureBagging
from pyod.models.knn import KNN
from pyod.models.lscp import LSCP
from pyod.models.suod import SUOD
from pyod.models.thresholds import KARCH
from pyod.models.xgbod import XGBOD
from pyod.utils.data import evaluate_print
from sklearn.metrics import roc_auc_score

from examples.quadric_example import CONTAMINATION, generate_data
from pyod_quadric import QuadricDetector


def noisy_data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (n, 4), of which two features are noise, and labels."""
    points, labels = generate_data(seed=seed)
    return np.hstack([points, np.random.default_rng(seed).normal(size=points.shape)]), labels


def ensembles(n_jobs: int) -> dict[str, BaseDetector]:
    """Return the ensembles, not fitted."""
    return {
        "QuadricDetector alone": QuadricDetector(contamination=CONTAMINATION),
        "its threshold by pythresh": QuadricDetector(contamination=KARCH()),
        "LSCP": LSCP([QuadricDetector(), KNN(), KNN(n_neighbors=20)], n_bins=3, contamination=CONTAMINATION, random_state=0),
        "FeatureBagging": FeatureBagging(QuadricDetector(), n_estimators=10, contamination=CONTAMINATION, random_state=0),
        # Without its random projections, approximations and schedules, which are for many members.
        "SUOD": SUOD(
            [QuadricDetector(), KNN(), KNN(n_neighbors=20)],
            contamination=CONTAMINATION,
            n_jobs=n_jobs,
            rp_flag_global=False,
            approx_flag_global=False,
            bps_flag=False,
        ),
        "XGBOD": XGBOD([QuadricDetector(), KNN()], random_state=0),
    }


def main(n_jobs: int = 2, quiet: bool = False) -> dict[str, float]:
    """Fit all of them; return the ROC-AUC of each on new rows."""
    training, training_labels = noisy_data(seed=0)
    rows, labels = noisy_data(seed=1)
    figures = {}
    for name, ensemble in ensembles(n_jobs).items():
        ensemble.fit(training, training_labels) if name == "XGBOD" else ensemble.fit(training)
        scores = ensemble.decision_function(rows)
        figures[name] = float(roc_auc_score(labels, scores))
        if not quiet:
            evaluate_print(name, labels, scores)
            print(f"  {int(ensemble.predict(rows).sum())} of {len(rows)} new rows are outliers to it, {labels.sum()} are")
    return figures


if __name__ == "__main__":  # needed, since SUOD's workers import this file
    main()
