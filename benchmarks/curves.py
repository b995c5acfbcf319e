"""How well do predictors extrapolate real learning curves?

    python benchmarks/curves.py [--predictor NAME ...] [--rows 200-299] [--json FILE|-] [--plot FILE.svg]

A predictor sees the first 10, 20 or 40 % of a curve. Its prediction of the final value is scored by the CRPS (continuous ranked
probability score), by the coverage of its central 90 % interval, and by the Brier score of P(target), the probability of reaching the
target. The target is the 80th percentile of the final values of the evaluated rows. Each row is one curve. Scores are averaged within
each of three sets of accuracies, and then over the sets. In two sets of rewards, each curve is predicted from all others of its set;
their scores are shown separately. A predictor that learns from other curves gets ten random finished rows from 0 to 299, without the
evaluated ones; this is repeated 20 times with other random rows. The baselines are evaluated in the same run:

- base rate: the distribution of the final values of the evaluated rows, the same for each curve;
- last value: the last value stays; random walk: the spread grows with the square root of the steps ahead;
- last + increments: the last value plus the later increments of the ten finished rows.

Rows 300 to 399 are for final reports: do not tune anything by them. real_curves.md describes the source of the curves.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from curve_scores.data import ACCURACY, EARLIER, HISTORY, RETURNS
from curve_scores.evaluate import BASELINES, PARTS, Plan, evaluate
from curve_scores.plot import plot
from rich.console import Console
from rich.table import Table

from hopyard._common.plugins import PREDICTORS, plugin_names
from hopyard.errors import InvalidInput

PROGRESS = Console(stderr=True, soft_wrap=True)


def show(found: Mapping[str, Any], detailed: bool) -> None:
    """Print the means as a table, and with `detailed` also the scores of each set."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(_table("mean of the accuracy sets", found["means"]))
    for name in (*ACCURACY, *RETURNS) if detailed else RETURNS:
        console.print(_table(name, [row for row in found["scores"] if row["set"] == name]))


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("predictor")
    parts = "/".join(f"{part:.0%}" for part in PARTS)
    for column in ("CRPS", "90% coverage", "Brier score", "CPU ms"):
        table.add_column(f"{column} at {parts}", justify="right")
    for name in dict.fromkeys(row["predictor"] for row in rows):
        mine = sorted((row for row in rows if row["predictor"] == name), key=lambda row: float(row["part"]))
        cells = [
            "  ".join(format(row[key], form) for row in mine)
            for key, form in (("crps", ".4g"), ("coverage", ".2f"), ("brier", ".3f"), ("ms", ".2f"))
        ]
        table.add_row(name, *cells)
    return table


def _rows(text: str) -> range:
    if not (match := re.fullmatch(r"(\d+)-(\d+)", text)) or int(match[1]) > int(match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST-LAST, for example 200-299")
    return range(int(match[1]), int(match[2]) + 1)


def _parameter(text: str) -> tuple[str, str, Any]:
    if not (match := re.fullmatch(r"([^.=]+)\.(\w+)=(.*)", text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not PREDICTOR.PARAMETER=VALUE, for example mcmc.steps=2500")
    return match[1], match[2], yaml.safe_load(match[3])


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def main() -> int:
    """Run the command line, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=Path, default=Path(__file__).with_name("real_curves.npz"), metavar="FILE.npz")
    parser.add_argument("--rows", type=_rows, default=range(200, 300), help="evaluated rows, 200-299 unless given")
    parser.add_argument("--every", type=_positive, default=1, metavar="K", help="predict every K-th of them only")
    parser.add_argument(
        "--predictor", action="append", help="entry-point name or module:Class; else all installed ones"
    )
    parser.add_argument("--set", action="append", type=_parameter, default=[], metavar="PREDICTOR.PARAMETER=VALUE")
    parser.add_argument("--draws", type=_positive, default=20, help="histories for each row")
    parser.add_argument("--history", type=_positive, default=HISTORY, metavar="N", help="finished rows to learn from")
    parser.add_argument(
        "--earlier",
        choices=("fitting", "strange"),
        help=f"and {EARLIER} rows of an earlier experiment: of the set, or of another",
    )
    parser.add_argument("--jobs", type=_positive, default=1, help="processes")
    parser.add_argument("--json", metavar="FILE", help="write all numbers to a file, or - to the standard output")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write the reliability plot (.svg, .png, .pdf)")
    parser.add_argument("--sets", action="store_true", help="show each set")
    given = parser.parse_args()
    parameters: dict[str, dict[str, Any]] = {}
    for name, key, value in given.set:
        parameters.setdefault(name, {})[key] = value
    names = (*BASELINES, *(plugin_names(PREDICTORS) if given.predictor is None else given.predictor))
    plan = Plan(given.curves, given.rows, given.every, given.draws, names, parameters, given.history, given.earlier)
    try:
        found = evaluate(plan, given.jobs, PROGRESS.print)
        if given.plot:
            plot(found["means"], given.plot)
    except (InvalidInput, ValueError, OSError, ModuleNotFoundError) as error:
        PROGRESS.print(f"curves: {error}", markup=False)
        return 2
    about = {"rows": [plan.rows.start, plan.rows.stop - 1], "every": plan.every, "draws": plan.draws}
    about |= {"history": plan.history, "earlier": plan.earlier}
    text = json.dumps({**about, "parameters": parameters, **found}, indent=1)
    if given.json == "-":
        print(text)
        return 0
    show(found, given.sets)
    if given.json:
        Path(given.json).write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
