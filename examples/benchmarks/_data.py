"""The files of the benchmarks on real data: their names, and a sentence where one is not there.

What is in them and where they come from is in ``README.md`` beside this file.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

DATA = Path("data")  # unless --data says otherwise
ADBENCH = {
    "CV_by_ResNet18": (
        *("CIFAR10_0", "MVTec-AD_bottle", "MVTec-AD_cable", "MVTec-AD_capsule", "MVTec-AD_carpet", "MVTec-AD_grid"),
        *("MVTec-AD_hazelnut", "SVHN_0"),
    ),
    "NLP_by_BERT": ("20news_3",),
    "Classical": (
        *("10_cover", "12_fault", "15_Hepatitis", "17_InternetAds", "19_landsat", "20_letter", "22_magic.gamma", "24_mnist"),
        *("26_optdigits", "28_pendigits", "2_annthyroid", "31_satimage-2", "33_skin", "35_SpamBase", "38_thyroid"),
        *("40_vowels", "42_WBC", "44_Wilt", "46_WPBC", "4_breastw", "6_cardio", "8_celeba"),
    ),
}
SENTENCES, CLINC150, WORDNET = "sentences/minilm.npz", "clinc150/minilm.npz", "wordnet/minilm.npz"
ONE_OF_ADBENCH = "adbench/CV_by_ResNet18/CIFAR10_0.npz"


def adbench(data: Path, groups: Iterable[str] = ADBENCH) -> Iterator[Path]:
    """Go through the files of ADBench's sets."""
    return (data / "adbench" / group / f"{name}.npz" for group in groups for name in ADBENCH[group])


def need(data: Path, *names: str, faces: Path | None = None) -> None:
    """End the run with a sentence if a file is not there; without names, all of them are needed, and faces if they are given.

    Examples
    --------
    >>> need(Path("nowhere"), WORDNET, CLINC150)
    Traceback (most recent call last):
        ...
    SystemExit: 2 of the 2 files that are needed are not in the folder nowhere: wordnet/minilm.npz, clinc150/minilm.npz. \
Give the folder that has them by --data; examples/benchmarks/README.md says what they are and where they come from.
    """
    wanted = [data / name for name in names or (SENTENCES, CLINC150, WORDNET)] + ([] if names else list(adbench(data)))
    missing = [path.relative_to(data).as_posix() for path in wanted if not path.is_file()]
    if missing:
        named = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        raise SystemExit(
            f"{len(missing)} of the {len(wanted)} files that are needed are not in the folder {data}: {named}. Give the folder "
            "that has them by --data; examples/benchmarks/README.md says what they are and where they come from."
        )
    if faces is not None and not faces.is_file():
        raise SystemExit(f"There is no file {faces}. Leave out --faces, or give a file as _regimes.py describes it.")
