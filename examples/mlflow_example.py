"""A detector in MLflow: logged by its default serialiser, and as a model of scores and p-values without any pickle.

MLflow writes scikit-learn models with skops unless told otherwise, and skops asks which types it may trust: the detector is the
only one. As a ``pyfunc`` such a model gives labels. Scores and p-values come from a second one, which reads the file that
``detector.save`` has written; its code is this file.

Run it with ``python -m examples.mlflow_example --store DIR``; it needs ``pip install mlflow skops``.
"""

import argparse
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd

from pyod_quadric import QuadricDetector

TRUSTED = ["pyod_quadric.detector.QuadricDetector"]
REQUIREMENTS = ["pyod-quadric", "skops"]  # MLflow would write down whatever is imported here


class Scores(mlflow.pyfunc.PythonModel):
    """Scores and p-values of rows, by a model file that is kept as an artifact."""

    def load_context(self, context: Any) -> None:
        """Read the model file."""
        self.detector = QuadricDetector.load(context.artifacts["model"])

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return ``score`` and ``p_value`` of each row."""
        rows = model_input.to_numpy() if isinstance(model_input, pd.DataFrame) else model_input
        scores, p_values = self.detector.decision_function(rows), self.detector.predict_pvalue(rows)
        return pd.DataFrame({"score": scores, "p_value": p_values})


mlflow.models.set_model(Scores())  # what MLflow looks for when it runs this file as the code of a model


def main(store: Path, quiet: bool = False) -> dict[str, Any]:
    """Log a detector in two ways; return what the loaded models give for new rows, and what the detector gives."""
    rows, new = np.split(np.random.default_rng(0).normal(size=(520, 4)) ** 3, [500])
    detector = QuadricDetector().fit(rows)
    store.mkdir(parents=True, exist_ok=True)
    mlflow.set_tracking_uri(f"sqlite:///{store.absolute()}/mlflow.db")
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("outliers", artifact_location=(store / "artifacts").as_uri()))
    with mlflow.start_run():
        mlflow.log_params(detector.get_params())
        as_detector = mlflow.sklearn.log_model(
            detector, name="detector", input_example=new[:2], skops_trusted_types=TRUSTED, pip_requirements=REQUIREMENTS
        )
        detector.save(store / "model.safetensors")
        as_scores = mlflow.pyfunc.log_model(
            name="scores",
            python_model=__file__,
            artifacts={"model": str(store / "model.safetensors")},
            input_example=new[:2],
            pip_requirements=REQUIREMENTS,
        )
    found = {
        "detector": mlflow.sklearn.load_model(as_detector.model_uri).decision_function(new),
        "labels": np.asarray(mlflow.pyfunc.load_model(as_detector.model_uri).predict(new)),
        "scores": mlflow.pyfunc.load_model(as_scores.model_uri).predict(new)["score"].to_numpy(),
    }
    expected = {"detector": detector.decision_function(new), "labels": detector.predict(new)}
    expected["scores"] = expected["detector"]
    if not quiet:
        print(f"signatures, as MLflow inferred them:\n{as_detector.signature}\n{as_scores.signature}")
        for name, numbers in found.items():
            print(f"{name}: as the detector's own, {bool(np.array_equal(numbers, expected[name]))}")
    return {"found": found, "expected": expected, "signatures": [as_detector.signature, as_scores.signature]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, default=Path("mlflow"), help="a new folder for MLflow's store")
    main(parser.parse_args().store)
