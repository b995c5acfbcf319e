"""Kills processes of a cluster at random moments, and reads the results that must not depend on the kills."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil

from hopyard.client import Client
from hopyard.client.types import Experiment
from hopyard.policy.vocabulary import RunKey
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Send
from hopyard_tools.commands.journal_source import opened
from tests.e2e.harness import REPOSITORY, Curve
from tests.e2e.up import IS_UP, Up
from tests.timing import HANG_SECONDS

SERVICES: Final = ("scheduler", "appstat", "hpgen", "agent-node1", "agent-node2")
KILLS: Final = Counter(
    {"scheduler": 4, "appstat": 4, "hpgen": 3, "agent-node1": 2, "agent-node2": 2, "runner": 4, "up": 1}
)
"""Twenty kills; `hopyard up` stops when a service dies five times in a minute."""

EACH: Final = Counter(
    {"scheduler": 2, "appstat": 1, "hpgen": 1, "agent-node1": 1, "agent-node2": 1, "runner": 2, "up": 1}
)
"""Nine kills, for tests that need fewer than the twenty of another test."""

SLOTS: Final = 2
"""Slots of each of the two agents."""

LOG_LINES: Final = 40
"""Number of lines of each log in a failure report."""

Row = tuple[Any, ...]


class Disturbed:
    """A cluster under `hopyard up` whose processes are killed by a plan that is drawn with a seed.

    Args:
        data: The data directory.
        seed: Seed of the plan: the order of the victims, the progress at each kill, and the delay after it.
        pace: The least seconds of an iteration until the last kill.
        victims: The processes to kill, with the number of kills of each.
        held: JOB:POSITION: until the last kill, this job and later ones train no further than this position.
    """

    def __init__(self, data: Path, seed: int, pace: float, victims: Counter[str] = KILLS, held: str = "") -> None:
        self.data = data
        self.seed = seed
        self.victims = victims
        self.killed: list[str] = []
        self._environment = {
            "SOFTMAX_PACE": str(pace),
            "SOFTMAX_ENOUGH": str(data / "enough"),
            "SOFTMAX_HELD": held,
        }
        self._rng = random.Random(seed)
        self._began = time.monotonic()
        self.up = self._new()

    @property
    def server(self) -> str:
        """Return the scheduler's address, which is the same after each restart."""
        return self._server

    def _new(self) -> Up:
        return Up(self.data, slots=SLOTS, **self._environment)

    def wait_up(self) -> None:
        """Wait until all services serve."""
        self.up.wait_for(IS_UP)
        self._server = self.up.server

    def disturb(self, progress: Callable[[], int], until: int) -> None:
        """Kill all victims, the last one at a progress of `until` at the latest.

        Some kills follow the one before after a short delay; the others happen at a random progress.
        """
        plan = sorted(self.victims.elements())
        self._rng.shuffle(plan)
        moments = sorted(self._rng.randrange(1, until) for _ in plan)
        for victim, moment in zip(plan, moments, strict=True):
            if self._rng.random() < 0.5:
                while progress() < moment:
                    time.sleep(0.05)
            time.sleep(self._rng.uniform(0.0, 0.6))
            self._kill(victim)
            self.killed.append(f"{time.monotonic() - self._began:.1f} s: {victim}")

    def let_go(self) -> None:
        """Let the rest of the training run at full speed."""
        (self.data / "enough").touch()

    def _kill(self, victim: str) -> None:
        if victim == "up":
            self.up.kill()
            self.up = self._new()
            self.wait_up()
        elif victim == "runner":
            while not _killed(self._rng.choice(self._runners())):
                pass
        else:
            pid = self.up.wait_serving(victim)
            self.up.pids.pop(victim, None)
            os.kill(pid, signal.SIGKILL)

    def _runners(self) -> list[int]:
        """Return the sorted ids of the training processes; wait until there is at least one."""
        end = time.monotonic() + HANG_SECONDS
        while time.monotonic() < end:
            found = []
            for agent in ("agent-node1", "agent-node2"):
                try:
                    found += [p.pid for p in psutil.Process(self.up.wait_serving(agent)).children()]
                except psutil.NoSuchProcess:
                    continue  # It has just died, and `up` has not reported it yet.
            if found:
                return sorted(found)
            time.sleep(0.05)
        raise AssertionError("nobody trains")

    def stop(self) -> None:
        """End the cluster as Ctrl-C does."""
        if self.up.process.poll() is None:
            self.up.stop()

    def story(self) -> str:
        """Return what is needed to understand a failure.

        It contains the seed, the kills with their times, the output of `up`, the state of the cluster, and the ends of the logs.
        """
        parts = [f"seed {self.seed}: killed {self.killed}\n", *self.up.said]
        if self.up.process.poll() is None:
            parts += [_output("experiments", self.server), _output("jobs", self.server), _output("nodes", self.server)]
        for log in sorted(self.data.rglob("*.log")):
            if "jobs" not in log.parts:
                parts.append(f"{log}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:]) + "\n")
        return "".join(parts)


def _output(command: str, server: str) -> str:
    """Return the output and the errors of a command that reads a cluster, which may not answer."""
    given = [sys.executable, "-m", "hopyard.cli.main", command, "--server", server]
    try:
        done = subprocess.run(given, capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return f"hopyard {command}: no answer within 20 s\n"
    return f"hopyard {command}:\n{done.stdout}{done.stderr}"


def _killed(pid: int) -> bool:
    """Kill a process; return whether it still existed."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def progress_of(client: Client, experiment: Experiment) -> Callable[[], int]:
    """Return a function that returns the positions trained so far by all jobs; repeated training counts once."""
    furthest: dict[str, int] = {}

    def progress() -> int:
        for job in client.jobs(experiment.id):
            furthest[job.id] = max(furthest.get(job.id, 0), job.position)
        return sum(furthest.values())

    return progress


def table(client: Client, experiment: Experiment) -> list[Row]:
    """Return the final table: what was trained and its results, without times, attempts and slots."""
    return [
        (
            job.id,
            dict(job.hyperparameters),
            job.state.value,
            job.position,
            _exact(job.best_value),
            job.best_position,
            _exact(job.last_value),
        )
        for job in client.jobs(experiment.id)
    ]


def curves(client: Client, experiment: Experiment) -> dict[str, Curve]:
    """Return each job's recorded curve; fail if a position is missing or recorded twice."""
    found = {}
    for job in client.jobs(experiment.id):
        reports = [statistic.report for statistic in client.statistics(experiment.id, job.id)]
        positions = [report.position for report in reports]
        assert positions == list(range(1, len(positions) + 1)), f"job {job.id}: {positions}"
        found[job.id] = {r.position: {name: value.hex() for name, value in r.metrics.items()} for r in reports}
    return found


def _exact(value: float | None) -> str:
    return "none" if value is None else value.hex()


Command = tuple[str, str, RunKey, int]
"""A command: its kind, its node, its channel and its number there."""


async def sent(server: str, experiment: Experiment) -> set[Command]:
    """Return the commands that follow from the journal, by replaying it in a new engine."""
    core = Core()
    found: set[Command] = set()
    async with opened(server, None, experiment.id, "a test") as source:
        async for _, event in source.read():
            for effect in core.restore(event):  # type: ignore[arg-type]
                if isinstance(effect, Send):
                    kind = type(effect.body).__name__.lower()
                    found.add((kind, effect.node, effect.run, effect.sequence))
    return found


def carried_out(data: Path, node: str) -> list[Command]:
    """Return the commands that the agent of a node carried out in all its incarnations, in order."""
    lines = (data / f"agent-{node}" / "logs" / "commands.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [(line["kind"], node, RunKey(*line["run"]), line["sequence"]) for line in found]


def replayed(server: str, experiment: Experiment) -> dict[str, Any]:
    """Return the JSON output of `hopyard replay`."""
    found: dict[str, Any] = json.loads(command("replay", experiment.id, "--server", server, "--json"))
    return found


def command(*arguments: str) -> str:
    """Run a command that must succeed, and return its output."""
    given = [sys.executable, "-m", "hopyard.cli.main", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(given, capture_output=True, text=True, timeout=HANG_SECONDS, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
