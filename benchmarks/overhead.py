"""What does Hopyard cost? Each figure is measured on real clusters, together with its baseline in the same run.

    python benchmarks/overhead.py [--only NAME ...] [--runs 3] [--json FILE|-]

All figures are measured once, then all again, `--runs` times. The table shows medians.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from figures.frame import FIGURES, Sample, figure, host, summary
from rich.console import Console
from rich.table import Table

PROGRESS = Console(stderr=True, soft_wrap=True)
_SIGNS = (("least", ">="), ("most", "<="))


async def measure(names: list[str], runs: int, folder: Path | None) -> list[dict[str, Any]]:
    """Measure all figures `runs` times, and return the rows of their medians."""
    found: dict[str, list[list[Sample]]] = {name: [] for name in names}
    for run in range(1, runs + 1):
        for name in names:
            began = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="overhead-", dir=folder) as data:
                samples = await figure(name)(Path(data))
            found[name].append(samples)
            values = ", ".join(f"{one.name} {_number(one.value)} {one.unit}".strip() for one in samples)
            PROGRESS.print(f"run {run} of {runs}, {name} ({time.monotonic() - began:.0f} s): {values}")
    return [row for name in names for row in summary(name, found[name])]


def show(rows: list[dict[str, Any]], where: dict[str, Any]) -> None:
    """Print the rows as a table, and under each row its further numbers."""
    title = f"{where['cpu']}, {where['cores']} cores, {where['memory_gib']} GiB, Python {where['python']}"
    table = Table("figure", "median", "least .. most", "target", "met", "baseline", "ratio", title=title, box=None)
    for row in rows:
        target = " ".join(f"{sign} {_number(row[key])}" for key, sign in _SIGNS if row[key] is not None)
        table.add_row(
            f"[bold]{row['figure']}[/]: {row['name']}",
            f"{_number(row['median'])} {row['unit']}",
            f"{_number(min(row['runs']))} .. {_number(max(row['runs']))}",
            target,
            {None: "", True: "yes", False: "[bold red]NO[/]"}[row["met"]],
            "" if row["baseline"] is None else f"{_number(row['baseline'])} {row['against']}",
            "" if row["ratio"] is None else f"{row['ratio']:.2f}",
        )
        for name, value in row["beside"].items():
            table.add_row(f"  [dim]{name}[/]", f"[dim]{_number(value)}[/]")
    Console(width=None if sys.stdout.isatty() else 180).print(table)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def main() -> int:
    """Run the command line. Return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[*FIGURES], help="this figure; may be given several times")
    parser.add_argument("--runs", type=int, default=3, help="how often each figure is measured")
    parser.add_argument("--json", metavar="FILE", help="write the rows to a file, or - to the standard output")
    parser.add_argument("--folder", type=Path, help="where the clusters' data lie; else where temporary files do")
    given = parser.parse_args()
    where = host()
    rows = asyncio.run(measure(given.only or [*FIGURES], given.runs, given.folder))
    text = json.dumps({"host": where, "figures": rows}, indent=2)
    if given.json == "-":
        print(text)
    else:
        show(rows, where)
        if given.json:
            Path(given.json).write_text(text + "\n")
    return 0 if all(row["met"] is not False for row in rows) else 1


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")])
    sys.exit(main())
