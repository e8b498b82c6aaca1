"""scikit-learn's own checks of an estimator hold, but for those that PyOD's labels rule out."""

import pytest
from sklearn.utils.estimator_checks import check_estimator

from pyod_quadric import QuadricDetector

LABELS = "PyOD's labels are 0 and 1, scikit-learn's 1 and -1"
EXPECTED = {"check_outliers_train": LABELS, "check_outliers_fit_predict": LABELS}


@pytest.mark.filterwarnings(
    "ignore:Function fit_predict is deprecated:FutureWarning"
)  # PyOD says so, and scikit-learn calls it
@pytest.mark.parametrize(
    "detector",
    [QuadricDetector(), QuadricDetector.from_paper(n_quadrics=1, normalize=False, epoch_num=1)],
    ids=["closed form", "trained"],
)
def test_only_labels_differ_from_scikit_learn(detector):
    results = check_estimator(detector, expected_failed_checks=EXPECTED, on_skip=None)
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == set(EXPECTED)
    assert sum(result["status"] == "passed" for result in results) > 35
