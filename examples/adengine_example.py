"""Let PyOD's ADEngine investigate embeddings, with QuadricDetector among the detectors that it knows.

The rows are embeddings of scikit-learn's handwritten digits: a random layer of 256 cosine units. Those of one digit are normal,
a few of others are outliers. ADEngine profiles the rows, plans, runs three detectors, and reports; the labels are for the
evaluation at the end only.

The rows were chosen such that all detectors see the outliers. With many classes among the inliers the choice is not as good:
see the README.

Run it with ``python -m examples.adengine_example``.
"""

import argparse

import numpy as np
from pyod.utils.ad_engine import ADEngine
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from pyod_quadric import register

DIGIT = 3
N_OUTLIERS = 15


def digit_embeddings(n_units: int = 256, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return embeddings (n, n_units) of all images of one digit and of some of others, and labels, 1 for the others."""
    images, digits = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    others = rng.choice(np.flatnonzero(digits != DIGIT), N_OUTLIERS, replace=False)
    chosen = np.append(np.flatnonzero(digits == DIGIT), others)
    layer, phases = rng.normal(scale=0.25, size=(images.shape[1], n_units)), rng.uniform(0, 2 * np.pi, n_units)
    return np.cos(images[chosen] / 16 @ layer + phases), (digits[chosen] != DIGIT).astype(int)


def main(priority: str = "balanced", quiet: bool = False) -> dict[str, float]:
    """Investigate; return the ROC-AUC of each detector that was run, the first of the plan first."""
    rows, labels = digit_embeddings()
    engine = register(ADEngine())
    state = engine.investigate(rows, data_type="embedding", priority=priority)
    figures = {result["detector_name"]: float(roc_auc_score(labels, result["scores_train"])) for result in state.results}
    if not quiet:
        print("Plan: " + ", ".join(f"{plan['detector_name']} ({plan['confidence']})" for plan in state.plans))
        print(f"Why: {state.plans[0]['reason']}")
        print(f"Closest to the consensus: {state.analysis['best_detector']}\n")
        print(engine.report(state))
        print("\nROC-AUC by the labels that the engine has not seen:")
        for name, value in figures.items():
            print(f"- {name}: {value:.3f}")
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--priority", choices=["balanced", "accuracy"], default="balanced")
    main(parser.parse_args().priority)
