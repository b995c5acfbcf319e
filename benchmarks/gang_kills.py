"""Does a data-parallel job survive kill -9 of its ranks, their agents and the scheduler, and learn the same?

    python benchmarks/gang_kills.py [--kills 10] [--agents 3] [--pace 0.2] [--output results.json] [--json]

A job of `gang_kills/regression.py` trains on two slots of a live cluster started as by `hopyard up`, which restarts dead services. In
turn, the process of rank 0, that of rank 1, the agent of rank 0, the agent of rank 1 and the scheduler are killed, each when the job
has trained two epochs since the previous kill. Columns: what was killed, after which epoch, and the seconds until a later epoch was
reported. At the end: whether each epoch was reported once, whether the losses equal those of one undisturbed process (to 0.1 %), and
which processes are left after the cluster has stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
from figures.cluster import ended, processes, up

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, Job, JobState
from hopyard.local import fit
from hopyard.spec import configuration_seed

CODE: Final = Path(__file__).parent / "gang_kills"
RATE: Final = {"lr": 0.01}
VICTIMS: Final = ("rank 0", "rank 1", "agent of rank 0", "agent of rank 1", "scheduler")
PATIENCE: Final = 120.0


async def job_where(client: AsyncClient, experiment: Experiment, least: int) -> Job:
    """Return the job when it trains on two slots and has reported at least epoch `least`.

    Raises:
        TimeoutError: That takes longer than PATIENCE seconds.
    """
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for job in await client.jobs(experiment.id):
            if job.state is JobState.RUNNING and job.position >= least and len(job.slots) == 2:
                return job
        await asyncio.sleep(0.05)
    found = await client.get(experiment.id)
    raise TimeoutError(
        f"after {PATIENCE:g} s the job is not at epoch {least} on two slots: {await client.jobs(experiment.id)}, {found.reason}"
    )


def kill(victim: str, job: Job) -> None:
    """Kill the scheduler, a process of the job's run, or the agent of one of its ranks with SIGKILL. `victim` is one of VICTIMS."""
    if victim == "scheduler":
        (scheduler,) = (p for p in processes() if "hopyard_scheduler" in p.cmdline())
        os.kill(scheduler.pid, signal.SIGKILL)
        return
    node = job.slots[int(victim[-1])].partition("/")[0]
    (agent,) = (p for p in processes() if "hopyard_nodeagent" in p.cmdline() and node in p.cmdline())
    victims = [agent] if victim.startswith("agent") else agent.children()
    for process in victims:
        os.kill(process.pid, signal.SIGKILL)


async def measure(kills: int, agents: int, pace: float) -> dict[str, Any]:
    """Run the whole benchmark, and return its figures."""
    epochs = 15 * kills + 6  # More than two per kill: the job continues to train while the scheduler is down.
    spec = {
        "name": "kills",
        "trainer": "regression.py:Regression",
        "metric": {"name": "train_loss", "mode": "min"},
        "space": {"lr": {"choice": [RATE["lr"]]}},
        "policy": {"name": "default", "elastic": {"profile": {"2": 1.0}}},
        "stop": {"jobs": 1, "max_iterations": epochs, "max_failures": 0},
        "environment": {"ELASTIC_PACE": str(pace)},
    }
    rows, seen = [], dict[int, psutil.Process]()
    with tempfile.TemporaryDirectory() as folder:
        async with up(Path(folder), agents, 1) as (cluster, client), asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(cluster.keep())
            experiment = await client.create(spec, CODE)
            position = 0
            for number in range(kills):
                job = await job_where(client, experiment, position + 2)
                seen |= {process.pid: process for process in processes()}
                position, victim = job.position, VICTIMS[number % len(VICTIMS)]
                kill(victim, job)
                began = time.monotonic()
                again = await job_where(client, experiment, position + 1)
                rows.append(
                    {"killed": victim, "epoch": position, "seconds": time.monotonic() - began, "attempt": again.attempt}
                )
                position = again.position
                sys.stderr.write(f"{rows[-1]}\n")
            seen |= {process.pid: process for process in processes()}
            await ended(client, experiment)
            (job,) = await client.jobs(experiment.id)
            reports = [one.report for one in await client.statistics(experiment.id, job.id)]
            keeping.cancel()
        left = [pid for pid, process in seen.items() if _lives(process)]
    losses = {report.position: report.metrics["train_loss"] for report in reports}
    same = await asyncio.to_thread(alone, epochs)
    return {
        "kills": rows,
        "attempts": job.attempt,
        "failures": job.failures,
        "each_epoch_once": [report.position for report in reports] == list(range(1, epochs + 1)),
        "same": all(math.isclose(losses[at], loss, rel_tol=1e-3) for at, loss in same.items()),
        "processes_left": left,
    }


def alone(epochs: int) -> dict[int, float]:
    """Return the loss of each epoch in one process that is not disturbed."""
    os.environ["ELASTIC_PACE"] = "0"
    trainer = runpy.run_path(str(CODE / "regression.py"))["Regression"]
    reports = fit(trainer, RATE, until=epochs, seed=configuration_seed(0, RATE))
    return {report.position: report.metrics["train_loss"] for report in reports}


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def table(found: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = ["| killed | at epoch | further after, s |", "|---|---|---|"]
    lines += [f"| {row['killed']} | {row['epoch']} | {row['seconds']:.1f} |" for row in found["kills"]]
    rest = {name: value for name, value in found.items() if name != "kills"}
    return "\n".join([*lines, "", *(f"{name.replace('_', ' ')}: {value}" for name, value in rest.items())])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--pace", type=float, default=0.2)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    found = asyncio.run(measure(given.kills, given.agents, given.pace))
    if given.output:
        given.output.write_text(json.dumps(found, indent=1))
    sys.stdout.write((json.dumps(found) if given.json else table(found)) + "\n")


if __name__ == "__main__":
    main()
