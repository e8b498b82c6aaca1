"""Make a similarity robust by outlier scores, and measure what that gains: the paper's second table, for any embeddings.

Without files the data are made here, offline. An identity is a number of three digits, and an image of it three images of
handwritten digits (scikit-learn's) side by side. A small network learns embeddings by an additive angular margin, from 600
numbers; 200 others are the test identities and 200 more the distractors, all written with images of digits that the network has
not seen. Some test images are spoilt, and keep their identity; some are pieces of photographs, each an identity of its own.

Detectors are fitted to embeddings of the 600 numbers, written with images that neither the network nor the test has: there are
so few images of digits that the network knows its own by heart. With each detector, identities and distractors are split in
halves ten times: one half chooses the cutoff of the outlier score, the other measures the identification rate with and without
distractors.

Run it with ``python -m examples.similarity_robustification``; it takes some minutes, prints the table and saves a picture. With
embeddings of your own, say of faces::

    python -m examples.similarity_robustification --embeddings test.npy --labels labels.npy \
        --distractors distractors.npy --training training.npy --false-positive-rate 1e-5

Without ``--training`` the detectors are fitted to the distractors. Rates need about 1 / rate different pairs in each half.
"""

import argparse
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor
from torch.nn import functional

from examples._baselines import Method, methods
from pyod_quadric import HalfHalfResult, half_half_protocol, outlier_scores

HEIGHT, WIDTH = 8, 24
SPOILT, FOREIGN = 0.03, 0.02  # shares of test images


@dataclass(frozen=True, eq=False)
class Embeddings:
    """What the table is made of; arrays may be memory maps."""

    training: np.ndarray  # (n, d), to fit detectors to
    test: np.ndarray  # (t, d)
    labels: np.ndarray  # (t,)
    distractors: np.ndarray | None  # (m, d)


# --- Images: numbers of three digits ---


def write_numbers(numbers: np.ndarray, digits: Mapping[int, np.ndarray], rng: np.random.Generator) -> Tensor:
    """Return an image (n, 1, 8, 24) of each number, from randomly chosen images of its digits."""
    strips = [
        np.concatenate([digits[int(d)][rng.integers(len(digits[int(d)]))] for d in f"{number:03d}"], axis=1)
        for number in numbers
    ]
    return torch.tensor(np.array(strips) / 16, dtype=torch.float32)[:, None]


def digit_images() -> list[dict[int, np.ndarray]]:
    """Return images (?, 8, 8) of each digit in three parts: for the network, for the detectors, for the test."""
    data = load_digits()
    parts = {d: np.split(data.images[data.target == d], [90, 130]) for d in range(10)}
    return [{d: parts[d][k] for d in range(10)} for k in range(3)]


