"""Is any damage of a cluster's data silent? Files and rows are damaged, and the results are compared with those of an undisturbed run.

    python benchmarks/damage.py [--flips 100] [--seed 0] [--jobs 2] [--every-way] [--only TEXT] [--case NUMBER] [--keep DIR]

Each case copies the data directory of a cluster that was killed or stopped in the middle of its searches, and damages it: an empty,
missing, truncated or foreign file or folder, or a link in its place; a removed, swapped, doubled or changed row of the journal, the
statistics, the jobs or the experiments; or one flipped bit, before the start or while the cluster runs. Then the cluster is started
with `hopyard run`, `hopyard resume`, `hopyard up` or `Client.local`, and all experiments are continued. Each result depends on every
byte of the code and of the snapshots that were used. The verdicts:

* not used: the results are right, and nothing was reported.
* found and healed: the results are right, and a log reports the damage.
* found and paused, found and refused: with a reason code or a message; everything else completed, and after the damage was mended also
  the rest, with the right results.
* found by a check: only `hopyard replay` or `hopyard doctor` names the damage; after `hopyard doctor --rebuild`, or after it was
  mended, the results are right.
* SILENT DIFFERENCE, WRONG END, CRASH, HANG: findings. The exit code is then 1.

`--only` selects cases by their names, such as "bundle: flip"; `--case 12` is one of them, with the same other options. Each kind of
damage meets each way to start, and with `--every-way` each damage does. Prepared clusters in DIR/bases are used again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from damage_cases.case import CaseRunner, Result
from damage_cases.plan import Plan, plans
from damage_cases.verdict import Verdict, counts


def measure(
    chosen: Sequence[Plan], folder: Path, limit: float, jobs: int, *, keep: bool
) -> tuple[list[Result], dict[int, str]]:
    """Run cases, `jobs` at a time. Each result is also written to stderr.

    Returns:
        The results in order, and the errors of the cases that could not be run, by number.
    """
    runner = CaseRunner(folder, limit, keep=keep)
    incomplete: dict[int, str] = {}

    def run(plan: Plan) -> Result | None:
        try:
            result = runner.run(plan)
        except Exception as error:  # noqa: BLE001 - the other cases are worth their time
            incomplete[plan.number] = f"{type(error).__name__}: {error}"
            sys.stderr.write(f"{plan.number:4} {plan.name}: {incomplete[plan.number]}\n")
            return None
        sys.stderr.write(f"{_line(result)}\n")
        return result

    with ThreadPoolExecutor(jobs) as pool:
        return [one for one in pool.map(run, chosen) if one is not None], incomplete


def _line(result: Result) -> str:
    plan = result.plan
    when = "while it runs" if plan.running else plan.end.value
    case = f"{plan.number:4} {plan.name:40} {plan.way.value:12} {when:13}"
    return f"{case} {result.seconds:5.1f} s  {result.verdict.value:18} {result.damage}"


def _why(result: Result) -> str:
    """Return the first thing that was reported in the order of its weight; empty: nothing was."""
    seen = result.seen
    coded = [f"{name}: {code}" for name, code in {**seen.ends, **seen.codes}.items()]
    return next(iter([*seen.crashes, *seen.refused, *coded, *seen.warnings, *seen.checked]), "")[:200]


def table(results: Sequence[Result]) -> str:
    """Return the number of cases by damage and verdict as Markdown, and the findings."""
    shown = [verdict for verdict in Verdict if any(one.verdict is verdict for one in results)]
    lines = [f"| damage | {' | '.join(verdict.value for verdict in shown)} |", f"|---|{'---|' * len(shown)}"]
    for name in dict.fromkeys(one.plan.name for one in results):
        numbers = [sum(one.plan.name == name and one.verdict is verdict for one in results) for verdict in shown]
        lines.append(f"| {name} | {' | '.join(str(number or '') for number in numbers)} |")
    lines += [
        "",
        f"{len(results)} cases: {', '.join(f'{n} {v}' for v, n in counts([r.verdict for r in results]).items())}",
    ]
    lines += [f"FINDING {_line(one)}\n        {_why(one)}" for one in results if one.verdict.finding]
    return "\n".join(lines)


def report(results: Sequence[Result], seed: int, seconds: float) -> dict[str, Any]:
    """Return the results for `--json`."""
    found = counts([one.verdict for one in results])
    return {"seed": seed, "seconds": round(seconds), "counts": found, "cases": [one.as_json() for one in results]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=100, help="number of flipped bits")
    parser.add_argument("--seed", type=int, default=0, help="seed of all choices")
    parser.add_argument(
        "--every-way", action="store_true", help="each damage of files and rows in each of the four ways"
    )
    parser.add_argument("--jobs", type=int, default=2, help="number of clusters at the same time")
    parser.add_argument("--only", default="", help="only cases whose name contains this text")
    parser.add_argument(
        "--case", type=int, action="append", help="only the case with this number; repeat it for several"
    )
    parser.add_argument("--every", type=int, default=1, help="only every EVERY-th case, for a shorter run")
    parser.add_argument(
        "--limit", type=float, default=90.0, help="seconds until a case that has not ended counts as a hang"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="folder for the clusters of all cases, which are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON to this file")
    given = parser.parse_args(arguments)
    every = plans(given.seed, given.flips, every_way=given.every_way)
    chosen = [one for one in every if given.only in one.name][:: given.every]
    if given.case:
        chosen = [one for one in chosen if one.number in given.case]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hopyard-damage-") as scratch:
        folder = (given.keep or Path(scratch)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        results, incomplete = measure(chosen, folder, given.limit, given.jobs, keep=given.keep is not None)
    if given.json is not None:
        given.json.write_text(json.dumps(report(results, given.seed, time.monotonic() - began), indent=1))
    print(table(results))
    for number, error in incomplete.items():
        print(f"INCOMPLETE case {number}: {error}")
    return 1 if incomplete or any(one.verdict.finding for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())
