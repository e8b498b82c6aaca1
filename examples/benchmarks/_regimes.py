"""The kinds of data that detectors are compared on: what is normal, what is not, and where the rows come from.

A regime is a family of sets. Each set is split anew by a seed into rows to fit, inliers and one or more kinds of outliers to
judge by. *Contaminated* sets of ADBench are fitted to all training rows; elsewhere a twentieth of the training rows are
outliers, which are not among those to judge by.
"""

from collections.abc import Callable
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from examples.benchmarks._common import DataSet, load_adbench, load_sentences, synthetic
from examples.benchmarks._data import ADBENCH, CLINC150, SENTENCES, WORDNET

CLEAN, CONTAMINATED = MODES = ("clean", "contaminated")
CONTAMINATION = 0.05
N_FITTED, N_TESTED = 2500, 1000  # rows of one source of sentences
N_NEW_INTENTS = 30  # of CLINC150, which are left out of the training
N_WORDNET = 3000  # inliers, and at most so many outliers
N_SHAPE, SCATTERED = 1000, 0.2  # rows of a shape, and the share of outliers among them in contaminated mode
LEXICOGRAPHER_FILES = {"plants": 20, "persons": 18, "verbs of motion": 38, "adjectives": 0}

Rows = NDArray[np.float32]


class Files(NamedTuple):
    """Where data are.

    Parameters
    ----------
    data : Path
        The directory of the development data.
    faces : Path, optional
        Embeddings of faces, an ``.npz`` file: ``X`` (n, d) and ``who`` (n,) of pictures of people, ``bad`` (b, d) and
        ``bad_who`` (b,) of spoilt ones, and ``utk`` (u, d) of faces from another source.
    """

    data: Path
    faces: Path | None = None


class Regime(NamedTuple):
    """A family of sets."""

    title: str
    names: Callable[[Files], list[str]]
    load: Callable[[Files, str, int, bool], DataSet]  # by the name of the set, the seed, and whether it is contaminated
    modes: tuple[str, ...] = MODES


def _adbench(group: str) -> dict[str, Any]:
    def names(files: Files) -> list[str]:
        return list(ADBENCH[group])

    def load(files: Files, name: str, seed: int, contaminated: bool) -> DataSet:
        return load_adbench(files.data / "adbench" / group / f"{name}.npz", seed, contaminated=contaminated)

    return {"names": names, "load": load}


def dataset(training: Rows, inliers: Rows, outliers: list[Rows], groups: NDArray[Any] | None = None) -> DataSet:
    """Return a set of arrays as tensors."""
    return DataSet(torch.from_numpy(training), torch.from_numpy(inliers), [torch.from_numpy(rows) for rows in outliers], groups)


