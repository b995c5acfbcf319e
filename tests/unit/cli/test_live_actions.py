"""Tests of how the live view performs the commands of its keys with a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from hopyard.cli.live.actions import LiveActions
from hopyard.cli.live.controls import Action, Command, Controls
from hopyard.cli.live.log_tail import LogTail
from hopyard.client.types import LogChunk
from hopyard.errors import Conflict, NotFound
from tests.unit.cli.test_live import experiment

pytestmark = pytest.mark.quick


class Client:
    """A client that records its calls. Job 9 has ended, and the log of job 2 never ends."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.following = asyncio.Event()
        self.closed = False

    async def pause_job(self, _: object, job: str) -> None:
        if job == "9":
            raise Conflict("job 9 has ended\nand more")
        self.calls.append(f"pause {job}")

    async def resume_job(self, _: object, job: str) -> None:
        self.calls.append(f"resume {job}")

    async def pause(self, _: object) -> None:
        self.calls.append("pause")

    async def resume(self, _: object) -> None:
        self.calls.append("resume")

    async def logs(self, _: object, job: str, *, follow: bool) -> AsyncGenerator[LogChunk]:
        if job == "9":
            raise NotFound("no node has a log of job 9")
        assert follow
        yield LogChunk("a", b"epoch 1\n", 0)
        if job == "1":
            return
        self.following.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.closed = True


def made() -> tuple[Client, Controls, LiveActions, list[str]]:
    client, controls, left = Client(), Controls(), list[str]()
    return client, controls, LiveActions(cast("Any", client), experiment(), controls, lambda: left.append("left")), left


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("command", "call", "notice"),
    [
        (Command(Action.PAUSE_JOB, "2"), "pause 2", "job 2 is paused; p resumes it"),
        (Command(Action.RESUME_JOB, "2"), "resume 2", "job 2 may start again"),
        (Command(Action.PAUSE), "pause", "the experiment is paused; P resumes it"),
        (Command(Action.RESUME), "resume", "the experiment continues"),
    ],
)
async def test_commands_become_calls_and_say_what_they_did(command: Command, call: str, notice: str) -> None:
    client, controls, actions, left = made()
    actions.perform(command)
    await settle()
    assert (client.calls, controls.notice, left) == ([call], notice, [])


async def test_an_error_of_the_cluster_is_a_notice() -> None:
    _, controls, actions, _ = made()
    actions.perform(Command(Action.PAUSE_JOB, "9"))
    await settle()
    assert controls.notice == "job 9 has ended"


async def test_leave_is_told_to_the_command() -> None:
    _, _, actions, left = made()
    actions.perform(Command(Action.LEAVE))
    assert left == ["left"]


@pytest.mark.parametrize(
    ("job", "lines", "message"),
    [("1", ["epoch 1"], "end of the log"), ("2", ["epoch 1"], ""), ("9", [], "no node has a log of job 9")],
)
async def test_a_log_is_followed_and_says_why_there_is_no_more(job: str, lines: list[str], message: str) -> None:
    client, controls, actions, _ = made()
    controls.log = log = LogTail(job)
    actions.perform(Command(Action.FOLLOW_LOG, job))
    await settle()
    assert (list(log.lines()), log.message) == (lines, message)
    actions.perform(Command(Action.CLOSE_LOG))
    await settle()
    assert client.closed == client.following.is_set()
    await actions.close()


async def test_what_is_not_finished_ends_with_the_view() -> None:
    client, controls, actions, _ = made()
    controls.log = LogTail("2")
    actions.perform(Command(Action.FOLLOW_LOG, "2"))
    await client.following.wait()
    await actions.close()
    assert client.closed
