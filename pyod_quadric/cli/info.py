"""``pyod-quadric info``: what is in a model file."""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from pyod_quadric.cli.errors import printable
from pyod_quadric.cli.inputs import load_model
from pyod_quadric.data.columns import listed
from pyod_quadric.detector import QuadricDetector
from pyod_quadric.geometry.quadrics import Quadrics


def run(arguments: argparse.Namespace) -> None:
    """Read the file and print what is in it."""
    content = description(load_model(arguments.model), arguments.model)
    print(json.dumps(content, indent=2) if arguments.json else as_text(content))


def description(detector: QuadricDetector, path: str) -> dict[str, Any]:
    """Return everything worth knowing about a model, in types that JSON knows."""
    coordinates, linear = detector.model_.coordinates, detector.model_.linear_part
    names = getattr(detector, "feature_names_in_", None)
    history = {name: values for name, values in detector.history_.items() if values}
    return {
        "file": {"path": path, "bytes": Path(path).stat().st_size},
        "sizes": {
            "features": int(detector.n_features_in_),
            "training_rows": len(detector.decision_scores_),
            "quadrics": detector.n_quadrics_,
            "coordinates_of_the_quadrics": len(coordinates.matrix),
            "axes_of_the_linear_part": 0 if linear is None else len(linear.variances),
            "rows_are_normalised": detector.model_.normalize,
        },
        "training": {
            "column_of_lists": getattr(detector, "list_column_", None),
            "threshold": float(detector.threshold_),
            "outliers_among_the_rows": int(detector.labels_.sum()),
            "lowest_score": float(detector.decision_scores_.min()),
            "highest_score": float(detector.decision_scores_.max()),
            "mean_weight_of_a_row": float(detector.row_weights_.mean()),
            "epochs": len(history.get("loss", [])),
            **{f"last_{name}": values[-1] if math.isfinite(values[-1]) else None for name, values in history.items()},
        },
        "parameters": {
            name: repr(value) if isinstance(value, Quadrics) else value
            for name, value in detector.get_params(deep=False).items()
        },
        "versions": dict(detector.versions_),
        "feature_names": None if names is None else [str(name) for name in names],
    }


def as_text(content: dict[str, Any]) -> str:
    """Return a description for people."""
    lines = []
    for title, part in content.items():
        if isinstance(part, dict):
            spaced = name_with_spaces if title != "parameters" else str  # those are to be typed
            lines += [f"{title}:", *(printable(f"  {spaced(name)}: {_text(value)}") for name, value in part.items())]
        else:
            lines.append(printable(f"{name_with_spaces(title)}: {'none' if part is None else listed(part)}"))
    return "\n".join(lines)


def name_with_spaces(name: str) -> str:
    """Return a key of JSON as it is written in text."""
    return name.replace("_", " ")


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "none" if value is None else str(value)
