"""Arguments of ``fit`` as nobody means them: rows of any kind, groups, and parameters."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas
import scipy.sparse
import torch
from hypothesis import strategies as st

from pyod_quadric import QuadricDetector
from tests.support.mutants import FLOATS, TEXTS, WHOLE

SCALES = [1e-310, 1e-200, 1e-30, 1.0, 1.0, 1.0, 1e10, 1e30, 1e100, 1e155, 1e300]
NUMPY_TYPES = ["f8", ">f8", "f4", "f2", "g", "i8", "u1", "?", "c16", "O", "U5", "M8[s]", "m8[s]", "S3"]
TORCH_TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64]


@dataclass
class Arguments:
    """A call of a detector: its parameters, the method, the rows and what else is given."""

    rows: Any
    method: str = "fit"
    parameters: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def fingerprint(self) -> Any:
        """Return the bytes of the rows, as far as they are numbers in memory."""
        return self.rows.tobytes() if isinstance(self.rows, np.ndarray) and self.rows.dtype.kind != "O" else None


@st.composite
def numbers(draw):
    """Draw float64 rows (n, d), often with equal, extreme, or bad numbers in them."""
    n, d = draw(st.sampled_from([0, 1, 2, 3, 4, 5, 12, 40, 40, 40])), draw(st.sampled_from([0, 1, 2, 3, 3, 6, 40]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    kind = draw(st.sampled_from(["normal", "normal", "heavy", "equal", "few", "line", "whole", "one far"]))
    rows = rng.normal(size=(n, d))
    if kind == "heavy":
        rows = rng.standard_cauchy(size=(n, d)) ** 3
    elif kind == "equal":
        rows[:] = rows[:1]
    elif kind == "few":
        rows = rows[rng.integers(0, max(1, n // 3), n)] if n else rows
    elif kind == "line":
        rows = rows[:, :1] * np.arange(d)
    elif kind == "whole":
        rows = rng.integers(-1, 2, (n, d)).astype(float)
    elif kind == "one far" and rows.size:
        rows[0] *= 1e30
    rows = rows * draw(st.sampled_from(SCALES)) + draw(st.sampled_from([0.0, 0.0, 0.0, 1.0, -1e8, 1e200]))
    if draw(st.integers(0, 3)) == 0 and d:
        with np.errstate(over="ignore"):
            rows[:, draw(st.integers(0, d - 1))] *= draw(st.sampled_from(SCALES))
    if draw(st.integers(0, 4)) == 0 and rows.size:
        rows.flat[draw(st.integers(0, rows.size - 1))] = draw(st.sampled_from(FLOATS))
    return rows


def as_type(rows, dtype):
    with np.errstate(all="ignore"):
        if np.dtype(dtype).kind in "Mm":
            return rows.astype("i8").astype(dtype)
        return rows.astype(dtype)


NAMES = st.sampled_from(["a", "b", 3, None, ("x", 1)])
COLUMN_TYPES = ["string", "category", "Float64", "object", "Int64"]
NO_ROWS = [1.0, None, "rows", b"rows", {}, {"a": [1.0, 2, 3]}, set(), object, len, 3j, []]
PATHS = ["", "/", "/nowhere.npy", ".", "\0.npy", "/dev/null", "a\nb.csv", "x" * 5000 + ".npy"]
HOLDERS = {
    "type": lambda rows, draw: as_type(rows, draw(st.sampled_from(NUMPY_TYPES))),
    "tensor": lambda rows, draw: torch.tensor(rows).to(draw(st.sampled_from(TORCH_TYPES))),
    "gradients": lambda rows, draw: torch.tensor(rows, requires_grad=True),
    "no values": lambda rows, draw: torch.tensor(rows).to("meta"),
    "sparse tensor": lambda rows, draw: torch.tensor(rows).to_sparse(),
    "list": lambda rows, draw: rows.tolist(),
    "tuple of tensors": lambda rows, draw: tuple(torch.tensor(rows)),
    "ragged": lambda rows, draw: [*rows.tolist(), [1.0]],
    "generator": lambda rows, draw: iter(rows),
    "masked": lambda rows, draw: np.ma.masked_invalid(rows),
    "matrix": lambda rows, draw: np.asmatrix(rows) if rows.size else rows,
    "strided": lambda rows, draw: rows[::-1, ::-1],
    "read only": lambda rows, draw: np.broadcast_to(rows[:1], rows.shape),
    "columns first": lambda rows, draw: np.asfortranarray(rows),
    "frame": lambda rows, draw: pandas.DataFrame(rows),
    "names": lambda rows, draw: pandas.DataFrame(rows, columns=[draw(NAMES) for _ in rows.T]),
    "frame of anything": lambda rows, draw: pandas.DataFrame(rows).astype(draw(st.sampled_from(COLUMN_TYPES)), errors="ignore"),
    "series": lambda rows, draw: pandas.Series(list(rows)),
    "sparse": lambda rows, draw: draw(st.sampled_from([scipy.sparse.csr_matrix, scipy.sparse.coo_array]))(rows),
    "structured": lambda rows, draw: np.zeros(len(rows), [("a", "f8"), ("b", "i4")]),
    "flat": lambda rows, draw: rows.ravel(),
    "deep": lambda rows, draw: rows[None],
    "no rows": lambda rows, draw: draw(st.sampled_from(NO_ROWS)),
    "path": lambda rows, draw: draw(st.sampled_from(PATHS)),
}
OTHERS = [None, True, [], {}, (), [1], {"a": 1}, b"x", object, 1j, np.float64(0.1), np.arange(3), torch.ones(1)]
STRANGE = st.one_of(*map(st.sampled_from, (WHOLE, FLOATS, TEXTS, OTHERS)))
SMALL = {
    "epoch_num": [0, 1, 2],
    "n_quadrics": [1, 2, "auto"],
    "score_function": ["linear", "quadrics", "mean_distance", "combined"],
    "n_folds": [2, 3, None, "auto"],
    "robust": [False],
    "normalize": [True, False],
    "standardize": [True],
    "n_components": [1, 2, 0.5, None],
    "contamination": ["auto", 0.5, 1e-9],
    "distance": ["first_order", "algebraic"],
    "n_prototypes": [1, 5],
    "random_state": [None, 0, 2**32 - 1],
}


def groups_of(n):
    """Return a strategy of groups for n rows, most of which are sound."""
    sound = [np.arange(n) // 2, np.zeros(n), [*"ab" * n][:n], np.arange(n)[::-1] / 7]
    others = [[None] * n, np.full(n, np.nan), np.arange(n + 1), "g", 3]
    return st.sampled_from([*sound, *others]) | st.lists(STRANGE, min_size=min(n, 9), max_size=min(n, 9))


@st.composite
def arguments(draw):
    """Draw a call; most parameters are sound, so that something is computed."""
    rows = draw(numbers())
    if draw(st.booleans()):
        rows = HOLDERS[draw(st.sampled_from(sorted(HOLDERS)))](rows, draw)
    parameters = {}
    for name in draw(st.lists(st.sampled_from(sorted(SMALL)), max_size=3)):
        parameters[name] = draw(st.sampled_from(SMALL[name]))
    if draw(st.integers(0, 3)) == 0:
        parameters[draw(st.sampled_from(sorted(set(QuadricDetector().get_params()) - {"verbose"})))] = draw(STRANGE)
    if isinstance(parameters.get("epoch_num"), int) and parameters["epoch_num"] > 100:
        parameters["epoch_num"] = 1  # which is allowed, and takes its time
    options = {}
    if draw(st.integers(0, 4)) == 0:
        n = rows.shape[0] if getattr(rows, "ndim", 0) else 3
        options["groups"] = draw(groups_of(n))
    if draw(st.integers(0, 5)) == 0:
        options["y"] = draw(STRANGE)
    return Arguments(rows, draw(st.sampled_from(["fit", "fit", "fit", "partial_fit"])), parameters, options)


ARGUMENTS = arguments()
