"""Input that nobody means: files of rows and of models, and arguments of ``fit``, drawn at random; and what must hold for each.

It works, or one of our own errors says what is wrong: no raw error of a library below, no hang, no change of global state, no
file that stays open. ``python -m tests.support.fuzz csv 600`` tries new files of one kind for so many seconds, and prints what
happened; a third number chooses other ones. The kinds are those of ``KINDS``.
"""

import gc
import os
import random
import re
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from pyod_quadric import QuadricDetector
from pyod_quadric.data.columns import Choice
from pyod_quadric.data.files import open_rows, read_labels
from tests.support import fuzzed_arguments, fuzzed_files
from tests.support.circle import TEST, X
from tests.support.files import saved
from tests.support.mutants import mutants

SECONDS = 60  # of processor time, for one example
MEGABYTES = 500  # that one example may add to the peak of the memory
OURS = re.compile(r"/(pyod_quadric|sklearn/utils)/")  # whose sentences users are to read
WHERE = re.compile(r"/tmp/[^ ]*/|0x[0-9a-f]+|\d+")


class WrongError(Exception):
    """What an example has shown."""


class Kind(NamedTuple):
    """What is drawn, and what is done with it."""

    examples: st.SearchStrategy[Any]
    use: Callable[[Any], None]


def outcome(use: Callable[[Any], None], example: Any) -> str:
    """Return what happens with an example: "works", or our own error; raise :class:`WrongError` for everything else."""
    before = state()
    try:
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            try:
                use(example)
                result = "works"
            except (ValueError, TypeError, OSError) as error:
                result = refusal(error)
    except Exception as error:
        raise WrongError(f"{type(error).__name__}: {WHERE.sub('_', str(error))[:150]}") from error
    if open_files() != before["open files"]:
        gc.collect()  # errors hold what was open when they were raised
    after = state()
    if changed := [name for name in before if before[name] != after[name]]:
        raise WrongError(f"changed: {changed}; {result}")
    return result


def refusal(error: Exception) -> str:
    """Return the words of an error of ours, without what differs from one example to another."""
    frames = traceback.extract_tb(error.__traceback__)
    said = str(error)
    if isinstance(error, OSError) and error.errno is not None:
        return f"{type(error).__name__}: {os.strerror(error.errno)}"
    if not OURS.search(frames[-1].filename) or not 10 < len(said) < 20_000:  # scikit-learn shows rows
        raise error
    return f"{type(error).__name__}: {WHERE.sub('_', said)[:50]}"


