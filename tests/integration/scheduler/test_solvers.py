"""Tests of solvers in a whole cluster: a policy asks, and a process of the scheduler answers, even after failures."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hopyard._runtime.processes.process_limits import ResourceLimits
from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState
from hopyard.errors import InvalidInput
from hopyard_engine.core.events import Answered
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.settings import AgentSettings, SlotSettings
from hopyard_scheduler.external_requests import solver_dispatcher
from hopyard_tools.commands.journal_source import opened
from tests.integration.children import running
from tests.integration.replay.test_commands import Commands
from tests.integration.scheduler.conftest import experiment
from tests.integration.scheduler.test_recovery import Pieces, pieces
from tests.timing import HANG_SECONDS, scaled

__all__ = ["pieces"]

POLICY = "policy: {{name: 'tests.integration.scheduler.solver_policy:Asking', kind: {kind}, payloads: {payloads}, seconds: {seconds}}}"


def file(folder: Path, solver: str, payloads: list[Any], seconds: float = 60.0, jobs: int = 1) -> Path:
    kind = json.dumps(f"tests.integration.solvers:{solver}" if solver.istitle() else solver)
    return experiment(
        folder, jobs=jobs, length=2, more=POLICY.format(kind=kind, payloads=json.dumps(payloads), seconds=seconds)
    )


async def answers(address: str, name: str) -> list[Answered]:
    async with opened(address, None, name, "a test") as source:
        events = [event async for _, event in source.read()]
    return [event for event in events if isinstance(event, Answered) and event.ticket.startswith("policy/")]


def processes() -> list[int]:
    return running("hopyard.solver.process")


def asked(folder: Path) -> list[int]:
    """Return the ids of the processes in which `Waiting` received a question."""
    return [int(file.stem) for file in folder.glob("*.asked")]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not holds():  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.02)


async def test_a_policy_gets_answers_which_people_see_and_a_replay_needs_no_solver(
    client: AsyncClient,
    address: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    created = await client.create(file(tmp_path / "e", "Adding", [[1, 2, 3], [4]], 7.0))
    assert (await client.wait(created.id, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
    found = await answers(address, created.id)
    assert [(a.result["sum"], a.error) for a in found] == [(6, ""), (4, "")]
    assert processes() == []
    monkeypatch.setattr("tests.integration.solvers.Adding.solve", None)
    commands = Commands(address, capfd)
    told = (await commands.events(created.id)).out
    assert "asks solver tests.integration.solvers:Adding" in told
    assert "with a limit of 7 s" in told
    assert "3 numbers in up to 7 s" in told
    replayed = await commands.replay(created.id)
    assert replayed.equal, replayed


@pytest.mark.timeout(240)
async def test_whatever_becomes_of_a_solver_the_policy_hears_it_and_goes_on(
    client: AsyncClient, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solver_dispatcher, "GRACE", scaled(0.5))
    what = ["raise", "refuse", "exit", "killed", "set", "large", "print"]
    created = await client.create(file(tmp_path / "e", "Bad", what, 100.0))
    sleeps = await client.create(file(tmp_path / "f", "Bad", ["sleep"], scaled(1.0)))
    for each in (created, sleeps):
        assert (await client.wait(each.id, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
    found = await answers(address, created.id)
    (late,) = await answers(address, sleeps.id)
    name = "solver tests.integration.solvers:Bad"
    said = [a.error for a in found]
    assert said[0].startswith(f"{name}: KeyError: 'nothing' (solvers.py:")
    assert said[1] == f"{name}: there is no answer to that"
    assert said[2] == f"{name}: its process ended with exit code 3 while it thought; it said: so long"
    assert said[3] == f"{name}: its process was killed by signal 9 while it thought"
    assert said[4].startswith(f"{name}: TypeError: Object of type set is not JSON serializable")
    assert said[5] == f"{name}: its answer has 2000002 bytes, at most 1000000 are allowed"
    assert [a.result for a in found] == [None] * 6 + ["print"]
    assert (late.result, late.error) == (None, f"{name} took longer than {scaled(2.0):g} s to answer")
    assert processes() == []


@pytest.mark.parametrize(
    ("how", "limits", "told"),
    [
        ("forks", ResourceLimits(processes=4), "it has started "),
        ("memory", ResourceLimits(memory_bytes=128 << 20), "out of memory: it used "),
    ],
)
async def test_a_solver_that_takes_too_much_is_ended_with_all_that_it_has_started(
    how: str, limits: ResourceLimits, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solver_dispatcher, "LIMITS", limits)
    with pytest.raises(InvalidInput, match=f"solver tests.integration.solvers:Bad: {told}"):
        await solver_dispatcher.solve_aside("tests.integration.solvers:Bad", how, HANG_SECONDS)
    assert processes() == []


async def test_who_is_not_there_is_said(client: AsyncClient, address: str, tmp_path: Path) -> None:
    created = await client.create(file(tmp_path / "e", "nobody", [1]))
    assert (await client.wait(created.id, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
    (found,) = await answers(address, created.id)
    assert found.error.startswith("hopyard.solvers: no plugin is called 'nobody'; there are: ")


async def test_a_killed_solver_is_an_error_and_the_end_of_an_experiment_ends_its_solvers(
    client: AsyncClient, address: str, tmp_path: Path
) -> None:
    kills = await client.create(file(tmp_path / "e", "Waiting", [str(tmp_path)], 600.0))
    await until(lambda: asked(tmp_path))
    os.kill(asked(tmp_path)[0], signal.SIGKILL)
    assert (await client.wait(kills.id, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
    (found,) = await answers(address, kills.id)
    assert found.error.endswith("its process was killed by signal 9 while it thought")
    stops = await client.create(file(tmp_path / "f", "Waiting", [str(tmp_path)] * 3, 600.0))
    await until(lambda: len(asked(tmp_path)) == 2)
    await client.stop(stops.id)
    assert (await client.wait(stops.id, timeout=HANG_SECONDS)).state is ExperimentState.STOPPED
    await until(lambda: not processes())
    assert await answers(address, stops.id) == []


@pytest.mark.timeout(240)
async def test_what_is_not_answered_when_the_scheduler_goes_is_asked_again(pieces: Pieces, tmp_path: Path) -> None:
    first = await pieces.scheduler()
    slots = (SlotSettings(id="n/0", cpus=1),)
    agent = NodeAgent(AgentSettings(node="n", scheduler=first.address, data=tmp_path / "agent", slots=slots))
    await agent.start()
    try:
        async with AsyncClient(server=first.address, patience=HANG_SECONDS) as client:
            created = await client.create(file(tmp_path / "e", "Waiting", [str(tmp_path)], 600.0))
            await until(lambda: asked(tmp_path))
            await first.stop(0)
            assert processes() == []
            second = await pieces.scheduler()
            await until(lambda: len(asked(tmp_path)) == 2)
            (tmp_path / "go").touch()
            ended = await client.wait(created.id, timeout=HANG_SECONDS)
            assert (ended.state, ended.reason) == (ExperimentState.COMPLETED, "all jobs ended")
            assert [a.result for a in await answers(second.address, created.id)] == ["answered"]
    finally:
        await agent.stop()