def with_outliers(split: DataSet, seed: int, contamination: float = CONTAMINATION) -> DataSet:
    """Return a set with some of its outliers, of all kinds alike, among the training rows instead of the test rows.

    Examples
    --------
    >>> split = DataSet(torch.zeros(95, 2), torch.zeros(9, 2), [torch.ones(8, 2), torch.ones(30, 2)])
    >>> found = with_outliers(split, seed=0)
    >>> len(found.training), int(found.training[:, 0].sum()), [len(rows) for rows in found.outliers]
    (99, 4, [6, 28])
    """
    rng = np.random.default_rng(seed)
    wanted = round(contamination / (1 - contamination) * len(split.training) / len(split.outliers))
    mixed = [rows[torch.from_numpy(rng.permutation(len(rows)))] for rows in split.outliers]
    counts = [min(wanted, len(rows) // 2) for rows in mixed]
    moved = [rows[:count] for rows, count in zip(mixed, counts, strict=True)]
    groups = None
    if split.groups is not None:  # nobody knows of whom the outliers are
        groups = np.concatenate([split.groups, -1 - np.arange(sum(counts))])
    kept = [rows[count:] for rows, count in zip(mixed, counts, strict=True)]
    return DataSet(torch.cat([split.training, *moved]), split.inliers, kept, groups)


# --- Sentences: one source is normal, or three together ---


def _load_sentences(files: Files, name: str, seed: int, contaminated: bool) -> DataSet:
    return load_sentences(files.data / SENTENCES, seed)


@cache
def _sources(files: Files) -> dict[str, Rows]:
    with np.load(files.data / SENTENCES) as arrays:
        return {name: arrays[name].astype(np.float32) for name in arrays}


def _domain_names(files: Files) -> list[str]:
    sources = ("movie", "nyt", "tweets", "amazon")
    pairs = [f"{inside}, not {outside}" for inside, outside in permutations(sources, 2)]
    return pairs + [f"all but {name}" for name in sources]


def _load_domains(files: Files, name: str, seed: int, contaminated: bool) -> DataSet:
    sources = _sources(files)
    outside = name.removeprefix("all but ").split(", not ")[-1]
    inside = [other for other in sources if other != outside] if name.startswith("all") else [name.split(", not ")[0]]

    def halves(source: str) -> tuple[Rows, Rows]:
        mixed = np.random.default_rng(seed).permutation(sources[source])
        n_tested = min(N_TESTED, len(mixed) // 3)
        return mixed[n_tested : n_tested + N_FITTED], mixed[:n_tested]

    training, inliers = (np.concatenate(parts) for parts in zip(*map(halves, inside), strict=True))
    split = dataset(training, inliers, [halves(outside)[1]])
    return with_outliers(split, seed) if contaminated else split


# --- Many clusters: intents, the files of WordNet, and nine of ten digits ---


@cache
def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays}


def _load_intents(files: Files, name: str, seed: int, contaminated: bool) -> DataSet:
    arrays = _arrays(files.data / CLINC150)
    rows, part, intent = arrays["X"].astype(np.float32), arrays["part"], arrays["intent"]
    if name == "out of scope":
        training, inliers, outliers = rows[part == 0], rows[part == 2], rows[part >= 4 if contaminated else part == 5]
    else:
        new = np.isin(intent, np.random.default_rng(seed).permutation(150)[:N_NEW_INTENTS])
        outliers = rows[new & (part == 2 if not contaminated else part <= 2)]
        training, inliers = rows[(part == 0) & ~new], rows[(part == 2) & ~new]
    split = dataset(training, inliers, [outliers])
    return with_outliers(split, seed) if contaminated else split


def _load_wordnet(files: Files, name: str, seed: int, contaminated: bool) -> DataSet:
    arrays, rng = _arrays(files.data / WORDNET), np.random.default_rng(seed)
    rows, is_outside = arrays["X"], arrays["lexfile"] == LEXICOGRAPHER_FILES[name]
    inside, outside = (rng.permutation(np.flatnonzero(chosen)) for chosen in (~is_outside, is_outside))
    n_outside = N_WORDNET + contaminated * len(outside) // 2
    parts = inside[N_WORDNET:], inside[:N_WORDNET], outside[:n_outside]
    training, inliers, outliers = (rows[part].astype(np.float32) for part in parts)
    split = dataset(training, inliers, [outliers])
    return with_outliers(split, seed) if contaminated else split


def _digit_names(files: Files) -> list[str]:
    return [f"all but {digit}" for digit in range(10)]


def _load_pixels(files: Files, name: str, seed: int, contaminated: bool) -> DataSet:
    rows, digit = load_digits(return_X_y=True)
    rng, is_outside = np.random.default_rng(seed), digit == int(name[-1])
    inside, outside = (rng.permutation(rows[chosen].astype(np.float32)) for chosen in (~is_outside, is_outside))
    split = dataset(*reversed(np.split(inside, [len(inside) // 3])), [outside])
    return with_outliers(split, seed) if contaminated else split


# --- Groups: embeddings of people, and of handwritten numbers ---


def _load_faces(files: Files, name: str, seed: int, contaminated: bool) -> DataSet:
    assert files.faces is not None
    arrays = _arrays(files.faces)
    who = arrays["who"]
    people = np.random.default_rng(seed).permutation(np.unique(who))
    fitted = np.isin(who, people[: len(people) // 2])
    others = arrays["bad"][~np.isin(arrays["bad_who"], who[fitted])] if name == "bad pictures" else arrays["utk"]
    split = dataset(arrays["X"][fitted], arrays["X"][~fitted], [others], who[fitted])
    return with_outliers(split, seed) if contaminated else split


def _load_digits(files: Files, name: str, seed: int, contaminated: bool) -> DataSet:
    numbers = _numbers(seed)
    split = dataset(numbers["training"], numbers["test"], [numbers[name]], numbers["groups"])
    return with_outliers(split, seed) if contaminated else split


@cache
def _numbers(seed: int) -> dict[str, NDArray[Any]]:
    """Return embeddings of handwritten numbers by a network with an angular margin: the geometry of faces."""
    from examples.similarity_robustification import digit_images, foreign, spoilt, train_encoder, write_numbers

    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    training, test = np.split(rng.permutation(1000), [600])
    for_network, for_detectors, for_test = digit_images()
    classes = np.repeat(np.arange(len(training)), 10)
    images = write_numbers(training[classes], for_network, rng)
    encoder = train_encoder(images, torch.from_numpy(classes), 12, seed)
    new = write_numbers(np.repeat(test, 4), for_test, rng)
    return {
        "training": encoder.embed(write_numbers(training[classes], for_detectors, rng)),
        "groups": classes,
        "test": encoder.embed(new),
        "spoilt": encoder.embed(spoilt(new, generator)),
        "foreign": encoder.embed(foreign(len(new), rng)),
    }


# --- Made on the spot: shapes, and columns with units ---


def shape(name: str, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return n noisy points (n, d) of a shape of a size of about 1.

    Examples
    --------
    >>> [shape(name, 5, np.random.default_rng(0)).shape[1] for name in SHAPES]
    [2, 2, 3, 3, 2, 2]
    """
    angle = rng.uniform(0, 2 * np.pi, n)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    if name == "ellipse":
        circle = circle * [1.5, 0.7]
    elif name == "sphere":
        circle = rng.normal(size=(n, 3))
        circle /= np.linalg.norm(circle, axis=1, keepdims=True)
    elif name == "curve of Viviani":  # where a cylinder meets a sphere that it touches
        circle = np.stack([np.cos(angle) ** 2 * 2 - 1, np.sin(2 * angle), 2 * np.sin(angle)], axis=1)
    elif name == "two circles":  # of one centre: a torus, cut across its axis
        circle = circle * rng.choice([1.0, 2.0], size=(n, 1))
    elif name == "two circles apart":  # a torus, cut along its axis
        circle = 0.8 * circle + rng.choice([-1.5, 1.5], size=(n, 1)) * [1.0, 0.0]
    return circle + 0.05 * rng.normal(size=circle.shape)


SHAPES = ("circle", "ellipse", "sphere", "curve of Viviani", "two circles", "two circles apart")


def middle(name: str, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return n points (n, d) in the middle of a shape, where none of it is."""
    points = 0.1 * rng.normal(size=(n, shape(name, 1, rng).shape[1]))
    if name == "curve of Viviani":  # in the sphere, away from where the curve crosses itself
        points[:, 0] -= 0.8
    return points


def _load_shapes(files: Files, name: str, seed: int, contaminated: bool) -> DataSet:
    rng = np.random.default_rng(seed)
    training, inliers, outliers = shape(name, N_SHAPE, rng), shape(name, N_SHAPE, rng), middle(name, 200, rng)
    if contaminated:
        size = (round(N_SHAPE * SCATTERED / (1 - SCATTERED)), training.shape[1])
        training = np.concatenate([training, rng.uniform(-1.5, 1.5, size=size) * np.abs(inliers).max(axis=0)])
    training, inliers, outliers = (part.astype(np.float32) for part in (training, inliers, outliers))
    return dataset(training, inliers, [outliers])


def _load_sensors(files: Files, name: str, seed: int, contaminated: bool) -> DataSet:
    rng = np.random.default_rng(seed)
    training, inliers, outliers = (_sensors(name, n, rng) for n in (1000, 500, 100))
    if name == "all rise together":
        outliers += 8.0
    elif name == "a time in milliseconds":
        outliers[:, 1:] += rng.choice([-8.0, 8.0], size=(len(outliers), 4))
    else:
        outliers[:, 4] += 0.3 * rng.choice([-1.0, 1.0], size=len(outliers))
    return dataset(*(part.astype(np.float32) for part in (training, inliers)), [outliers.astype(np.float32)])


def _sensors(name: str, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    if name == "all rise together":
        return 290 + rng.normal(size=(n, 1)) + rng.normal(size=(n, 40))
    if name == "a time in milliseconds":
        return np.column_stack([rng.uniform(0, 3e10, n), rng.normal(size=(n, 4))])
    rows = rng.normal(size=(n, 4))
    return np.column_stack([rows, rows[:, 0] + rows[:, 1] + 0.01 * rng.normal(size=n)])


SENSORS = ("all rise together", "a time in milliseconds", "a sum of two others")


def _load_stand_in(files: Files, name: str, seed: int, contaminated: bool) -> DataSet:
    split = synthetic(n_features=int(name), seed=seed)
    others = synthetic(n_features=int(name), seed=seed + 1000).outliers
    return split._replace(training=torch.cat([split.training, *others])) if contaminated else split


def _these(*names: str) -> Callable[[Files], list[str]]:
    return lambda files: list(names)


REGIMES = {
    "CV_by_ResNet18": Regime("ResNet18 images", **_adbench("CV_by_ResNet18")),
    "NLP_by_BERT": Regime("BERT texts", **_adbench("NLP_by_BERT")),
    "Classical": Regime("tables", **_adbench("Classical")),
    "sentences": Regime("sentences", _these("minilm"), _load_sentences, (CLEAN,)),
    "domains": Regime("sources of sentences", _domain_names, _load_domains, (CLEAN,)),
    "clinc150": Regime("150 intents", _these("out of scope", "new intents"), _load_intents),
    "wordnet": Regime("WordNet glosses", _these(*LEXICOGRAPHER_FILES), _load_wordnet),
    "pixels": Regime("nine of ten digits", _digit_names, _load_pixels),
    "digits": Regime("handwritten numbers", _these("spoilt", "foreign"), _load_digits),
    "faces": Regime("faces", _these("bad pictures", "another source"), _load_faces),
    "shapes": Regime("shapes", _these(*SHAPES), _load_shapes),
    "sensors": Regime("sensors", _these(*SENSORS), _load_sensors, (CLEAN,)),
}
STAND_IN = {"synthetic": Regime("synthetic", _these("5"), _load_stand_in)}  # needs no files
