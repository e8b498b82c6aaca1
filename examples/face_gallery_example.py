"""Find bad pictures in a gallery of faces, and keep them from passing for somebody.

There are no faces here, but embeddings as a network of faces makes them. A person is a direction of 64, every picture lies near
it, and the poorer a picture is, the shorter its embedding is and the nearer to what all poor pictures have in common. So bad
pictures of different people are similar, and a search by similarity takes them for one person.

The detector is fitted to good pictures of other people, with ``groups=`` their names, since new pictures will be of new people.
Which pictures of the gallery are bad, at a false positive rate of 5 %? And what share of the pairs of one person is found, if
one in a thousand pairs of different people may pass for one person, with and without the bad pictures?

Needs the extra ``plot``. Run it with ``python -m examples.face_gallery_example``.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import roc_auc_score

from pyod_quadric import HalfHalfResult, QuadricDetector, half_half_protocol

N_FEATURES, N_INNER = 64, 12  # faces do not fill all directions
ERROR = 0.05
FALSE_POSITIVE_RATE = 1e-3


class Pictures(NamedTuple):
    """Embeddings of pictures, whom each shows, and how bad it is, from 0 to 1."""

    embeddings: np.ndarray  # (n, d)
    people: np.ndarray  # (n,)
    badness: np.ndarray  # (n,)


def pictures(n_people: int, n_each: int, share_bad: float, rng: np.random.Generator, first: int = 0) -> Pictures:
    """Return some pictures of each person, some of which are bad."""
    space = np.linalg.qr(np.random.default_rng(0).normal(size=(N_FEATURES, N_INNER)))[0]  # one network for all
    poor = np.random.default_rng(1).normal(size=N_FEATURES) / 3
    faces = np.tanh(rng.normal(size=(n_people, N_INNER))) @ space.T
    people = np.repeat(np.arange(n_people), n_each)
    n = len(people)
    badness = np.where(rng.random(n) < share_bad, rng.uniform(0.2, 1, n), rng.uniform(0, 0.2, n))[:, None]
    clear = faces[people] + 0.12 * rng.normal(size=(n, N_FEATURES))
    blurred = poor + 0.1 * rng.normal(size=(n, N_FEATURES))
    lengths = 20 * (1 - 0.7 * badness)
    found = (1 - badness) * clear + badness * blurred
    return Pictures(lengths * found / np.linalg.norm(found, axis=1, keepdims=True), first + people, badness[:, 0])


def draw(gallery: Pictures, p_values: np.ndarray, result: HalfHalfResult) -> Figure:
    """Draw how bad pictures are against their p-values, and the identification rate with and without them."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained", width_ratios=(3, 2))
    for is_bad, colour, marker, name in ((False, "#0072b2", "o", "good"), (True, "#d55e00", "D", "bad")):
        some = (gallery.badness > 0.2) == is_bad
        label = f"{name} ({some.sum()} pictures)"
        left.scatter(gallery.badness[some], p_values[some], s=8, color=colour, marker=marker, label=label)
    left.axhline(ERROR, color="black", linestyle=":", label=f"flagged below {ERROR}")
    left.set(yscale="log", xlabel="how bad a picture is, from 0 to 1", ylabel="p-value", title="Pictures of the gallery")
    left.legend(loc="upper right")
    summary = result.summary()
    for shift, when, name, colour in ((-0.2, "before", "all pictures", "tab:gray"), (0.2, "after", "robust", "#0072b2")):
        heights = [summary[f"{rate}_{when}"][0] for rate in ("ir", "full_ir")]
        bars = right.bar(np.arange(2) + shift, heights, width=0.38, color=colour, label=name)
        right.bar_label(bars, fmt="%.3f")
    right.set_xticks([0, 1], ["pairs of the gallery", "and before all others"])
    right.set(
        ylim=(0, 1.15), ylabel=f"identification rate at {FALSE_POSITIVE_RATE:g}", title="Pairs of one person that are found"
    )
    right.legend(loc="upper right")
    return figure


Judgement = tuple[np.ndarray, HalfHalfResult]


def judge(training: Pictures, gallery: Pictures, others: Pictures) -> Judgement:
    """Return p-values of the gallery, and identification rates with and without bad pictures."""
    detector = QuadricDetector().fit(training.embeddings, groups=training.people)
    p_values = detector.predict_pvalue(gallery.embeddings)
    rates = half_half_protocol(
        gallery.embeddings,
        gallery.people,
        detector.decision_function(gallery.embeddings),
        others.embeddings,
        detector.decision_function(others.embeddings),
        false_positive_rate=FALSE_POSITIVE_RATE,
    )
    return p_values, rates


def main(picture: Path | None = None, quiet: bool = False, seed: int = 0) -> dict[str, float]:
    """Fit, judge the gallery, and return shares of flagged pictures, a ROC-AUC and identification rates."""
    rng = np.random.default_rng(seed)
    training = pictures(400, 4, 0.0, rng)
    gallery, others = pictures(300, 4, 0.1, rng, first=400), pictures(500, 4, 0.1, rng, first=700)
    p_values, rates = judge(training, gallery, others)
    bad = gallery.badness > 0.2
    found = {
        "good pictures flagged": float(np.mean(p_values[~bad] <= ERROR)),
        "bad pictures flagged": float(np.mean(p_values[bad] <= ERROR)),
        "ROC-AUC of bad against good pictures": float(roc_auc_score(bad, -p_values)),
    }
    found |= {name: mean for name, (mean, _) in rates.summary().items()}
    if picture:
        figure = draw(gallery, p_values, rates)
        figure.savefig(picture, dpi=100)
        plt.close(figure)
    if not quiet:
        print(f"fitted to {len(training.people)} pictures of 400 people; {len(bad)} pictures of 300 others are judged")
        for name, value in found.items():
            print(f"{name:40} {value:.3f}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=Path("face_gallery.png"), help="where to save the picture")
    main(parser.parse_args().picture)
