"""Tests of watchers whose clients read slowly or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from hopyard._net.rpc.channel import token_metadata
from hopyard._net.server import Server
from hopyard.errors import Exhausted
from hopyard.policy.vocabulary import ExperimentId, Report
from hopyard.v1 import experiment_pb2 as pb
from hopyard.v1 import experiment_pb2_grpc
from hopyard_engine.core.effects import ReportAccepted
from hopyard_engine.core.events import Operated
from hopyard_engine.core.state.stream import Stream
from hopyard_scheduler.converters import EXPERIMENT_STATES
from hopyard_scheduler.experiments import waiting_reasons, watchers
from hopyard_scheduler.experiments.queries import ExperimentQueries
from hopyard_scheduler.experiments.watchers import Watcher, Watchers, WatchQueue, send_while_read
from hopyard_scheduler.servicers.experiments import ExperimentServicer
from tests.access import AcceptEveryone
from tests.timing import HANG_SECONDS
from tests.unit.core.rig import Rig


def accepted(position: int) -> ReportAccepted:
    report = Report(position, {"m": 1.0}, 1.0)
    return ReportAccepted(ExperimentId("x"), "1", 1, report)


@pytest.mark.quick
async def test_a_watcher_is_slow_when_its_queue_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchers, "MAX_REPORTS", 3)
    register, slow, reading = Watchers(), Watcher(), Watcher()
    register.add("x", slow)
    register.add("x", reading)
    for position in range(1, 10):
        register.publish(set(), set(), [accepted(position)])
        assert slow.slow.is_set() == (position > 3)
        assert [one.report.position for one in reading.reports] == [position]
        reading.reports.clear()
    assert not slow.reports
    assert not reading.slow.is_set()


async def changes(closed: asyncio.Event) -> AsyncGenerator[int]:
    try:
        yield 1
        yield 2
    finally:
        closed.set()


@pytest.mark.quick
async def test_a_write_that_waits_does_not_keep_a_slow_watch() -> None:
    slow, closed, writing = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def write(change: int) -> None:
        writing.set()
        await asyncio.Event().wait()

    sending = asyncio.create_task(send_while_read(changes(closed), write, slow))
    await writing.wait()
    slow.set()
    with pytest.raises(Exhausted, match="reads too slowly"):
        await sending
    assert closed.is_set()


@pytest.mark.quick
async def test_a_watch_that_is_read_ends_with_its_changes_or_their_error() -> None:
    written: list[int] = []

    async def write(change: int) -> None:
        written.append(change)

    async def broken() -> AsyncGenerator[int]:
        yield 3
        raise ValueError("broken")

    await send_while_read(changes(asyncio.Event()), write, asyncio.Event())
    with pytest.raises(ValueError, match="broken"):
        await send_while_read(broken(), write, asyncio.Event())
    assert written == [1, 2, 3]


class BusyExperiment:
    """Stands for the commands of a scheduler whose experiment reports all the time."""

    def __init__(self) -> None:
        self.queries = self
        self.ended = asyncio.Event()

    async def watch(self, name: str, watcher: Watcher) -> AsyncGenerator[pb.WatchExperimentResponse]:
        """Yield large changes without end, and add a report to the watcher for each moment that passes."""
        adding = asyncio.create_task(self._report(watcher), name="reports")
        try:
            while True:
                yield pb.WatchExperimentResponse(job=pb.Job(id="1" * 10_000))
        finally:
            adding.cancel()
            self.ended.set()

    async def _report(self, watcher: Watcher) -> None:
        while True:
            watcher.add(accepted(1))
            await asyncio.sleep(0.01)


async def test_a_client_that_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchers, "MAX_REPORTS", 20)
    server, commands = Server("scheduler", authenticator=AcceptEveryone()), BusyExperiment()
    servicer = ExperimentServicer(cast("Any", commands), *cast("Any", (None, None, None)))
    server.add(experiment_pb2_grpc.add_ExperimentServiceServicer_to_server, servicer, "hopyard.v1.ExperimentService")
    async with asyncio.timeout(HANG_SECONDS), grpc.aio.insecure_channel(await server.start()) as opened:
        call = experiment_pb2_grpc.ExperimentServiceStub(opened).WatchExperiment(
            pb.WatchExperimentRequest(), metadata=token_metadata("any")
        )
        await call.initial_metadata()
        await commands.ended.wait()  # The client has read nothing, and the server holds no watch any more.
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            async for _ in call:
                pass
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await server.stop(0)


@pytest.mark.quick
async def test_thousands_of_watchers_work_in_turn() -> None:
    """In each iteration of the event loop only a few of 2,000 watchers wake or prepare a message."""
    register = Watchers()
    many = [Watcher() for _ in range(2000)]
    for watcher in many:
        register.add("x", watcher)
    prepared: list[int] = []

    async def watch(number: int) -> None:
        await many[number].wait()
        many[number].reports.clear()
        await many[number].wait()
        prepared.append(number)
        await register.queue.turn()
        prepared.append(number)

    tasks = [asyncio.create_task(watch(number)) for number in range(len(many))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    register.publish(set(), set(), [accepted(1)])
    most = before = 0
    while len(prepared) < 4000:
        await asyncio.sleep(0)
        most, before = max(most, len(prepared) - before), len(prepared)
    assert most <= 2 * watchers.STEPS_PER_ITERATION
    await asyncio.gather(*tasks)
    assert prepared.index(prepared[0], 1) > 100  # Each waits behind all others.
    assert sorted(prepared) == sorted([*range(2000), *range(2000)])


@pytest.mark.quick
async def test_cancelled_turns_delay_nobody() -> None:
    queue = WatchQueue()
    cancelled = [asyncio.create_task(queue.turn()) for _ in range(10 * watchers.STEPS_PER_ITERATION)]
    last = asyncio.create_task(queue.turn())
    await asyncio.sleep(0)
    for one in cancelled:
        one.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)
    iterations = 0
    while not last.done():
        await asyncio.sleep(0)
        iterations += 1
    assert iterations <= 3


@pytest.mark.quick
async def test_the_pauses_of_the_queue_are_as_long_as_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, queue = asyncio.get_running_loop(), WatchQueue()
    now, pauses, done = 0.0, list[float](), asyncio.Event()

    def work() -> bool:
        nonlocal now
        now += 0.001
        if now >= 0.0999:
            done.set()
        return True

    def pause(seconds: float, resume: Callable[[], None]) -> None:
        pauses.append(seconds)
        loop.call_soon(resume)

    monkeypatch.setattr(loop, "time", lambda: now)
    monkeypatch.setattr(loop, "call_later", pause)
    for _ in range(100):
        queue.add(work)
    await done.wait()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(pauses) > 5
    assert sum(pauses) == pytest.approx(0.1, abs=watchers.SLICE_SECONDS)


@pytest.mark.quick
async def test_a_watch_ends_if_the_last_changes_come_while_it_waits_for_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end is sent last, although a job changed after the watch had sent its reports."""
    rig = Rig()
    rig.create()
    register = Watchers()
    runtime: Any = SimpleNamespace(
        watchers=register, core=rig.core, clock=lambda: rig.now, absent=lambda stream: None, published=lambda name: True
    )
    name = rig.stream.founder.id
    turns: list[asyncio.Event] = []

    async def turn() -> None:
        turns.append(asyncio.Event())
        await turns[-1].wait()

    def shown(stream: Stream, experiment: Any, at: float, reason: Any) -> pb.Experiment:
        return pb.Experiment(id=experiment.id, state=EXPERIMENT_STATES.to_proto(experiment.state))

    monkeypatch.setattr(register.queue, "turn", turn)
    monkeypatch.setattr(waiting_reasons, "experiment_to_proto", shown)  # The experiment of a rig has no specification.
    watcher, got = Watcher(), list[str]()

    async def watch() -> None:
        async for message in ExperimentQueries(runtime, cast(Any, None), "").watch(name, watcher):
            got.append(str(message.WhichOneof("change")))

    async def give_turns(until: Callable[[], bool]) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            while not until():
                while turns:
                    turns.pop().set()
                await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    await give_turns(lambda: "experiment" in got)
    got.clear()
    register.publish(set(), set(), [replace(accepted(1), experiment=name)])
    await give_turns(lambda: got == ["job", "report"])
    await asyncio.sleep(0)
    assert len(turns) == 1  # It waits for the turn to send the experiment.
    rig.feed(Operated(rig.now, rig.stream.id, "stop", name))
    register.publish({name}, {(name, "1")}, [])
    await give_turns(watching.done)
    assert got == ["job", "report", "job", "experiment"]
