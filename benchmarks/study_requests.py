"""What does an evaluation that a study has already trained cost the scheduler?

    python benchmarks/study_requests.py [--requests 1000] [--runs 3] [--json FILE|-]

A study under `hopyard up` has trained some configurations to the end. Then each configuration is requested at every position before its
end, all at once; these requests are answered without a run. The baseline is the same number of requests of a second study, sent one
after another with one call each. Figures are CPU time of the scheduler's process until the cluster is idle again.
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil
from figures.cluster import NOOP, at_rest, noop_spec, processes, up
from figures.frame import host
from rich.console import Console
from rich.table import Table

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, Job
from hopyard.study import AsyncStudy

POSITIONS: Final = 20
"""Number of positions of each configuration that are requested."""

TARGET_MS: Final = 2.0


class Counting(AsyncClient):
    """A client that counts its calls that request jobs."""

    calls = 0

    async def request_all(
        self,
        experiment: str | Experiment,
        wanted: Sequence[tuple[Mapping[str, Any], int]],
        *,
        request_ids: Sequence[str] = (),
    ) -> list[Job]:
        self.calls += 1
        return await super().request_all(experiment, wanted, request_ids=request_ids)


def scheduler() -> psutil.Process:
    """Return the process of the scheduler."""
    (found,) = [one for one in processes() if {"hopyard_scheduler", "scheduler"} & set(one.cmdline())]
    return found


async def measured(server: str, requests: int, *, together: bool) -> dict[str, float]:
    """Run the requests of one study, all at once (`together`) or one after another, and return the figures."""
    async with Counting(server) as client:
        study = await AsyncStudy(client).create(noop_spec(0, POSITIONS + 1, seed=int(together)), NOOP)
        async with study:
            configurations = [{"x": (number + 0.5) * POSITIONS / requests} for number in range(requests // POSITIONS)]
            await study.wait_all([study.start(one, POSITIONS + 1) for one in configurations])
            await at_rest()
            wanted = [(one, position) for position in range(1, POSITIONS + 1) for one in configurations]
            process, client.calls = scheduler(), 0
            before, began = _cpu(process), time.monotonic()
            if together:
                answers = await study.wait_all([study.start(*each) for each in wanted])
            else:
                answers = [await study.eval(*each) for each in wanted]
            seconds = time.monotonic() - began
            await at_rest()
            spent = _cpu(process) - before
            jobs = await client.jobs(study.experiment)
            if any(job.attempt for job in jobs[len(configurations) :]) or len(answers) != len(wanted):
                raise RuntimeError("a request was trained that was trained before")
            return {
                "requests": len(wanted),
                "calls": client.calls,
                "cpu_ms_each": 1e3 * spent / len(wanted),
                "wall_ms_each": 1e3 * seconds / len(wanted),
            }


def _cpu(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:2])


async def runs(requests: int, count: int) -> list[dict[str, Any]]:
    """Measure both kinds of requests `count` times, each time on a new cluster."""
    found = []
    for _ in range(count):
        with tempfile.TemporaryDirectory(prefix="study-requests-") as data:
            async with up(Path(data), agents=1, slots=2) as (_, client):
                server = str(client._server)
                found.append(
                    {
                        "together": await measured(server, requests, together=True),
                        "one by one": await measured(server, requests, together=False),
                    }
                )
    return found


def main() -> int:
    """Run the command line. Return 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000, help=f"how many; a multiple of {POSITIONS}")
    parser.add_argument("--runs", type=int, default=3, help="how often each figure is measured")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file, or - to the standard output")
    given = parser.parse_args()
    if given.requests < POSITIONS or given.requests % POSITIONS:
        parser.error(f"--requests must be a multiple of {POSITIONS}, found {given.requests}")
    found = asyncio.run(runs(given.requests, given.runs))
    rows = {
        way: {name: statistics.median(run[way][name] for run in found) for name in found[0][way]} for way in found[0]
    }
    met = rows["together"]["cpu_ms_each"] <= TARGET_MS
    text = json.dumps({"host": host(), "medians": rows, "runs": found, "most_ms": TARGET_MS, "met": met}, indent=2)
    if given.json == "-":
        print(text)
    else:
        table = Table("requests", "number", "calls", "scheduler CPU ms each", "wall ms each", box=None)
        for way, row in rows.items():
            shown = [f"{row[name]:.3g}" for name in ("cpu_ms_each", "wall_ms_each")]
            table.add_row(way, f"{row['requests']:.0f}", f"{row['calls']:.0f}", *shown)
        Console().print(table)
        Console().print(
            f"target: at most {TARGET_MS:g} ms of scheduler CPU each, together: {'met' if met else 'NOT met'}"
        )
        if given.json:
            Path(given.json).write_text(text + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")])
    sys.exit(main())
