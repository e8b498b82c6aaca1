"""A service that scores rows over HTTP, by FastAPI and onnxruntime; neither torch nor PyOD is imported where it runs.

The model is what ``detector.to_onnx("scores.onnx")`` has written: preprocessing, scores and p-values in one file. Run it with

    python -m examples.serving_example scores.onnx

and ask it with

    curl localhost:8000/score -H 'Content-Type: application/json' -d '{"rows": [[0.1, 0.2, 0.3]]}'

It needs ``pip install fastapi uvicorn onnxruntime``.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

MOST_ROWS = 10_000  # of one request


class Rows(BaseModel):
    """What a request holds: rows (n, d)."""

    rows: list[list[float]] = Field(min_length=1, max_length=MOST_ROWS)


class Scores(BaseModel):
    """What an answer holds, of each row: higher scores are more abnormal, and outliers are those above the threshold."""

    scores: list[float]
    p_values: list[float]
    outliers: list[bool]


def create_app(path: str | Path) -> FastAPI:
    """Return the service for a model file; requests share one session, which may run in many threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # requests are small, and there may be many at once
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (rows,) = session.get_inputs()
    n_features = rows.shape[1]
    dtype = np.float64 if rows.type == "tensor(double)" else np.float32
    properties = session.get_modelmeta().custom_metadata_map
    threshold = float(properties["threshold"])
    app = FastAPI(title="Outlier scores")

    @app.get("/model")
    def model() -> dict[str, Any]:
        return {"n_features": n_features, **properties}

    @app.post("/score")
    def score(request: Rows) -> Scores:
        wrong = [place for place, row in enumerate(request.rows) if len(row) != n_features]
        if wrong:
            found = len(request.rows[wrong[0]])
            raise HTTPException(422, f"each row must have {n_features} numbers, but row {wrong[0]} has {found}")
        numbers = np.array(request.rows)
        if not np.all(np.abs(numbers) <= np.finfo(dtype).max):
            raise HTTPException(422, f"rows must be finite numbers of {dtype.__name__}")
        scores, p_values = session.run(None, {"rows": numbers.astype(dtype)})
        return Scores(scores=scores, p_values=p_values, outliers=scores > threshold)

    return app


def main() -> None:
    """Serve a model file until the process is stopped."""
    import uvicorn

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", help="a file that detector.to_onnx has written")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    uvicorn.run(create_app(arguments.path), port=arguments.port)


if __name__ == "__main__":
    main()
