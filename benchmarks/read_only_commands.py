"""How long read-only commands take: on stored data, at a running cluster, and with services started for the command.

    python benchmarks/read_only_commands.py [--runs 7] [--jobs 24] [--json FILE|-]

Each command is a separate process, timed from its start to its exit. "services started" is what a command costs that starts AppStat,
generators and scheduler in the data directory and stops them again, as commands that change something do. All are measured once, then
all again, `--runs` times, after one run that is not counted, in which Python stores the bytecode of all modules, as an installation
does. The table shows medians of the elapsed seconds, and in brackets of the CPU seconds, which depend less on what else the computer
does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from figures.cluster import embedded, ended
from figures.frame import host
from figures.timing import TIMED, timed_spec
from rich.console import Console
from rich.table import Table

from hopyard.client.local_cluster.embedded import EmbeddedCluster

PROGRESS: Final = Console(stderr=True, soft_wrap=True)

COMMANDS: Final = (
    ("experiments",),
    ("experiments", "--json"),
    ("jobs",),
    ("jobs", "--json"),
    ("best",),
    ("curve",),
    ("nodes",),
    ("results",),
    ("logs", "1"),
    ("trace",),
    ("wait",),
    ("plot", "--json"),
    ("events",),
    ("rungs",),
    ("replay",),
)

_SERVICES: Final = """
import sys
from pathlib import Path
from hopyard.cli.connect import with_client
with_client(None, Path(sys.argv[1]), "a benchmark", lambda client: client.experiments())
"""


Spent = tuple[float, float]
"""Elapsed seconds and CPU seconds."""


def seconds(command: Sequence[str]) -> Spent:
    """Return the seconds of a process, with those that it starts, from its start to its exit."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr}")
    elapsed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def hopyard(data: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command line of a command on a data directory."""
    return [sys.executable, "-m", "hopyard.cli.main", *arguments, "--data", str(data)]


async def train(data: Path, jobs: int) -> None:
    """Run an experiment under `asha` in a data directory."""
    spec = timed_spec(jobs, 9, 0.0, policy={"name": "asha"}, metric={"name": "gap", "mode": "min"})
    async with embedded(data, 2) as (_, client):
        await ended(client, await client.create(spec, TIMED))


async def measure(data: Path, runs: int) -> list[dict[str, Any]]:
    """Measure all commands `runs` times on a data directory, after a run that is not counted, and return a row of medians for each."""
    stored: dict[tuple[str, ...], list[Spent]] = {command: [] for command in COMMANDS}
    live: dict[tuple[str, ...], list[Spent]] = {command: [] for command in COMMANDS}
    services: list[Spent] = []
    for run in range(runs + 1):
        for command in COMMANDS:
            stored[command].append(seconds(hopyard(data, command)))
        services.append(seconds([sys.executable, "-c", _SERVICES, str(data)]))
        cluster = EmbeddedCluster(data, slots=0, purpose="a benchmark")
        await cluster.start()
        try:
            for command in COMMANDS:
                if command[0] != "logs":  # the cluster has no node
                    live[command].append(await asyncio.to_thread(seconds, hopyard(data, command)))
        finally:
            await cluster.stop()
        if run == 0:
            for spent in (*stored.values(), *live.values(), services):
                spent.clear()
        PROGRESS.print(f"run {run} of {runs}")
    return [
        {
            "command": " ".join(command),
            **_medians("stored", stored[command]),
            **_medians("live", live[command]),
            **_medians("services", services),
        }
        for command in COMMANDS
    ]


def _medians(name: str, spent: list[Spent]) -> dict[str, float | None]:
    """Return the medians of the elapsed and the CPU seconds; None: the command was not measured so."""
    elapsed, cpu = zip(*spent, strict=True) if spent else ((), ())
    return {
        f"{name}_s": statistics.median(elapsed) if elapsed else None,
        f"{name}_cpu_s": statistics.median(cpu) if cpu else None,
    }


def show(rows: list[dict[str, Any]], where: dict[str, Any]) -> None:
    """Print the rows as a table."""
    title = f"{where['cpu']}, {where['cores']} cores, {where['memory_gib']} GiB, Python {where['python']}"
    table = Table("command", "stored data", "running cluster", "services started", title=title, box=None)
    for row in rows:
        times = ((row[f"{name}_s"], row[f"{name}_cpu_s"]) for name in ("stored", "live", "services"))
        cells = ("-" if elapsed is None else f"{elapsed:.2f} s ({cpu:.2f} s)" for elapsed, cpu in times)
        table.add_row(f"hopyard {row['command']}", *cells)
    Console().print(table)


def main() -> None:
    """Measure, and print the table or write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=24, help="jobs of the experiment that the commands query")
    parser.add_argument("--json", metavar="FILE", help="write the rows to this file; -: to stdout")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="read-only-") as folder:
        data = Path(folder) / "data"
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "bytecode")
        asyncio.run(train(data, arguments.jobs))
        rows = asyncio.run(measure(data, arguments.runs))
    document = {"host": host(), "rows": rows}
    if arguments.json == "-":
        print(json.dumps(document, indent=2))
        return
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(document, indent=2))
    show(rows, host())


if __name__ == "__main__":
    main()
