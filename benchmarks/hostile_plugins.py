"""What do other experiments notice of plugins that exit, crash, loop, or take memory, processes or time?

    python benchmarks/hostile_plugins.py [--only NAME ...] [--json FILE|-]

A cluster as `hopyard up` starts it has two slots. On one of them, a good experiment trains iterations of 50 ms, with a built-in
policy that decides after each of them. A client calls `get` and `jobs` of this experiment without a pause. Hostile experiments run on
the other slot, one after the other, with the default limits. Before the first and after the last one, the same is measured without a
hostile experiment, as the baseline: the policy reads the whole curve, so the last iterations are a little slower. The plugin of each
hostile experiment (policy, generator, solver or predictor) does one kind of harm. An experiment with a hostile policy or generator must
be paused, and the question to a hostile solver or predictor must be answered with an error.

A gap is the time from the begin of an iteration of the good experiment to the begin of the next one. The memory is that of each plugin
process when its plugin was created or, in case of a solver or predictor, got its first question. Unique memory is shared with no
other process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from figures.cluster import up
from figures.frame import host
from figures.timing import TIMED, timed_spec
from hostile.cases import CASES, Case
from hostile.evaluation import MOST_CALL_SECONDS, Noticed, Outcome, noticed, problems
from hostile.good_client import GoodClient
from hostile.plugins import STRUCK
from rich.console import Console
from rich.table import Table

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState
from hopyard.errors import HopyardError, TimedOut
from hopyard_engine.core.events import Answered
from hopyard_tools.commands.journal_source import opened

PROGRESS: Final = Console(stderr=True, soft_wrap=True)
PACE: Final = 0.05
POLICY: Final = {"name": "bandit", "evaluation_boundary": 1}
"""A built-in policy that decides after each iteration. It terminates no job that is the only one."""

BASELINES: Final = "none, before", "none, after"
LIMIT_SECONDS: Final = 180.0
"""Seconds after which a hostile experiment is stopped that is neither paused nor ended."""

_WARM_UP_SECONDS: Final = 3.0
_SETTLING_SECONDS: Final = 1.0
"""Seconds after the end of a hostile experiment before the next one starts."""

Period = tuple[float, float]
"""Begin and end, in seconds since the Unix epoch."""


async def run(case: Case, client: AsyncClient, where: Path) -> tuple[Outcome, Period]:
    """Run a hostile experiment until it is paused or ended, and then stop it.

    Args:
        case: What it does.
        client: A client of the cluster, other than that which is measured.
        where: A folder for the notes of its plugin.

    Returns:
        What became of it, and the period from its creation to its pause or end. If a call fails, the state is the class of the error.
    """
    where.mkdir()  # noqa: ASYNC240 - quick
    began, ended = time.time(), None
    try:
        created = await client.create(case.spec(where), TIMED)
        until = {ExperimentState.PAUSED, ExperimentState.COMPLETED, ExperimentState.FAILED, ExperimentState.STOPPED}
        with suppress(TimedOut):
            await client.wait(created, LIMIT_SECONDS, until=until)
        ended = time.time()
        outcome = await _outcome(case, client, created, where, ended)
        await client.stop(created)
        await client.wait(created, LIMIT_SECONDS)
    except HopyardError as error:
        outcome = Outcome(case.name, case.pauses, type(error).__name__, "", str(error), None)
    period = began, ended or time.time()
    await asyncio.sleep(_SETTLING_SECONDS)
    return outcome, period


async def _outcome(case: Case, client: AsyncClient, created: Experiment, where: Path, ended: float) -> Outcome:
    shown = await client.get(created)
    code = shown.reason_code.name if shown.reason_code is not None else ""
    reason, over = shown.reason, ended if shown.state is ExperimentState.PAUSED else None
    if not case.pauses:
        reason, over = "", None
        async with opened(str(client._server), None, created.id, "a benchmark") as source:
            async for _, event in source.read():
                if isinstance(event, Answered) and event.ticket.startswith("policy/") and event.error:
                    reason, over = event.error, event.at
                    break
    struck = where / STRUCK
    seconds = over - float(struck.read_text()) if over is not None and struck.exists() else None
    return Outcome(case.name, case.pauses, shown.state.value, code, reason, seconds)


async def measure(names: list[str], baseline_seconds: float, folder: Path) -> dict[str, Any]:
    """Run the good experiment, and beside it the hostile ones. Return the document with all figures.

    Args:
        names: Names of the cases.
        baseline_seconds: Duration of each of the two measurements without a hostile experiment.
        folder: An empty folder.
    """
    spec = timed_spec(1, 1_000_000, PACE, name="good", policy=POLICY, resources={"slots": 1})
    outcomes: dict[str, Outcome] = {}
    periods: dict[str, Period] = {}
    async with up(folder / "data", agents=1, slots=2) as (_, client):
        good = await client.create(spec, TIMED)
        async with GoodClient(str(client._server), good) as calling:
            await asyncio.sleep(_WARM_UP_SECONDS)
            periods[BASELINES[0]] = await _baseline(baseline_seconds)
            for name in names:
                outcomes[name], periods[name] = await run(CASES[name], client, folder / name.replace(" ", "-"))
                one = outcomes[name]
                after = f"after {one.seconds:.1f} s" if one.seconds is not None else "without harm"
                PROGRESS.print(f"{name}: {one.state} {after}: {one.reason}", markup=False)
            periods[BASELINES[1]] = await _baseline(baseline_seconds)
        state = (await client.get(good)).state
        iterations = [one.report.metrics["began"] for one in await client.statistics(good)]
        await client.stop(good)
        await client.wait(good, LIMIT_SECONDS)
    rows, found = [], []
    if state is not ExperimentState.RUNNING:
        found.append(f"the good experiment is {state.value} and not RUNNING")
    for name, period in periods.items():
        seen, outcome = noticed(*period, calling.calls, iterations), outcomes.get(name)
        found += problems(name, seen, outcome)
        rows.append({"name": name, "noticed": asdict(seen), "outcome": asdict(outcome) if outcome else None})
    return {"rows": rows, "memory": memory(folder), "most_call_seconds": MOST_CALL_SECONDS, "problems": found}


async def _baseline(seconds: float) -> Period:
    began = time.time()
    await asyncio.sleep(seconds)
    return began, time.time()


def memory(folder: Path) -> dict[str, dict[str, float]]:
    """Return the number of plugin processes by kind, and their median resident and unique memory in MiB.

    Args:
        folder: The folder that contains the folders with the notes of the plugins.
    """
    found: dict[str, list[dict[str, int]]] = {}
    for file in sorted(folder.glob("*/*.memory")):
        found.setdefault(file.name.partition("-")[0], []).append(json.loads(file.read_text()))
    return {
        kind: {"processes": len(notes)}
        | {name: statistics.median(note[name] for note in notes) / 1024 for name in ("resident", "unique")}
        for kind, notes in found.items()
    }


def show(document: dict[str, Any]) -> None:
    """Print the figures as tables, and below them what is not allowed."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    before, after = (", ".join(map(str, document[name])) for name in ("load_before", "load_after"))
    title = f"{document['host']['cpu']}, {document['host']['cores']} cores, load {before} before, {after} after"
    table = Table(
        "hostile experiment",
        "state",
        "code",
        "after s",
        "call ms",
        "longest",
        "gap ms",
        "longest",
        title=title,
        box=None,
    )
    for row in document["rows"]:
        seen, outcome = Noticed(**row["noticed"]), Outcome(**row["outcome"]) if row["outcome"] else None
        seconds = outcome.seconds if outcome else None
        times = (seen.median_call, seen.longest_call, seen.median_gap, seen.longest_gap)
        table.add_row(
            f"[bold]{row['name']}[/]",
            outcome.state if outcome else "",
            outcome.code if outcome else "",
            f"{seconds:.1f}" if seconds is not None else "",
            *(f"{1e3 * value:,.1f}" for value in times),
        )
    console.print(table)
    sizes = Table("plugin process", "processes", "resident MiB", "unique MiB", box=None)
    for kind, one in document["memory"].items():
        sizes.add_row(kind, f"{one['processes']}", f"{one['resident']:.1f}", f"{one['unique']:.1f}")
    console.print(sizes)
    for row in document["rows"]:
        if row["outcome"]:
            console.print(f"{row['name']}: {row['outcome']['reason']}", markup=False, soft_wrap=True)
    for problem in document["problems"]:
        console.print(f"NOT ALLOWED: {problem}", style="bold red", markup=False, soft_wrap=True)


def main() -> int:
    """Run the command line. Return 1 if the good client waited too long, or a hostile experiment was not paused or answered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[*CASES], help="this case; may be given several times")
    parser.add_argument(
        "--baseline", type=float, default=15.0, help="seconds of each measurement without a hostile one"
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file, or - to the standard output")
    given = parser.parse_args()
    where, before = host(), _load()
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        found = asyncio.run(measure(given.only or [*CASES], given.baseline, Path(folder)))
    document = {"host": where, "load_before": before, "load_after": _load(), **found}
    text = json.dumps(document, indent=2)
    if given.json == "-":
        print(text)
    else:
        show(document)
        if given.json:
            Path(given.json).write_text(text + "\n")
    return 1 if document["problems"] else 0


def _load() -> list[float]:
    return [round(one, 2) for one in os.getloadavg()]


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")])
    sys.exit(main())
