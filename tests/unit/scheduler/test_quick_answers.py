"""Tests that the answer of a quick policy process is in the same append as its event, and that no append waits for a slow one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, cast

import pytest

from hopyard.policy import Cluster, Policy
from hopyard.policy.vocabulary import ExperimentId, RequestMade, StreamId
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard.spec import canonical_json, load_spec
from hopyard.v1 import policy_pb2 as pb
from hopyard_engine.core.effects import Effect
from hopyard_engine.core.events import (
    Event,
    ExperimentJoined,
    Operated,
    PolicyAnswered,
    PolicyFailed,
    Requested,
    StreamCreated,
)
from hopyard_engine.journal.codec import decode, encode
from hopyard_engine.policy_host import host
from hopyard_scheduler.policy_process import policy as process
from hopyard_scheduler.policy_process.connections import ConnectionRegistry
from hopyard_scheduler.policy_process.inbound import InboundPolicy
from hopyard_scheduler.policy_process.policy import Limits, RemotePolicy
from hopyard_scheduler.runtime import batch, runtime
from hopyard_scheduler.runtime.journal import JournalEntry
from hopyard_scheduler.runtime.runtime import Runtime
from tests.timing import HANG_SECONDS
from tests.unit.core.rig import settings
from tests.unit.policy_process.test_policy import Process

pytestmark = pytest.mark.quick

SPEC = load_spec(
    "{name: x, trainer: t.py:T, metric: {name: m, mode: max}, space: {x: {choice: [1]}}, "
    "stop: {max_iterations: 4}, policy: mine:Mine}"
)
PAYLOAD = {"name": "x", "spec": canonical_json(SPEC), "bundle": "", "interpreter": "", "request": "r"}


class Waits(Policy):
    """A policy that sets a far timer, so that its experiment does not end."""

    def allocate_jobs(self, cluster: Cluster) -> None:
        cluster.wake_at(cluster.now + 1e6)

    def on_request(self, cluster: Cluster, request: RequestMade) -> None:
        return


class Around:
    """Simulates the surroundings of the scheduler's loop: records appends and ended experiments, and executes no effects."""

    def __init__(self) -> None:
        self.appends: list[list[Event]] = []
        self.ended: list[str] = []

    async def append(self, entries: Iterable[JournalEntry], rows: object, at: float) -> None:
        self.appends.append([decode(entry.kind, entry.payload) for entry in entries])

    async def read(self, name: str) -> AsyncIterator[Event]:
        for append in self.appends:
            for event in append:
                yield event

    async def clear(self, effects: Iterable[Effect]) -> None:
        list(effects)

    def attach(self, *_: object) -> None:
        return

    def carry(self, effect: Effect) -> None:
        return

    def experiment_ended(self, experiment: ExperimentId) -> None:
        self.ended.append(f"experiment {experiment}")

    def stream_ended(self, stream: StreamId) -> None:
        self.ended.append(f"stream {stream}")

    async def over(self, stream: StreamId) -> None:
        self.ended.append(f"policy of {stream}")


class Restarts(InboundPolicy):
    """The source of a policy process whose restart takes until `gate` is set."""

    def __init__(self, registry: ConnectionRegistry) -> None:
        super().__init__("mine", registry, lambda: "127.0.0.1:1")
        self.gate = asyncio.Event()

    async def restart(self) -> None:
        await self.gate.wait()


class Shell:
    """The scheduler's loop with one experiment, whose policy is in a process."""

    def __init__(self) -> None:
        self.around = Around()
        around = cast("Any", self.around)
        self.live = Runtime(around, around, around, clock=lambda: 2.0)
        registry = ConnectionRegistry()
        self.process = Process(registry, Waits)
        self.source = Restarts(registry)
        self.policy = RemotePolicy(
            "mine",
            StreamId("x"),
            "{}",
            {},
            self.source,
            lambda: self.around.read("x"),
            Limits(HANG_SECONDS, HANG_SECONDS),
            "",
        )
        self.live.hosts[StreamId("x")] = self.policy

    async def turn(self, *events: Event) -> list[type[Event]]:
        """Run one batch, and return the types of the events that it appended."""
        for event in events:
            self.live.post(event)
        async with self.live.turn:
            await self.live._take()
        return [type(event) for event in self.around.appends[-1]]

    async def rest(self) -> None:
        """Run batches until no up-call is in progress."""
        while self.live._asking or not self.live._queue.empty():
            if self.live._queue.empty():
                await asyncio.sleep(0)
            else:
                await self.turn()


