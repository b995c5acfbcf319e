"""Tests of a policy that waits for predictions, while scheduler, agents and predictor processes are killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from hopyard.client import Client
from hopyard.client.types import Experiment, ExperimentState
from hopyard.policy.vocabulary import Predict
from hopyard_engine.core import Core
from hopyard_engine.core.effects import WithdrawQuestion
from hopyard_engine.core.events import Answered, PolicyAnswered
from hopyard_tools.commands.journal_source import opened
from tests.e2e import kills
from tests.e2e.harness import softmax_file
from tests.e2e.up import IS_UP, Up
from tests.timing import HANG_SECONDS

JOBS, LENGTH, STEP = 4, 12, 2


def until(condition: Callable[[], bool], what: str, seconds: float = HANG_SECONDS) -> None:
    """Wait until a condition about other processes is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited for {what}"
        time.sleep(0.05)


def predictors(agent: int) -> list[int]:
    """Return the ids of an agent's predictor processes."""
    try:
        children = psutil.Process(agent).children()
        return [p.pid for p in children if "hopyard.predictor.process" in p.cmdline()]
    except psutil.NoSuchProcess:
        return []


def killed_one(processes: list[int]) -> bool:
    """Kill the first process; return False if there is none or it has just ended."""
    with suppress(ProcessLookupError, IndexError):
        os.kill(processes[0], signal.SIGKILL)
        return True
    return False


def kill(up: Up, name: str) -> None:
    """Kill a service and wait until it serves again."""
    pid = up.pids.pop(name)
    os.kill(pid, signal.SIGKILL)
    up.wait_serving(name)


class Tickets:
    """The result of each question to a predictor, as the journal records it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answered: list[str] = []
        self.withdrawn: list[str] = []
        self.errors: list[str] = []

    @classmethod
    async def of(cls, server: str, experiment: Experiment) -> Tickets:
        """Read the journal of an experiment."""
        found, core = cls(), Core()
        async with opened(server, None, experiment.id, "a test") as source:
            async for _, event in source.read():
                if isinstance(event, PolicyAnswered):
                    found.asked += [f"policy/{c.ticket}" for c in event.answer.commands if isinstance(c, Predict)]
                if isinstance(event, Answered) and event.ticket.startswith("policy/"):
                    found.answered.append(event.ticket)
                    found.errors += [event.error] if event.error else []
                effects = core.restore(event)  # type: ignore[arg-type]
                found.withdrawn += [effect.ticket for effect in effects if isinstance(effect, WithdrawQuestion)]
        return found


@pytest.mark.timeout(400)
async def test_each_question_is_answered_once_whoever_is_killed(tmp_path: Path) -> None:
    file = softmax_file(
        tmp_path / "e",
        policy={"name": "tests.integration.scheduler.prediction_policies:Patient", "step": STEP},
        predictor={"name": "tests.integration.predictors:Toy", "seconds": 0.2},
        stop={"jobs": JOBS, "max_iterations": LENGTH},
    )
    enough = tmp_path / "enough"
    paced = {"SOFTMAX_PACE": "0.3", "SOFTMAX_ENOUGH": str(enough), "SOFTMAX_HELD": f"{JOBS}:{LENGTH - 1}"}
    up = Up(tmp_path / "data", slots=1, **paced)
    try:
        up.wait_for(IS_UP)
        server = up.server
        with Client(server=server, patience=HANG_SECONDS) as client:
            experiment = client.create(file)
            progress = kills.progress_of(client, experiment)
            until(lambda: progress() >= JOBS * 2, "the first predictions")
            kill(up, "scheduler")
            until(lambda: progress() >= JOBS * 4, "predictions under another scheduler")
            agent = up.wait_serving("agent-node1")
            until(lambda: bool(predictors(agent)), "a predictor")
            orphans = predictors(agent)
            kill(up, "agent-node1")
            until(lambda: not any(psutil.pid_exists(orphan) for orphan in orphans), "the end of its predictors")
            agent = up.wait_serving("agent-node2")
            until(lambda: killed_one(predictors(agent)), "a predictor")
            assert not client.get(experiment.id).state.ended, "it was over before the last kill"
            enough.touch()
            experiment = client.wait(experiment.id, timeout=2 * HANG_SECONDS)
            assert experiment.state is ExperimentState.COMPLETED
            assert {len(curve) for curve in kills.curves(client, experiment).values()} == {LENGTH}
            found = await Tickets.of(server, experiment)
            assert len(found.asked) >= JOBS * (LENGTH // STEP - 1)
            assert sorted(found.answered + found.withdrawn) == sorted(found.asked)
            assert all("was killed by SIGKILL" in error for error in found.errors)
            assert kills.replayed(server, experiment)["decisions_equal"] is True
    finally:
        if up.process.poll() is None:
            up.stop()
