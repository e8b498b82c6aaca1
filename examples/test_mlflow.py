"""Detectors go through MLflow; it is too heavy for CI, so this runs where somebody has installed it."""

import numpy as np
import pytest

pytest.importorskip("mlflow.sklearn", reason="MLflow is not installed")
pytest.importorskip("skops")
pytestmark = pytest.mark.filterwarnings("default")  # many packages, and their own warnings


def test_models_of_both_kinds_score_like_the_detector(tmp_path):
    from examples import mlflow_example

    results = mlflow_example.main(tmp_path / "store", quiet=True)
    assert results["found"].keys() == results["expected"].keys()
    for name, numbers in results["expected"].items():
        np.testing.assert_array_equal(results["found"][name], numbers, err_msg=name)
    as_detector, as_scores = results["signatures"]
    assert as_detector.inputs.inputs[0].shape == (-1, 4)
    assert [column.name for column in as_scores.outputs] == ["score", "p_value"]
