"""``pyod-quadric plan``: what a fit will cost, before it starts."""

import argparse
import json
import math
from typing import Any

import torch

from pyod_quadric._packing import packed_size
from pyod_quadric.cli.errors import USAGE, CommandError
from pyod_quadric.cli.options import markdown_table
from pyod_quadric.options import ConstraintName
from pyod_quadric.planning import Plan, best_batch_size, plan_closed_form, plan_paper, worst_closed_form
from pyod_quadric.speeds import Speeds, calibrated

HELP = "say what a fit would cost: operations, memory, time, and the settings to choose"
KINDS = {
    "paper": "quadrics in all features, trained, as in the paper",
    "default": "the closed form",
}


def whole(text: str) -> int:
    """Return a whole number, which may be written as 6e6.

    Examples
    --------
    >>> whole("6e6"), whole("512")
    (6000000, 512)
    """
    number = float(text)
    if not math.isfinite(number) or number != int(number) or number < 1:
        raise ValueError(text)
    return int(number)


whole.__name__ = "whole number from 1 on"  # argparse names it in errors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("--rows", type=whole, required=True, metavar="N", help="how many rows, such as 6e6; float32")
    parser.add_argument("--features", type=whole, required=True, metavar="D", help="how many features")
    parser.add_argument("--kind", choices=("both", *KINDS), default="both", help=str(KINDS).strip("{}").replace("'", ""))
    parser.add_argument("--json", action="store_true", help="as JSON")
    training = parser.add_argument_group("training, of the kind paper")
    training.add_argument("--quadrics", type=whole, metavar="M", help="how many quadrics (default: 100, or all there can be)")
    training.add_argument("--epochs", type=whole, default=20, metavar="E", help="how many epochs (default: 20)")
    training.add_argument("--batch-size", type=whole, metavar="B", help="rows of a step; by default the plan chooses")
    training.add_argument("--constraint", choices=("penalty", "stiefel"), default="penalty", help="how frames stay orthonormal")
    machine = parser.add_argument_group("machine")
    machine.add_argument(
        "--device", default="cpu", help="where to compute: cpu (default) or cuda; timed, unless --tflops is given"
    )
    machine.add_argument("--tflops", type=float, metavar="X", help="10^12 FLOP/s of float32 products, in place of timing")
    machine.add_argument("--float64-tflops", type=float, metavar="X", help="the same in float64 (default: a 64th of it)")
    machine.add_argument("--memory-gb-per-s", type=float, default=500.0, metavar="X", help="of a stated device (default: 500)")
    machine.add_argument("--read-gb-per-s", type=float, metavar="X", help="of the storage; by default reading is not counted")


def run(arguments: argparse.Namespace) -> None:
    """Make the plans and print them."""
    speeds = _speeds(arguments)
    plans = {kind: _plan(kind, arguments, speeds) for kind in KINDS if arguments.kind in ("both", kind)}
    content = {
        "machine": {"device": arguments.device, "measured": arguments.tflops is None, **_finite(vars(speeds))},
        "plans": plans,
    }
    print(json.dumps(content, indent=2) if arguments.json else as_text(arguments, content))


def _speeds(arguments: argparse.Namespace) -> Speeds:
    if arguments.tflops is not None:
        speeds = Speeds.stated(arguments.tflops, arguments.float64_tflops, arguments.memory_gb_per_s)
    else:
        if arguments.float64_tflops is not None:
            raise CommandError("--float64-tflops goes with --tflops; without, the device is timed", USAGE)
        speeds = calibrated(_device(arguments.device), arguments.features)
    return speeds if arguments.read_gb_per_s is None else speeds.reading_at(arguments.read_gb_per_s)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise CommandError(f"--device must be cpu or cuda, got {name}", USAGE) from error
    if device.type not in ("cpu", "cuda"):
        raise CommandError(f"--device must be cpu or cuda, got {name}", USAGE)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise CommandError("there is no CUDA device here to be timed; state the speed of the one you have in mind as --tflops")
    return device