def state() -> dict[str, Any]:
    """Return what no call may change."""
    _, key, *place = np.random.get_state()  # noqa: NPY002, to leave alone
    return {
        "generators": (torch.get_rng_state().tolist(), random.getstate(), key.tolist(), place),
        "errors": np.geterr(),
        "printing": np.get_printoptions(),
        "types": (torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "threads": torch.get_num_threads(),
        "surroundings": (dict(os.environ), Path.cwd(), len(sys.path)),
        "filters": list(warnings.filters),
        "open files": open_files(),
        "running threads": threading.active_count(),
    }


def open_files() -> list[str]:
    """Return the temporary files that are open, where the system says so."""
    place = Path("/proc/self/fd")
    names = [os.path.realpath(path) for path in place.iterdir()] if place.exists() else []
    return sorted(name for name in names if name.startswith(f"{tempfile.gettempdir()}/"))


DETECTOR = QuadricDetector(score_function="linear").fit(X[:, :2])
QuadricDetector(epoch_num=1).fit(X[:, :2])  # torch names a folder of its own in the environment before the first optimiser


def use_file(example: fuzzed_files.File) -> None:
    """Read a file in every way: as labels, as rows in one piece, in blocks, by number, with ids; fit to it, and score it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"rows{example.suffix}"
        path.write_bytes(example.content)
        try:
            choice = Choice(**example.choice)
            errors = [tried(use, path, choice) for use in (labels, pieces, fitted, scored)]
        finally:
            if path.read_bytes() != example.content or len(list(Path(folder).iterdir())) != 1:
                raise WrongError("the file, or its folder, was changed")
        if all(errors):
            raise errors[1]


def tried(use: Callable[[Path, Choice], None], path: Path, choice: Choice) -> Exception | None:
    try:
        use(path, choice)
    except (ValueError, TypeError, OSError) as error:
        refusal(error)
        return error
    return None


def labels(path: Path, choice: Choice) -> None:
    found = read_labels(path)
    if found.ndim != 1:
        raise WrongError(f"labels of shape {found.shape}")


def pieces(path: Path, choice: Choice) -> None:
    rows = open_rows(path, choice)
    whole = rows[:]
    if whole.ndim != 2 or whole.shape[1] != rows.n_features:
        raise WrongError(f"rows of shape {whole.shape}, but {rows.n_features} features")
    np.testing.assert_array_equal(np.concatenate([*open_rows(path, choice).blocks(2), whole[:0]]), whole)
    np.testing.assert_array_equal(rows[np.arange(len(whole))[::-1]], whole[::-1])
    parts = list(open_rows(path, choice).identified_blocks(3))
    np.testing.assert_array_equal(np.concatenate([*(part.rows for part in parts), whole[:0]]), whole)
    if choice.label_column is not None and len(rows.labels) != len(whole):
        raise WrongError(f"{len(rows.labels)} labels, but {len(whole)} rows")


def fitted(path: Path, choice: Choice) -> None:
    scores = QuadricDetector(score_function="linear", robust=False).fit(path).decision_scores_
    if not np.isfinite(scores).all():
        raise WrongError("scores that are not finite")


def scored(path: Path, choice: Choice) -> None:
    scores = DETECTOR.decision_function(path)
    if not np.isfinite(scores).all():
        raise WrongError("scores that are not finite")


def use_arguments(example: fuzzed_arguments.Arguments) -> None:
    """Fit with any arguments a detector that was fitted before: the new fit works, or the earlier one stays."""
    detector = QuadricDetector(score_function="linear").fit(X)
    expected, earlier = detector.decision_function(TEST), saved(detector)
    detector.set_params(**example.parameters)
    before = example.fingerprint()
    try:
        getattr(detector, example.method)(example.rows, **example.options)
    except (ValueError, TypeError, OSError):
        detector.set_params(**QuadricDetector(score_function="linear").get_params())
        np.testing.assert_array_equal(detector.decision_function(TEST), expected)
        if saved(detector) != earlier:
            raise WrongError("a fit that failed has changed the earlier one") from None
        raise
    finally:
        if example.fingerprint() != before:
            raise WrongError("the rows that were given have changed")
    scores = detector.decision_scores_
    if not (np.isfinite(scores) & (scores >= 0)).all() or not set(detector.labels_) <= {0, 1}:
        raise WrongError("scores that are not finite, or other labels")


def use_model(content: bytes) -> None:
    """Load a file, of which most are refused; those that are not have to work."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        path.write_bytes(content)
        detector = QuadricDetector.load(path)
    scores = detector.decision_function(np.resize(TEST, (5, detector.n_features_in_)))
    if not np.isfinite(scores).all():
        raise WrongError("scores that are not finite")


MODELS = st.one_of(
    mutants().map(lambda mutant: mutant[1]),
    fuzzed_files.damaged(mutants().map(lambda mutant: mutant[1])),
    fuzzed_files.damaged(mutants().map(lambda mutant: mutant[1]), sums=True),
)
KINDS = {
    **{name: Kind(files, use_file) for name, files in fuzzed_files.KINDS.items()},
    "fit": Kind(fuzzed_arguments.ARGUMENTS, use_arguments),
    "model": Kind(MODELS, use_model),
}


def main(name: str, seconds: float, first: int = 0) -> int:
    """Try new examples for so many seconds; print how they ended and return how many have shown something."""
    found: Counter[str] = Counter()
    wrong: dict[str, str] = {}
    kind, end = KINDS[name], time.monotonic() + seconds

    def tried_one(example: Any) -> None:
        if time.monotonic() > end:
            return
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            result = outcome(kind.use, example)
            added = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
            if added > MEGABYTES:
                raise WrongError("memory")
        except Exception as error:
            result = f"WRONG: {error}"
            wrong.setdefault(result, f"{example!r:.3000}\n{traceback.format_exc()[-4000:]}")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        found[result] += 1

    def hangs(*_: object) -> None:
        raise TimeoutError("it takes too long")

    signal.signal(signal.SIGPROF, hangs)
    some = settings(
        max_examples=200, phases=[Phase.generate], database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    for chunk in count(first):
        if time.monotonic() > end:
            break
        seed(chunk)(some(given(kind.examples)(lambda example: tried_one(example))))()
    for result, number in found.most_common():
        print(f"{number:6d}  {result}")
    print(f"{found.total():6d}  examples of {name} in {seconds:.0f} s; {found['works']} worked, {len(wrong)} kinds of faults")
    for result, shown in wrong.items():
        print("-" * 30, result, shown, sep="\n")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])) > 0)
