"""``pyod-quadric drift``: whether a whole batch of rows is like the rows of the fit."""

import argparse
import json

from pyod_quadric.cli.inputs import choice_of, groups_of, kept_rows, load_model, open_for_model, with_groups


def run(arguments: argparse.Namespace) -> None:
    """Score the batch, compare it with the rows of the fit, and print the result."""
    detector = load_model(arguments.model)
    choice = with_groups(choice_of(arguments), arguments)
    source = open_for_model(detector, arguments.input, choice, arguments.quiet)
    kept = kept_rows(source, arguments.on_nan, arguments.quiet)
    found = detector.drift_test(kept.rows, groups=groups_of(kept, arguments))
    if arguments.json:
        print(json.dumps({"rows": len(kept.indices), **found._asdict()}))
    else:
        print(f"{len(kept.indices)} rows: statistic {found.statistic:.4f}, p-value {found.pvalue:.4g}")
