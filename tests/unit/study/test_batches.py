"""Tests that requests at the same time are sent in one call, with the test's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from hopyard.client.types import Job, JobState
from hopyard.errors import Conflict, InvalidInput, Unavailable
from hopyard.study.batches import Batcher, TrainingRequest

pytestmark = pytest.mark.quick


class Transport:
    """Simulates a client: answers each call with jobs named after the requests, and refuses calls with a position below 1."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.called, self.open = asyncio.Event(), asyncio.Event()
        self.open.set()
        self.error: Exception | None = None

    async def send(self, wishes: Sequence[TrainingRequest]) -> list[Job]:
        self.calls.append([wish.request for wish in wishes])
        self.called.set()
        await self.open.wait()
        if self.error is not None:
            raise self.error
        assert len({wish.request for wish in wishes}) == len(wishes)
        if any(wish.request == "taken" for wish in wishes):
            raise Conflict("request_id: 'taken' asked for job 1")
        if any(wish.position < 1 for wish in wishes):
            raise InvalidInput("jobs[0].position: must be in 1..9")
        return [Job("x", f"job-{wish.request}", JobState.PENDING) for wish in wishes]


def wish(name: str, position: int = 1) -> TrainingRequest:
    return TrainingRequest({"lr": 0.1}, position, name)


async def test_those_of_one_turn_are_one_call() -> None:
    transport = Transport()
    batcher = Batcher(transport.send)
    jobs = await asyncio.gather(*(batcher.job(wish(name)) for name in "abc"))
    assert [job.id for job in jobs] == ["job-a", "job-b", "job-c"]
    assert transport.calls == [["a", "b", "c"]]


async def test_what_comes_during_a_call_goes_out_with_the_next_and_no_more_than_may() -> None:
    transport = Transport()
    batcher = Batcher(transport.send, most=2)
    transport.open.clear()
    first = asyncio.create_task(batcher.job(wish("a")))
    await transport.called.wait()
    others = [asyncio.create_task(batcher.job(wish(name))) for name in "bcd"]
    await asyncio.sleep(0)
    assert transport.calls == [["a"]]
    transport.open.set()
    assert [job.id for job in await asyncio.gather(first, *others)] == ["job-a", "job-b", "job-c", "job-d"]
    assert transport.calls == [["a"], ["b", "c"], ["d"]]


async def test_threads_join_while_it_pauses() -> None:
    transport, due = Transport(), asyncio.Event()

    async def pause() -> None:
        await due.wait()

    batcher = Batcher(transport.send, pause)
    first = asyncio.create_task(batcher.job(wish("a")))
    for _ in range(5):
        await asyncio.sleep(0)
    later = asyncio.create_task(batcher.job(wish("b")))
    await asyncio.sleep(0)
    assert not transport.calls
    due.set()
    await asyncio.gather(first, later)
    assert transport.calls == [["a", "b"]]


async def test_a_wrong_one_costs_nobody_else() -> None:
    transport = Transport()
    batcher = Batcher(transport.send)
    found = await asyncio.gather(
        *(batcher.job(wish(name, position)) for name, position in (("a", 1), ("b", 0), ("c", 2), ("d", 3))),
        return_exceptions=True,
    )
    assert [one.id if isinstance(one, Job) else type(one) for one in found] == ["job-a", InvalidInput, "job-c", "job-d"]
    # The error of the call names jobs[0]; the error of the request does not.
    assert str(found[1]) == "position: must be in 1..9"


async def test_equal_ones_are_asked_for_once_and_another_of_the_same_name_waits() -> None:
    transport = Transport()
    batcher = Batcher(transport.send)
    jobs = await asyncio.gather(*(batcher.job(wish(name, at)) for name, at in (("a", 1), ("a", 1), ("a", 2), ("b", 1))))
    assert [job.id for job in jobs] == ["job-a", "job-a", "job-a", "job-b"]
    assert transport.calls == [["a", "b"], ["a"]]


async def test_a_name_that_stands_for_something_else_costs_nobody_else() -> None:
    transport = Transport()
    batcher = Batcher(transport.send)
    chosen = wish("taken")._replace(named=True)
    found = await asyncio.gather(*map(batcher.job, (wish("a"), chosen, wish("b"))), return_exceptions=True)
    assert [one.id if isinstance(one, Job) else type(one) for one in found] == ["job-a", Conflict, "job-b"]
    transport.calls.clear()
    transport.error = Conflict("the experiment is COMPLETED")
    found = await asyncio.gather(*(batcher.job(wish(name)) for name in "ab"), return_exceptions=True)
    assert [str(one) for one in found] == 2 * ["the experiment is COMPLETED"]
    assert transport.calls == [["a", "b"]]


async def test_a_mistake_in_a_call_comes_to_who_asked_and_the_next_call_is_made() -> None:
    transport = Transport()
    transport.error = TypeError("a bug")
    batcher = Batcher(transport.send, most=1)
    found = await asyncio.gather(*(batcher.job(wish(name)) for name in "ab"), return_exceptions=True)
    assert [str(one) for one in found] == ["a bug", "a bug"]


async def test_an_error_of_the_call_is_everybodys_and_the_next_call_is_made() -> None:
    transport = Transport()
    transport.error = Unavailable("gone")
    batcher = Batcher(transport.send)
    found = await asyncio.gather(*(batcher.job(wish(name)) for name in "ab"), return_exceptions=True)
    assert [str(one) for one in found] == ["gone", "gone"]
    transport.error = None
    assert (await batcher.job(wish("a"))).id == "job-a"


async def test_who_is_cancelled_before_the_call_is_left_out_of_it() -> None:
    transport, due = Transport(), asyncio.Event()

    async def pause() -> None:
        await due.wait()

    batcher = Batcher(transport.send, pause)
    tasks = [asyncio.create_task(batcher.job(wish(name))) for name in "ab"]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    due.set()
    assert (await tasks[1]).id == "job-b"
    assert transport.calls == [["b"]]


async def test_closing_answers_all_who_wait() -> None:
    transport = Transport()
    batcher = Batcher(transport.send, most=1)
    transport.open.clear()
    tasks = [asyncio.create_task(batcher.job(wish(name))) for name in "ab"]
    await transport.called.wait()
    await batcher.close()
    for task in tasks:
        with pytest.raises(Conflict, match="the study was closed before this was"):
            await task
