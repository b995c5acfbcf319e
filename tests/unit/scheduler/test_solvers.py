"""Tests of the requests to solvers: bounded, in order within an experiment, each answered once. No process is started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hopyard._net.server import Background
from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import ExperimentId, StreamId
from hopyard_engine.core.effects import AskOutside
from hopyard_engine.core.events import Answered, Event
from hopyard_scheduler.external_requests.solver_dispatcher import AT_ONCE, MOST_OPEN, Solvers

pytestmark = pytest.mark.quick


class Shell:
    """The solvers with answers of the test: `thinking` has a future for each payload that is solved now."""

    def __init__(self, background: Background) -> None:
        self.solvers = Solvers(background, lambda: 7.0, self._solve)
        self.solvers.attach(self._post)
        self.thinking: dict[Any, asyncio.Future[Any]] = {}
        self.order: list[Any] = []
        self.answers: list[Answered] = []

    def _post(self, event: Event) -> None:
        assert isinstance(event, Answered)
        self.answers.append(event)

    async def _solve(self, kind: str, payload: Any, seconds: float) -> Any:
        assert (kind, seconds) == ("plan", 3.0)
        self.order.append(payload)
        self.thinking[payload] = asyncio.get_running_loop().create_future()
        try:
            return await self.thinking[payload]
        finally:
            del self.thinking[payload]

    def ask(self, experiment: str, *tickets: str) -> None:
        for ticket in tickets:
            self.solvers.ask(
                AskOutside(StreamId(experiment), ticket, "plan", f"{experiment}{ticket}", ExperimentId(""), 3.0)
            )


@pytest.fixture
async def shell() -> AsyncIterator[Shell]:
    background = Background("test")
    yield Shell(background)
    await background.stop()


async def settle() -> None:
    """Run the event loop until no task can continue."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_after_the_other_for_an_experiment_and_a_few_for_all(shell: Shell) -> None:
    shell.ask("a", "1", "2")
    shell.ask("b", "1")
    shell.ask("c", "1")
    await settle()
    assert len(shell.thinking) == AT_ONCE == 2
    assert list(shell.thinking) == ["a1", "b1"]
    shell.thinking["a1"].set_result("found")
    await settle()
    assert list(shell.thinking) == ["b1", "c1"]  # the request that has waited longest gets the free process
    shell.thinking["c1"].set_exception(InvalidInput("there is none"))
    shell.thinking["b1"].set_result(None)
    await settle()
    shell.thinking["a2"].set_result([1])
    await settle()
    assert sorted((a.stream, a.ticket, a.result, a.error) for a in shell.answers) == [
        ("a", "1", "found", ""),
        ("a", "2", [1], ""),
        ("b", "1", None, ""),
        ("c", "1", None, "there is none"),
    ]
    assert {a.at for a in shell.answers} == {7.0}


async def test_what_is_asked_again_goes_on_as_it_is(shell: Shell) -> None:
    shell.ask("a", "1", "1")
    await settle()
    shell.ask("a", "1")
    shell.thinking["a1"].set_result(1)
    await settle()
    assert (shell.order, len(shell.answers)) == (["a1"], 1)


@pytest.mark.merge
async def test_too_many_questions_are_answered_with_an_error(shell: Shell) -> None:
    shell.ask("a", *map(str, range(MOST_OPEN + 1)))
    shell.ask("b", "1")
    await settle()
    assert [(a.ticket, a.error) for a in shell.answers] == [
        (str(MOST_OPEN), f"{MOST_OPEN} questions of this experiment wait for their answers already")
    ]
    assert list(shell.thinking) == ["a0", "b1"]


async def test_what_is_withdrawn_is_not_answered(shell: Shell) -> None:
    shell.ask("a", "1", "2", "3")
    await settle()
    shell.solvers.withdraw(StreamId("a"), "1")
    shell.solvers.withdraw(StreamId("a"), "2")
    shell.solvers.withdraw(StreamId("a"), "not asked")
    await settle()
    assert list(shell.thinking) == ["a3"]
    shell.thinking["a3"].set_result(3)
    await settle()
    assert [a.ticket for a in shell.answers] == ["3"]


async def test_nothing_is_put_any_more_after_the_stop(shell: Shell) -> None:
    shell.solvers.stop()
    shell.ask("a", "1")
    await settle()
    assert (shell.thinking, shell.answers) == ({}, [])
