"""What scores depend on, measured: ``python -m tests.support.dependence 8`` prints it for so many draws of each kind of rows.

The largest relative difference of the scores of 300 new rows, over the draws, and in brackets the median of the draws' largest
ones; of ranks, the lowest correlation. The lines are those of the table in docs/guide/detector.md, which
tests/detector/test_dependence.py holds.
"""

import sys
from collections import defaultdict
from contextlib import contextmanager

import numpy as np
import torch
from scipy.stats import spearmanr

from pyod_quadric import QuadricDetector


def blobs(n, rng):
    return 4 * np.random.default_rng(0).normal(size=(4, 5))[rng.integers(0, 4, n)] + rng.normal(size=(n, 5))


def ellipse(n, rng):
    angle = rng.uniform(0, 2 * np.pi, n)
    return np.stack([3 * np.cos(angle), np.sin(angle)], axis=1) + 0.05 * rng.normal(size=(n, 2))


def embeddings(n, rng):
    """Rows with lengths of their own, and directions around one that they have in common."""
    rows = rng.normal(size=(n, 64)) * np.geomspace(1, 0.05, 64) + 0.5 * np.random.default_rng(0).normal(size=64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) * np.exp(0.1 * rng.normal(size=(n, 1)))


def heavy_tails(n, rng):
    return rng.standard_t(2, size=(n, 6))


SHAPES = {"blobs": blobs, "ellipse": ellipse, "embeddings": embeddings, "heavy tails": heavy_tails}


def rows_of(shape, seed, n=300):
    return SHAPES[shape](n, np.random.default_rng(seed))


@contextmanager
def threads(number):
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def scores_of(rows, new, **options):
    groups = {name: options.pop(name) for name in ("groups",) if name in options}
    return QuadricDetector(**options).fit(rows, **groups).decision_function(new)


def differences(shape, seed):
    """Yield what differs, the scores, and those that they are compared with."""
    rows, new = rows_of(shape, 2 * seed), rows_of(shape, 2 * seed + 1)
    single, names, order = new.astype(np.float32), np.arange(len(rows)), np.random.default_rng(seed).permutation(len(rows))
    columns = np.random.default_rng(seed).permutation(rows.shape[1])
    detector, plain = QuadricDetector().fit(rows), {"score_function": "linear+quadrics", "groups": names}
    scores, of_single = detector.decision_function(new), detector.decision_function(single)
    yield "again", scores_of(rows, new), scores
    for name, found, expected in (("float64", new, scores), ("float32", single, of_single)):
        yield f"batch, {name}", detector.decision_function(found, batch_size=1 + seed % 7), expected
        yield f"order of scoring, {name}", detector.decision_function(found[order])[np.argsort(order)], expected
    with threads(2):
        yield "threads, scoring", detector.decision_function(new), scores
        yield "threads, fit", scores_of(rows, new), scores
    yield "columns", scores_of(rows[:, columns], new[:, columns]), scores
    yield "float32, scoring", of_single, detector.decision_function(single.astype(float))
    short = rows.astype(np.float32)
    for name, options in (("float32, fit, not robust", {"robust": False}), ("float32, fit", {})):
        yield name, scores_of(short, new, **options), scores_of(short.astype(float), new, **options)
    yield "order of the fit", scores_of(rows[order], new), scores
    yield "random_state", scores_of(rows, new, random_state=seed), scores
    of_groups = scores_of(rows, new, **plain)
    yield "order, with groups", scores_of(rows[order], new, **(plain | {"groups": names[order]})), of_groups
    yield "random_state, with groups", scores_of(rows, new, random_state=seed, **plain), of_groups


def main(n_draws):
    """Print a line for each kind of rows and of what differs."""
    for shape in SHAPES:
        found, ranks = defaultdict(list), defaultdict(list)
        for seed in range(n_draws):
            for name, scores, expected in differences(shape, seed):
                found[name].append(float(np.max(np.abs(scores / expected - 1))))
                ranks[name].append(float(spearmanr(scores, expected).statistic))
        for name, worst in found.items():
            print(f"{shape:12s} {name:26s} {max(worst):.0e} ({np.median(worst):.0e})  ranks {min(ranks[name]):.3f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
