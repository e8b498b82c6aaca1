"""How fast a machine is at what a fit consists of: matrix products, eigenvalue problems, going through memory, and calls."""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

TURNS, IN_A_ROW = 5, 2
ROWS, COLUMNS = 1024, 1024  # of the products in float32
FEATURES = 320  # of the product in float64
FRESH_NUMBERS = 1_400_000  # of arrays that are made anew, as those of a fold of a block of rows are
CACHED_NUMBERS = 2**22
EIGEN_SIZE = 300
CALLS, CALL_NUMBERS = 500, 1000  # of operations on so few numbers that it is the call that takes time
EIGEN_FLOPS = 9  # times the cube of the size: the usual count for all eigenvectors of a symmetric matrix
# What is assumed of a GPU of which only the speed of products is known. In float64 the cheap ones have this share of it.
SHARE_FLOAT64 = 1 / 64
SHARE_EIGEN = 1 / 10  # of the float64 speed
GPU_BYTES = 500e9
GPU_CALLS = 1e5


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """Operations and bytes per second.

    Parameters
    ----------
    float32, float64 : float
        FLOP/s of matrix products.
    eigen : float
        FLOP/s of symmetric eigenvalue problems, at ``9 n³`` for one of size n.
    fresh : float
        Bytes/s that elementwise operations read and write when their results are arrays made anew.
    cached : float
        The same for results in memory that is there, a few megabytes of it.
    calls : float
        Operations on next to nothing per second, as Python calls them one by one.
    reading : float, default=inf
        Bytes/s from the storage.

    Examples
    --------
    >>> Speeds.stated(19.5, float64_tflops=9.7).float64
    9700000000000.0
    """

    float32: float
    float64: float
    eigen: float
    fresh: float
    cached: float
    calls: float
    reading: float = math.inf

    def __post_init__(self) -> None:
        for name, speed in asdict(self).items():
            if not speed > 0:
                raise ValueError(f"the speed {name} must be positive, got {speed:g}")

    @classmethod
    def stated(cls, tflops: float, float64_tflops: float | None = None, memory_gb_per_s: float = GPU_BYTES / 1e9) -> "Speeds":
        """Return the speeds of a GPU of which something is known.

        Parameters
        ----------
        tflops : float
            What products in float32 reach, in 10¹² FLOP/s.
        float64_tflops : float, optional
            The same in float64; a 64th of it by default, as cheap GPUs have it.
        memory_gb_per_s : float, default=500
            The bandwidth of its memory, in 10⁹ bytes/s.
        """
        for name, number in (("tflops", tflops), ("float64_tflops", float64_tflops), ("memory_gb_per_s", memory_gb_per_s)):
            if number is not None and not 0 < number < math.inf:
                raise ValueError(f"{name} must be a positive number, got {number:g}")
        exact = tflops * SHARE_FLOAT64 if float64_tflops is None else float64_tflops
        speeds = {"float32": tflops * 1e12, "float64": exact * 1e12, "eigen": exact * 1e12 * SHARE_EIGEN}
        return cls(**speeds, fresh=memory_gb_per_s * 1e9, cached=memory_gb_per_s * 1e9, calls=GPU_CALLS)

    def reading_at(self, gb_per_s: float) -> "Speeds":
        """Return the same with storage that gives so many 10⁹ bytes/s."""
        if not gb_per_s > 0:
            raise ValueError(f"the reading speed must be a positive number of GB/s, got {gb_per_s:g}")
        return replace(self, reading=gb_per_s * 1e9)


def calibrated(device: torch.device, n_features: int = 512) -> Speeds:
    """Time this machine for about a second: products of rows with so many features, an eigenvalue problem, array operations.

    Examples
    --------
    >>> import torch
    >>> speeds = calibrated(torch.device("cpu"), n_features=16)
    >>> speeds.float32 > 1e8
    True
    """
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype).to(device)

    rows = numbers(ROWS, n_features)
    wide, product = numbers(COLUMNS, n_features), torch.empty(len(rows), COLUMNS, device=device)
    gradient = torch.empty_like(wide)
    features = numbers(1024, FEATURES, dtype=torch.float64)
    small = numbers(EIGEN_SIZE, EIGEN_SIZE, dtype=torch.float64)
    symmetric = small + small.T
    large, held, few = numbers(FRESH_NUMBERS).double(), numbers(CACHED_NUMBERS), numbers(CALL_NUMBERS)

    # Once so much has been freed, glibc keeps what is freed later for the next array, as in a fit after the first blocks.
    torch.empty(5 * FRESH_NUMBERS // 2, dtype=torch.float64, device=device)

    def both_products() -> None:
        """Do what a training step does."""
        torch.mm(rows, wide.T, out=product)
        torch.mm(product.T, rows, out=gradient)

    amounts: dict[str, tuple[float, Callable[[], object]]] = {
        "float32": (4 * rows.numel() * COLUMNS, both_products),
        "float64": (2 * features.numel() * FEATURES, lambda: features.T @ features),
        "eigen": (EIGEN_FLOPS * EIGEN_SIZE**3, lambda: torch.linalg.eigh(symmetric)),
        "fresh": (56 * FRESH_NUMBERS, lambda: _three_operations(large)),
        "cached": (8 * CACHED_NUMBERS, lambda: held.mul_(1.0)),
        "calls": (CALLS, lambda: [few * 2 for _ in range(CALLS)]),
    }
    times = typical_times({name: task for name, (_, task) in amounts.items()}, device)
    return Speeds(**{name: amount / times[name] for name, (amount, _) in amounts.items()})


def _three_operations(numbers: Tensor) -> Tensor:
    """Read and write 56 bytes for each of the numbers."""
    moved = numbers - 1
    return moved * 2 * moved


def typical_times(tasks: dict[str, Callable[[], object]], device: torch.device) -> dict[str, float]:
    """Return the time of each task in seconds: the shortest of each turn, and the median of the turns.

    Tasks of some milliseconds take turns. The shortest of a few runs is one that was not interrupted; but what a processor does
    in its best moment it does not do for hours, so the best of all turns would promise too much. With one thread it is the
    processor's time for this process, to which waiting for others adds nothing.
    """
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    turns: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(1 + TURNS):
        for name, task in tasks.items():
            times = []
            for _ in range(IN_A_ROW):
                started = clock()
                task()
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                times.append(clock() - started)
            if turn:  # the first one pays for what happens once
                turns[name].append(min(times))
    return {name: statistics.median(times) for name, times in turns.items()}