@pytest.fixture
async def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A loop whose policy has given its first answer and counts as quick on any host."""
    for module in (process, runtime):
        monkeypatch.setattr(module, "QUICK_SECONDS", HANG_SECONDS)
    monkeypatch.setattr(batch, "MAX_BATCH_SECONDS", HANG_SECONDS)
    made = Shell()
    await made.turn(
        StreamCreated(1.0, StreamId("x"), settings(), PAYLOAD), Requested(2.0, StreamId("x"), "first", {}, 1)
    )
    await made.rest()
    assert made.policy.quick
    return made


async def test_a_quick_answer_shares_the_append_of_its_event(shell: Shell) -> None:
    events = [Requested(2.0, StreamId("x"), f"r{number}", {}, 1) for number in range(2)]
    assert await shell.turn(*events) == [Requested, PolicyAnswered, Requested, PolicyAnswered]


async def test_a_process_that_is_not_there_yet_is_not_waited_for(shell: Shell) -> None:
    shell.process.connection.lose()
    assert await shell.turn(Requested(2.0, StreamId("x"), "r", {}, 1)) == [Requested]
    shell.process.dial()
    await shell.rest()
    assert [type(event) for event in shell.around.appends[-1]][-1:] == [PolicyAnswered]


async def test_a_policy_that_was_slow_is_not_waited_for_until_it_is_quick_again(shell: Shell) -> None:
    shell.policy._took = 2 * HANG_SECONDS
    assert await shell.turn(Requested(2.0, StreamId("x"), "r1", {}, 1)) == [Requested]
    await shell.rest()
    assert await shell.turn(Requested(2.0, StreamId("x"), "r2", {}, 1)) == [Requested, PolicyAnswered]


async def test_a_policy_that_is_silent_is_waited_for_no_longer_than_a_moment(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "QUICK_SECONDS", 0.001)
    shell.process.mute = True
    assert await shell.turn(Requested(2.0, StreamId("x"), "r", {}, 1)) == [Requested]
    (answer,) = (shell.process.instance.answer(m.up_call) for m in shell.process.heard[-1:])
    shell.process.connection.deliver(pb.DriveRequest(answer=answer))
    await shell.rest()
    assert [type(event) for event in shell.around.appends[-1]][-1:] == [PolicyAnswered]


async def test_nothing_of_the_batch_counts_as_published_while_the_answer_is_waited_for(shell: Shell) -> None:
    shell.process.mute, heard = True, len(shell.process.heard)
    resuming = asyncio.create_task(
        shell.turn(Operated(2.0, StreamId("x"), "pause"), Operated(2.0, StreamId("x"), "resume"))
    )
    while len(shell.process.heard) == heard:  # noqa: ASYNC110 - the next turns of the event loop
        await asyncio.sleep(0)
    assert not shell.live.published(ExperimentId("x"))
    answer = shell.process.instance.answer(shell.process.heard[-1].up_call)
    shell.process.connection.deliver(pb.DriveRequest(answer=answer))
    shell.process.mute = False
    await resuming
    await shell.rest()
    assert shell.live.published(ExperimentId("x"))


async def test_a_policy_for_which_too_many_events_wait_fails_once_however_long_its_process_takes_to_end(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "MAX_INBOX", 1)
    monkeypatch.setattr(runtime, "QUICK_SECONDS", 0.001)
    shell.process.mute = True
    assert await shell.turn(Requested(2.0, StreamId("x"), "r0", {}, 1)) == [Requested]
    asking = shell.live._asking[StreamId("x")]
    await shell.turn(*(Requested(2.0, StreamId("x"), f"r{number}", {}, 1) for number in (1, 2)))
    for _ in range(3):  # other experiments have their batches while the process ends
        await shell.turn()
        assert not asking.done()
    shell.source.gate.set()
    await asking
    await shell.turn()
    failed = shell.around.appends[-1][0]
    assert isinstance(failed, PolicyFailed)
    assert failed.reason == Reason.of(ReasonCode.POLICY_BACKLOG, up_call=2, events=1)
    assert [type(event) for event in shell.around.appends[-1][1:]] == [Requested, Requested]


@pytest.mark.parametrize("quick_seconds", [0.001, 0.0])
async def test_a_failure_is_not_lost_if_too_many_events_wait_while_its_process_ends(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, quick_seconds: float
) -> None:
    async def broken(*_: object) -> PolicyAnswered:
        raise KeyError("no such thing")

    monkeypatch.setattr(shell.policy, "answer", broken)
    monkeypatch.setattr(runtime, "MAX_INBOX", 1)
    monkeypatch.setattr(runtime, "QUICK_SECONDS", quick_seconds)
    await shell.turn(*(Requested(2.0, StreamId("x"), f"r{number}", {}, 1) for number in range(4)))
    await shell.turn()
    shell.source.gate.set()
    while shell.live._closing:  # noqa: ASYNC110 - the next turns of the event loop
        await asyncio.sleep(0)
    await shell.turn()
    failed = shell.around.appends[-1][0]
    assert isinstance(failed, PolicyFailed)
    assert str(failed.reason) == "KeyError: 'no such thing'"


async def test_the_end_of_the_first_experiment_of_a_group_is_not_that_of_its_stream(shell: Shell) -> None:
    joined = ExperimentJoined(2.0, StreamId("x"), ExperimentId("y"), settings(), {**PAYLOAD, "name": "y"})
    await shell.turn(joined)
    await shell.rest()
    for name in ("x", "y"):
        shell.around.ended.append(f"stop {name}")
        await shell.turn(Operated(2.0, StreamId("x"), "stop", ExperimentId(name)))
        await shell.rest()
    await asyncio.sleep(0)
    assert list(dict.fromkeys(shell.around.ended)) == [
        "stop x",
        "experiment x",
        "stop y",
        "experiment y",
        "stream x",
        "policy of x",
    ]


async def test_the_answer_of_a_policy_process_is_encoded_once(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Event] = []

    def counted(event: Event) -> bytes:
        encoded.append(event)
        return encode(event)

    monkeypatch.setattr(batch, "encode", counted)
    monkeypatch.setattr(host, "encode", counted)
    assert await shell.turn(Requested(2.0, StreamId("x"), "r", {}, 1)) == [Requested, PolicyAnswered]
    assert sorted(type(event).__name__ for event in encoded) == ["PolicyAnswered", "Requested"]
