"""Tests of the exit code and end of a training process, also when the agent learns of its end late."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hopyard.v1 import application_pb2 as wire
from hopyard_nodeagent.runs import training_process
from hopyard_nodeagent.runs.launch_spec import LaunchSpec
from hopyard_nodeagent.runs.training_process import Runner, RunnerDied


class Ended:
    """A process that has ended with an exit code, which its agent learns only when it kills the process group."""

    pid = 1 << 22
    """Larger than any number of a process."""

    def __init__(self, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.returncode: int | None = None
        self._code = code
        self._heard = asyncio.Event()
        monkeypatch.setattr(os, "killpg", self._kill)

    def _kill(self, group: int, number: int) -> None:
        assert (group, number) == (self.pid, signal.SIGKILL)
        self.returncode = self._code
        self._heard.set()

    async def wait(self) -> int:
        await self._heard.wait()
        assert self.returncode is not None
        return self.returncode


async def hanging_up(runner: Runner) -> None:
    """Attach a process to the runner; its connection then ends."""

    async def requests() -> AsyncIterator[wire.AttachRequest]:
        yield wire.AttachRequest(hello=wire.AttachHello())

    async def respond(response: wire.AttachResponse) -> None:
        pass

    await runner.attach(requests(), respond)


def runner_of(process: Any) -> Runner:
    return Runner(process, "token", LaunchSpec("e", b"", ("program",)), Path("/dev/null"))


async def test_a_process_that_ended_by_itself_keeps_its_exit_code_however_late_that_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training_process, "_EXIT_SECONDS", 0.0)
    runner = runner_of(Ended(3, monkeypatch))
    making = asyncio.create_task(runner.execute(wire.ApplicationStart(), lambda request: None))
    await hanging_up(runner)
    with pytest.raises(RunnerDied, match=r"the training process ended with exit code 3 in the middle of a run") as died:
        await making
    assert (died.value.exit_code, died.value.by_itself) == (3, True)


async def test_a_process_that_lives_without_its_attachment_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_process, "_EXIT_SECONDS", 0.0)
    runner = runner_of(Ended(-signal.SIGKILL, monkeypatch))
    making = asyncio.create_task(runner.execute(wire.ApplicationStart(), lambda request: None))
    await hanging_up(runner)
    with pytest.raises(RunnerDied, match="lost its attachment and was killed") as died:
        await making
    assert (died.value.exit_code, died.value.by_itself) == (None, False)