def spoilt(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return images with noise all over, and a part covered."""
    noisy = images + 0.6 * torch.randn(images.shape, generator=generator)
    starts = torch.randint(0, WIDTH // 2, (len(images), 1), generator=generator)
    columns = torch.arange(WIDTH)
    covered = (columns >= starts) & (columns < starts + WIDTH // 2)  # (n, 24)
    return noisy.clamp(0, 1).masked_fill(covered[:, None, None, :], 1.0)


def foreign(n: int, rng: np.random.Generator) -> Tensor:
    """Return pieces (n, 1, 8, 24) of photographs: a temple and a flower."""
    photographs = [image.mean(axis=2) / 255 for image in load_sample_images().images]
    pieces = []
    for _ in range(n):
        photograph = photographs[rng.integers(len(photographs))]
        top, left = (rng.integers(size - 4 * side) for size, side in zip(photograph.shape, (HEIGHT, WIDTH), strict=True))
        pieces.append(photograph[top : top + 4 * HEIGHT : 4, left : left + 4 * WIDTH : 4])
    return torch.tensor(np.array(pieces), dtype=torch.float32)[:, None]


# --- Embeddings: a small network with an angular margin ---


class Encoder(torch.nn.Sequential):
    """Two convolutions and two linear maps, from images (n, 1, 8, 24) to embeddings (n, d)."""

    def __init__(self, n_features: int = 64) -> None:
        super().__init__(
            torch.nn.Conv2d(1, 16, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(16, 32, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(32 * (HEIGHT // 2) * (WIDTH // 2), 256),
            torch.nn.ReLU(),
            torch.nn.Linear(256, n_features),
        )

    @torch.no_grad()
    def embed(self, images: Tensor) -> np.ndarray:
        """Return the embeddings of images, a block at a time."""
        return torch.cat([self(block) for block in images.split(1024)]).numpy()


def angular_margin_loss(
    embeddings: Tensor, centres: Tensor, classes: Tensor, margin: float = 0.2, scale: float = 16.0
) -> Tensor:
    """Return the cross-entropy of scaled cosines to the centres, where the angle to one's own centre counts as larger."""
    cosines = functional.normalize(embeddings) @ functional.normalize(centres).T
    angles = torch.acos(cosines.clamp(-0.999, 0.999))  # the derivative is infinite at the ends
    own = functional.one_hot(classes, len(centres))
    return functional.cross_entropy(scale * torch.cos(angles + margin * own), classes)


def train_encoder(images: Tensor, classes: Tensor, n_epochs: int, seed: int) -> Encoder:
    """Return an encoder trained to tell the classes apart."""
    with torch.random.fork_rng(devices=[]):  # the network's start follows from the seed, and no other generator is touched
        torch.default_generator.manual_seed(seed)
        encoder = Encoder()
        centres = torch.nn.Parameter(torch.randn(int(classes.max()) + 1, 64))
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam([*encoder.parameters(), centres], lr=2e-3)
    for _ in range(n_epochs):
        for batch in torch.randperm(len(images), generator=generator).split(128):
            loss = angular_margin_loss(encoder(_varied(images[batch], generator)), centres, classes[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return encoder


def _varied(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return images with a little noise, shifted sideways by at most a pixel."""
    shift = int(torch.randint(-1, 2, (), generator=generator))
    return torch.roll(images + 0.25 * torch.randn(images.shape, generator=generator), shift, dims=3)


def make_embeddings(n_images: int, n_epochs: int, seed: int = 0) -> Embeddings:
    """Return embeddings of handwritten numbers: ``n_images`` of each training number, half as many of each test one."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    training, test, others = np.split(rng.permutation(1000), [600, 800])
    for_network, for_detectors, for_test = digit_images()
    classes = np.repeat(np.arange(600), n_images)
    images = write_numbers(training[classes], for_network, rng)
    encoder = train_encoder(images, torch.from_numpy(classes), n_epochs, seed)
    labels = np.repeat(test, max(2, n_images // 2))
    faces = write_numbers(labels, for_test, rng)
    bad = rng.permutation(len(faces))[: int(SPOILT * len(faces))]
    faces[bad] = spoilt(faces[bad], generator)
    n_foreign = int(FOREIGN * len(faces))
    crowd = write_numbers(np.repeat(others, 2 * n_images), for_test, rng)
    return Embeddings(
        encoder.embed(write_numbers(training[classes], for_detectors, rng)),
        encoder.embed(torch.cat([faces, foreign(n_foreign, rng)])),
        np.append(labels, 1000 + np.arange(n_foreign)),  # pieces of photographs are of nobody
        encoder.embed(torch.cat([crowd, foreign(int(FOREIGN * len(crowd)), rng)])),
    )


def load_embeddings(embeddings: Path, labels: Path, distractors: Path | None, training: Path | None) -> Embeddings:
    """Return embeddings from ``.npy`` files, the large ones as memory maps."""
    crowd = None if distractors is None else np.load(distractors, mmap_mode="r")
    fitted = crowd if training is None else np.load(training, mmap_mode="r")
    return Embeddings(fitted, np.load(embeddings), np.load(labels), crowd)


# --- The table ---

Results = dict[str, HalfHalfResult]


def compare(data: Embeddings, chosen: Mapping[str, Method], false_positive_rate: float, n_repeats: int) -> Results:
    """Return, for each method, the rates before and after the robustification by its scores."""
    results = {}
    for name, method in chosen.items():
        score = method(np.asarray(data.training, dtype=np.float32))
        results[name] = half_half_protocol(
            data.test,
            data.labels,
            outlier_scores(score, data.test),
            data.distractors,
            None if data.distractors is None else outlier_scores(score, data.distractors),
            n_repeats=n_repeats,
            false_positive_rate=false_positive_rate,
        )
    return results


def report(results: Results) -> None:
    """Print mean and spread of IR and Full IR for each method."""
    first = next(iter(results.values())).summary()
    width = max(map(len, results))
    print(f"{'':{width}} {'IR':>15} {'Full IR':>15}   gain in Full IR   splits without cutoff")
    print(f"{'initial':{width}} {_cell(first['ir_before'])} {_cell(first['full_ir_before'])}")
    for name, result in results.items():
        summary = result.summary()
        gains = [after.full_ir - before.full_ir for before, after in zip(result.before, result.after, strict=True)]
        gain = f"{np.mean(gains):+.3f} ± {np.std(gains):.3f}"
        without = f"{int(np.isinf(result.cutoffs).sum())} of {len(result.cutoffs)}"
        print(f"{name:{width}} {_cell(summary['ir_after'])} {_cell(summary['full_ir_after'])}   {gain}    {without}")


def _cell(mean_and_spread: tuple[float, float]) -> str:
    mean, spread = mean_and_spread
    return f"{mean:.3f} ± {spread:.3f}".rjust(15)


def draw(results: Results, false_positive_rate: float) -> Figure:
    """Draw the gain in both rates for each method, one dot for each repetition."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.5), sharey=True, sharex=True, layout="constrained")
    for ax, (attribute, title) in zip(panels, (("ir", "IR"), ("full_ir", "Full IR")), strict=True):
        for place, result in enumerate(results.values()):
            before, after = (np.array([getattr(rate, attribute) for rate in rates]) for rates in (result.before, result.after))
            ax.plot(after - before, np.full(len(after), place), "o", color="#0072b2", alpha=0.35, markeredgewidth=0)
            ax.plot(np.mean(after - before), place, "|", color="black", markersize=18, markeredgewidth=2)
        ax.axvline(0, color="grey", linewidth=0.8)
        ax.set(title=f"{title} (initially {before.mean():.3f})", xlabel=f"gain in {title} on the other half")
        ax.grid(alpha=0.3, axis="x")
    panels[0].set_yticks(range(len(results)), list(results))
    panels[0].invert_yaxis()
    rate = next(iter(results.values())).before[0]
    figure.suptitle(
        f"Robust similarity at false-positive rate {false_positive_rate:g}: {rate.n_genuine:,} genuine pairs, "
        f"{rate.n_different:,} different ones, {rate.n_distractors:,} distractors;\n"
        f"each dot is one of {len(next(iter(results.values())).before)} splits, bars are means",
        fontsize=11,
    )
    return figure


def main(
    picture: Path | None = None,
    data: Embeddings | None = None,
    false_positive_rate: float = 1e-4,
    fast: bool = False,
    quiet: bool = False,
) -> Results:
    """Compare the methods on the data, or on handwritten numbers; return what the table and the picture are made of."""
    if data is None:
        data = make_embeddings(n_images=4, n_epochs=2) if fast else make_embeddings(n_images=20, n_epochs=12)
    chosen = methods(n_epochs=2, n_quadrics=10) if fast else methods()
    with warnings.catch_warnings():
        # scikit-learn's solver of the support vector machine says when it stops early; its scores are used all the same.
        warnings.filterwarnings("ignore", module="sklearn")
        results = compare(data, chosen, false_positive_rate, n_repeats=2 if fast else 10)
    if picture:
        figure = draw(results, false_positive_rate)
        figure.savefig(picture, dpi=100)
        plt.close(figure)
    if not quiet:
        report(results)
        print(f"picture: {picture}")
    return results


def from_command_line(arguments: Sequence[str] | None = None) -> Results:
    """Run the example with the arguments of a command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--embeddings", type=Path, help=".npy file of test embeddings (n, d)")
    parser.add_argument("--labels", type=Path, help=".npy file of their identities (n,)")
    parser.add_argument("--distractors", type=Path, help=".npy file of embeddings of others (m, d)")
    parser.add_argument("--training", type=Path, help=".npy file of embeddings to fit the detectors to")
    parser.add_argument("--false-positive-rate", type=float, default=1e-4)
    parser.add_argument(
        "--picture", type=Path, default=Path("similarity_robustification.png"), help="where to save the picture"
    )
    parser.add_argument("--fast", action="store_true", help="small sizes, to see that it runs; the figures mean nothing")
    parsed = parser.parse_args(arguments)
    files = [parsed.embeddings, parsed.labels, parsed.distractors, parsed.training]
    if any(files) and not (parsed.embeddings and parsed.labels and (parsed.distractors or parsed.training)):
        parser.error("needed are --embeddings, --labels, and --distractors or --training (what detectors are fitted to)")
    data = load_embeddings(*files) if any(files) else None
    return main(parsed.picture, data, parsed.false_positive_rate, parsed.fast)


if __name__ == "__main__":
    from_command_line()