def _plan(kind: str, arguments: argparse.Namespace, speeds: Speeds) -> dict[str, Any]:
    n, d = arguments.rows, arguments.features
    m = arguments.quadrics or min(100, packed_size(d))
    if kind == "default":
        return _described(plan_closed_form(n, d), worst_closed_form(n, d), speeds, _command(arguments, {}))
    constraint: ConstraintName = arguments.constraint
    batch_size = arguments.batch_size or best_batch_size(n, d, m, speeds, constraint)
    plan = plan_paper(n, d, m, epochs=arguments.epochs, batch_size=batch_size, constraint=constraint)
    return _described(plan, plan, speeds, _command(arguments, {"paper": "full", **plan.parameters}))


def _described(plan: Plan, worst: Plan, speeds: Speeds, command: str) -> dict[str, Any]:
    total = plan.total
    return {
        "seconds": total.seconds(speeds),
        "most_seconds": worst.total.seconds(speeds),
        "product_flops": total.product_flops,
        "memory_bytes": plan.memory,
        "passes": total.passes,
        "steps": plan.steps,
        "stages": {stage.name: stage.seconds(speeds) for stage in plan.stages},
        "command": command,
    }


def _command(arguments: argparse.Namespace, parameters: dict[str, Any]) -> str:
    """Return the command that does what is planned."""
    options = [f"--{name.replace('_', '-')} {value}" for name, value in parameters.items()]
    device = [] if arguments.device == "cpu" else [f"--device {arguments.device}"]
    return " ".join(["pyod-quadric fit ROWS", *options, *device, "--output MODEL"])


def _finite(numbers: dict[str, float]) -> dict[str, float | None]:
    return {name: number if math.isfinite(number) else None for name, number in numbers.items()}


def as_text(arguments: argparse.Namespace, content: dict[str, Any]) -> str:
    """Return plans for people."""
    n, d, machine = arguments.rows, arguments.features, content["machine"]
    source = "timed here, for whoever has it alone" if machine["measured"] else "as stated, nothing was timed"
    speeds = (
        f"{machine['float32'] / 1e9:.3g} GFLOP/s in float32, {machine['float64'] / 1e9:.3g} in float64, "
        f"{machine['fresh'] / 1e9:.3g} GB/s of memory"
    )
    reading = f"reads {machine['reading'] / 1e9:.3g} GB/s" if machine["reading"] else "reading is not counted"
    lines = [
        f"{n:,} rows of {d} features in float32, {4 * n * d / 1e9:.3g} GB",
        f"{machine['device']}, {source}: {speeds}; {reading}",
    ]
    for kind, plan in content["plans"].items():
        figures = [
            ["expected time", duration(plan["seconds"])],
            *([["at most", duration(plan["most_seconds"])]] if plan["most_seconds"] > plan["seconds"] else []),
            ["matrix products", f"{plan['product_flops']:.3g} FLOP"],
            ["memory", f"{plan['memory_bytes'] / 1e6:,.0f} MB"],
            ["passes over the rows", f"{plan['passes']:g}"],
            *([["steps", f"{plan['steps']:,}"]] if plan["steps"] else []),
            *([stage, duration(seconds)] for stage, seconds in plan["stages"].items()),
        ]
        lines += ["", markdown_table([kind, KINDS[kind]], figures), plan["command"]]
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it.

    Examples
    --------
    >>> duration(0.05), duration(90), duration(7200), duration(3e5)
    ('0.05 seconds', '90 seconds', '2 hours', '3.5 days')
    """
    for unit, size in (("days", 2 * 86400), ("hours", 2 * 3600), ("minutes", 2 * 60)):
        if seconds >= size:
            return f"{seconds / (size / 2):.2g} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 10 else f"{seconds:.2g} seconds"
