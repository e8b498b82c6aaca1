"""A fitted detector as a folder for model hubs: numbers, a configuration, and a model card.

Only ``model.safetensors``, the file of :mod:`pyod_quadric.model.saved`, is read when a model is loaded. ``config.json``
describes it for people and for hubs, which count downloads by it. ``README.md`` is written once and never overwritten.
"""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pyod_quadric.model.saved import FittedState, to_bytes
from pyod_quadric.parameters import Parameters, declarations
from pyod_quadric.storage.atomic import write_atomically

MODEL_FILE, CONFIG_FILE, CARD_FILE = "model.safetensors", "config.json", "README.md"
LIBRARY = "pyod-quadric"

CARD = """\
---
library_name: {library}
tags:
- anomaly-detection
- outlier-detection
- pyod
---

# Outlier detector

A `{detector}` of `{library}` {version}: scores of rows with {n_features} features, higher for more abnormal ones, by their
distance to a manifold that was learnt from {n_rows} rows.

## Use

```python
from huggingface_hub import snapshot_download
from pyod_quadric import {detector}

detector = {detector}.from_pretrained(snapshot_download("OWNER/NAME"))  # or a local folder
scores = detector.decision_function(rows)  # (n, {n_features})
p_values = detector.predict_pvalue(rows)
labels = detector.predict(rows)  # 1 where the score is above {threshold:.6g}
```

No code is loaded with it, only numbers and texts.

## The fit

| | |
|---|---|
| rows, features | {n_rows}, {n_features} |
| rows above the threshold, {threshold:.6g} | {n_outliers} |
| median score of rows that were held out | {median:.6g} |
| 99th percentile | {high:.6g} |
| quadrics, linear part, neighbours | {n_quadrics}, {linear}, {n_neighbors} |
| rows normalised | {normalize} |
| fitted with | {versions} |

Parameters that are not the defaults:

```json
{changed}
```
{names}
## Limits

- {privacy}
- Scores are about rows of the same kind as those of the fit: the same encoder, the same preprocessing. P-values hold for new
  rows that are exchangeable with those.
- To be written by you: what the rows are, where they come from, and for what the detector is not to be used.
"""
KEPT_ROWS = """\
The model holds {n_neighbors} rows of the fit in principal coordinates, from which they can be made again in part or in whole;
  `score_function="linear+quadrics"` keeps none."""
NO_ROWS = "The model holds no rows of the fit."
GROUPS = " It holds hashes of the names of their groups, by which a known name can be recognised."
NAMES = """
The features, in order:

```json
{names}
```
"""


def save_folder(folder: str | PathLike[str], state: FittedState, parameters: Mapping[str, Any], detector: str) -> None:
    """Write a fitted state, its configuration, and a model card unless there is one.

    Parameters
    ----------
    folder : path
        Created if missing.
    state : FittedState
    parameters : dict
        The parameters of the detector.
    detector : str
        The name of its class.
    """
    target = Path(folder)
    content = to_bytes(state, parameters)  # raises before anything is written
    config = json.dumps(configuration(state, parameters, detector), indent=2, default=str)
    target.mkdir(parents=True, exist_ok=True)
    write_atomically(target / MODEL_FILE, [content])
    write_atomically(target / CONFIG_FILE, [config.encode() + b"\n"])
    if not (target / CARD_FILE).exists():
        write_atomically(target / CARD_FILE, [model_card(state, parameters, detector).encode()])


def model_file(folder: str | PathLike[str]) -> Path:
    """Return the path of the model file, or raise a FileNotFoundError that says how such folders are made."""
    path = Path(folder) / MODEL_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} must be a local folder that save_pretrained has written, with a file {MODEL_FILE}; of a model on a hub "
            "get such a folder by huggingface_hub.snapshot_download('OWNER/NAME')"
        )
    return path


def configuration(state: FittedState, parameters: Mapping[str, Any], detector: str) -> dict[str, Any]:
    """Return the content of ``config.json``."""
    return {
        "library_name": LIBRARY,
        "detector": detector,
        "n_features": len(state.model.coordinates.mean),
        "feature_names": state.feature_names,
        "threshold": state.threshold,
        "parameters": dict(parameters),
        "versions": state.versions,
    }


def model_card(state: FittedState, parameters: Mapping[str, Any], detector: str) -> str:
    """Return the text of a model card, with the facts of the fit and gaps for the author to fill in."""
    model = state.model
    n_neighbors = 0 if model.neighbors is None else len(model.neighbors.prototypes)
    usual = declarations(Parameters)
    changed = {name: value for name, value in parameters.items() if value != usual[name].default}
    median, high = np.quantile(state.decision_scores, [0.5, 0.99])
    return CARD.format(
        library=LIBRARY,
        detector=detector,
        version=state.versions.get("pyod_quadric_version", ""),
        versions=", ".join(f"{name.removesuffix('_version')} {version}" for name, version in state.versions.items()),
        n_rows=len(state.decision_scores),
        n_features=len(model.coordinates.mean),
        n_outliers=int(state.labels.sum()),
        threshold=state.threshold,
        median=median,
        high=high,
        n_quadrics=0 if model.quadrics is None else len(model.quadrics),
        linear="no" if model.linear_part is None else "yes",
        n_neighbors=n_neighbors,
        normalize="yes" if model.normalize else "no",
        changed=json.dumps(changed, default=str),
        names="" if state.feature_names is None else NAMES.format(names=json.dumps(state.feature_names)),
        privacy=(KEPT_ROWS.format(n_neighbors=n_neighbors) if n_neighbors else NO_ROWS) + GROUPS * (state.groups is not None),
    )
