"""Tests of up-calls to policy processes that connect, disconnect, hang and send wrong answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from typing import Any, cast

import pytest

from hopyard._net.auth import TokenAuthenticator
from hopyard._runtime.policy_process.instance import Instance
from hopyard.errors import DataLoss, HopyardError, InvalidInput, Unavailable
from hopyard.policy import Cluster, Policy
from hopyard.policy.vocabulary import ExperimentId, ShareChange, StreamId
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard.spec import load_spec
from hopyard.v1 import policy_pb2 as pb
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Record, UpCall
from hopyard_engine.core.events import (
    Answered,
    Event,
    NodeJoined,
    Operated,
    PolicyAnswered,
    PolicyFailed,
    StreamCreated,
)
from hopyard_engine.core.types import Settings, SlotSpec
from hopyard_policies.default import DefaultPolicy
from hopyard_scheduler.policy_process import policy as policy_module
from hopyard_scheduler.policy_process.connections import MOST_UNREAD, ConnectionRegistry, Greeting, PolicyConnection
from hopyard_scheduler.policy_process.inbound import InboundPolicy
from hopyard_scheduler.policy_process.policy import Limits, RemotePolicy
from hopyard_scheduler.policy_process.registry import MOST_REVIEWS, PolicyProcesses
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.quick


class Process:
    """Simulates a policy process without a wire: it answers each message at once, and not at all while `mute`."""

    def __init__(self, registry: ConnectionRegistry, make: Callable[[], Policy] = DefaultPolicy) -> None:
        self.registry = registry
        self.instance = Instance(lambda _: make())
        self.heard: list[pb.DriveResponse] = []
        self.error: HopyardError | None = None
        self.mute = False
        self.connection = self.dial()

    def dial(self) -> PolicyConnection:
        hello = self.instance.hello("mine")
        greeting = Greeting(hello.policy, StreamId(hello.experiment), hello.memory, hello.answered)
        self.connection = PolicyConnection(greeting, self.take)
        self.registry.add(self.connection)
        return self.connection

    async def take(self, message: pb.DriveResponse) -> None:
        self.heard.append(message)
        if message.WhichOneof("message") == "welcome":
            self.instance.welcome(message.welcome)
        else:
            answer = self.instance.answer(message.up_call)
            if not self.mute:
                self.connection.deliver(pb.DriveRequest(answer=answer))

    @property
    def told(self) -> list[int]:
        return [m.up_call.number for m in self.heard if m.WhichOneof("message") == "up_call"]

    @property
    def welcomes(self) -> list[int]:
        return [m.welcome.answered for m in self.heard if m.WhichOneof("message") == "welcome"]


class Rig:
    """A core with one experiment, whose policy is in a process, and its journal."""

    def __init__(self, answer: float = HANG_SECONDS, absence: float = HANG_SECONDS) -> None:
        self.core, self.journal, self.calls = Core(), list[Event](), list[UpCall]()
        self.registry = ConnectionRegistry()
        source = InboundPolicy("mine", self.registry, lambda: "127.0.0.1:1")
        limits = Limits(answer, absence)
        self.said = list[tuple[bool, int]]()
        self.policy = RemotePolicy(
            "mine",
            StreamId("x"),
            "{}",
            {},
            source,
            self.read,
            limits,
            "hopyard resume x",
            lambda *said: self.said.append(said),
        )
        self.now = 1.0
        self.take(NodeJoined(self.now, "n", "n-1", (SlotSpec("n/0", 1, ()),), (), ()))
        settings = Settings(metric="m", mode="max", max_position=4, jobs=9, seed=1)
        self.take(StreamCreated(self.now, StreamId("x"), settings, {}))

    async def read(self) -> AsyncIterator[Event]:
        for event in list(self.journal):
            yield event

    def take(self, event: Event) -> None:
        for effect in self.core.handle(event):
            if isinstance(effect, Record) and effect.stream == "x":
                self.journal.append(effect.event)
            elif isinstance(effect, UpCall):
                self.calls.append(effect)

    @property
    def waiting(self) -> UpCall | None:
        """The up-call that waits for its answer; None: no up-call."""
        x = self.core.streams[StreamId("x")]
        return self.calls[-1] if x.conversation.in_flight is not None else None

    async def ask(self) -> PolicyAnswered | PolicyFailed:
        """Make one up-call, and return its answer. If none waits, a configuration from the generator causes one."""
        x = self.core.streams[StreamId("x")]
        while self.waiting is None:
            self.now += 1.0
            self.take(Answered(self.now, StreamId("x"), next(iter(x.asks)), {"x": self.now}))
        return await self.policy.answer(x, self.calls[-1], nullcontext())

    async def go(self, times: int = 1) -> PolicyAnswered | PolicyFailed:
        """Make a number of up-calls, and give their answers to the core. Return the last answer."""
        while True:
            answer = await self.ask()
            self.take(answer)
            times -= 1
            if times == 0:
                return answer


async def test_the_first_process_serves_from_the_first_up_call_on() -> None:
    rig = Rig()
    process = Process(rig.registry)
    await rig.go(4)
    assert process.told == [1, 2, 3, 4]
    assert process.welcomes == [0]
    assert rig.core.streams[StreamId("x")].jobs


async def test_a_stream_that_breaks_is_gone_on_with() -> None:
    rig = Rig()
    process = Process(rig.registry)
    await rig.go(3)
    process.connection.lose()
    process.dial()
    await rig.go(2)
    assert process.told == [1, 2, 3, 4, 5]
    assert process.welcomes == [0, 3]
    assert rig.said == [(True, 0), (False, 0), (True, 0)]


async def test_an_answer_that_was_lost_is_said_again_and_not_made_again() -> None:
    rig = Rig()
    process = Process(rig.registry)
    await rig.go(3)
    process.mute = True
    asking = asyncio.create_task(rig.ask())
    while process.told[-1:] != [4]:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    process.mute = False
    lost = process.instance.answer(pb.UpCall(number=4))
    process.connection.close()
    process.dial()
    answer = await asking
    assert isinstance(answer, PolicyAnswered)
    assert process.told == [1, 2, 3, 4, 4]
    assert process.welcomes == [0, 4]
    assert process.instance.answer(pb.UpCall(number=4)) is lost


async def test_one_that_remembers_nothing_is_told_all_again_and_decides_the_same() -> None:
    rig = Rig()
    first = Process(rig.registry)
    await rig.go(5)
    first.connection.lose()
    second = Process(rig.registry)
    await rig.go(2)
    assert rig.said == [(True, 0), (False, 0), (True, 5)]
    assert second.told == [1, 2, 3, 4, 5, 6, 7]
    again = [m.up_call.again for m in second.heard if m.WhichOneof("message") == "up_call"]
    assert again == [True] * 5 + [False] * 2
    assert second.instance.state.jobs.keys() == rig.core.streams[StreamId("x")].jobs.keys()


class Broken(Process):
    """Its connection breaks once, after `cut` of the up-calls that are repeated to it."""

    cut = 0

    async def take(self, message: pb.DriveResponse) -> None:
        await super().take(message)
        if len(self.told) == self.cut and len(self.welcomes) == 1:
            self.connection.close()
            self.dial()


@pytest.mark.parametrize("cut", [0, 2, 4])
async def test_a_stream_that_breaks_while_all_is_told_again_leaves_no_hole(cut: int) -> None:
    rig = Rig()
    first = Process(rig.registry)
    await rig.go(5)
    first.connection.close()
    second = Broken(rig.registry)
    second.cut = cut
    await rig.go()
    assert second.welcomes == [0, 0]
    assert second.told[-6:] == [1, 2, 3, 4, 5, 6]
    assert second.instance.state.jobs.keys() == rig.core.streams[StreamId("x")].jobs.keys()


async def test_one_that_remembers_another_life_begins_anew() -> None:
    rig = Rig()
    process = Process(rig.registry)
    await rig.go(3)
    process.connection.close()
    process.instance._memory = "another"
    process.dial()
    await rig.go()
    assert process.welcomes == [0, 0]
    assert process.told == [1, 2, 3, 1, 2, 3, 4]


class Other(DefaultPolicy):
    """A policy that creates one job more than the default policy."""

    def allocate_jobs(self, cluster: Cluster) -> None:
        super().allocate_jobs(cluster)
        cluster.create_job()


async def test_one_that_decides_otherwise_pauses_the_experiment_once_with_the_difference() -> None:
    rig = Rig()
    first = Process(rig.registry)
    await rig.go(4)
    first.connection.close()
    Process(rig.registry, Other)
    answer = await rig.go()
    assert isinstance(answer, PolicyFailed)
    assert not answer.unheard
    assert answer.diverged
    assert str(answer.reason).startswith("it decides differently than recorded: event ")
    rig.take(Operated(rig.now, StreamId("x"), "resume", ExperimentId("x")))
    assert isinstance(await rig.ask(), PolicyAnswered)


async def test_nobody_there_gives_the_policy_up_and_says_what_to_do() -> None:
    rig = Rig(absence=0.05)
    answer = await rig.ask()
    assert isinstance(answer, PolicyFailed)
    assert answer.unheard
    assert str(answer.reason) == (
        "policy mine: no process serves remote:mine; start one, such as: hopyard policy serve module:Class --name mine "
        "--server 127.0.0.1:1 (waited 0.05 s); then: hopyard resume x"
    )


async def test_one_that_hangs_is_hung_up_on_and_its_successor_begins_anew() -> None:
    rig = Rig(answer=0.05)
    process = Process(rig.registry)
    await rig.go(2)
    process.mute = True
    answer = await rig.go()
    assert isinstance(answer, PolicyFailed)
    assert answer.unheard
    assert "policy mine took longer than 0.05 s on up-call 3" in str(answer.reason)
    assert process.connection.closed
    # No second message about the disconnection: the answer contains it.
    assert rig.said == [(True, 0)]
    rig.take(Operated(rig.now, StreamId("x"), "resume", ExperimentId("x")))
    process.mute = False
    process.dial()
    await rig.go()
    # The up-call without an answer is omitted when the others are repeated.
    assert process.welcomes == [0, 0]
    assert process.told == [1, 2, 3, 1, 2, 4]


async def test_one_that_dies_over_the_same_up_call_again_and_again_is_given_up() -> None:
    rig = Rig()

    class Dies(Process):
        async def take(self, message: pb.DriveResponse) -> None:
            self.heard.append(message)
            if message.WhichOneof("message") == "up_call":
                self.connection.close()
                Dies(self.registry)

    Dies(rig.registry)
    answer = await rig.ask()
    assert isinstance(answer, PolicyFailed)
    assert answer.unheard
    assert str(answer.reason) == "policy mine: its process ended 3 times during up-call 1 ShareChange"


async def test_the_failure_of_a_policy_whose_process_dies_shows_the_last_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(InboundPolicy, "last_output", "Segmentation fault")
    rig = Rig()

    class Dies(Process):
        async def take(self, message: pb.DriveResponse) -> None:
            if message.WhichOneof("message") == "up_call":
                self.connection.close()
                Dies(self.registry)

    Dies(rig.registry)
    answer = await rig.ask()
    assert isinstance(answer, PolicyFailed)
    assert str(answer.reason).endswith("during up-call 1 ShareChange; its last output: Segmentation fault")


async def test_an_up_call_too_large_for_a_message_gives_the_policy_up_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy_module, "MAX_MESSAGE_BYTES", 10)
    rig = Rig()
    process = Process(rig.registry)
    answer = await rig.ask()
    assert isinstance(answer, PolicyFailed)
    assert answer.unheard
    assert answer.reason.code is ReasonCode.POLICY_UP_CALL_TOO_LARGE
    assert answer.reason.args["most_bytes"] == 10
    assert process.told == []
    assert process.connection.closed


async def test_a_process_whose_end_was_cut_short_is_ended_by_the_next_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    restarts, gate = 0, asyncio.Event()

    async def restart(_: InboundPolicy) -> None:
        nonlocal restarts
        restarts += 1
        await gate.wait()

    monkeypatch.setattr(InboundPolicy, "restart", restart)
    rig = Rig()
    Process(rig.registry)
    await rig.go()
    ending = asyncio.create_task(rig.policy.give_up())
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)
    gate.set()
    await rig.policy.give_up()
    assert restarts == 2
    await rig.policy.give_up()
    assert restarts == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (pb.Answer(number=7), "found answer 7, expected the answer to up-call 1"),
        (pb.Answer(number=1, error="no idea"), "policy mine on up-call 1 ShareChange: no idea"),
        (pb.Answer(number=1, commands=[pb.Command()]), "command: none is set"),
        (pb.Answer(number=1, decision=99), "decision: found 99, allowed are DECISION_CONTINUE"),  # type: ignore[arg-type]
        (pb.Answer(number=1, gang=-1), "demand and gang are at least 0"),
        (
            pb.Answer(number=1, commands=[pb.Command(ask=pb.AskCommand(payload_json="{"))]),
            "ask.payload_json: is not JSON",
        ),
        (
            pb.Answer(number=1, commands=[pb.Command(ask=pb.AskCommand(payload_json="[" * 100_000))]),
            "ask.payload_json: is nested deeper than 100 levels",
        ),
        (
            pb.Answer(number=1, commands=[pb.Command(predict=pb.PredictCommand(parameters_json="[" * 100_000))]),
            "predict.parameters_json: is nested deeper than 100 levels",
        ),
        (
            pb.Answer(
                number=1, commands=[pb.Command(predict=pb.PredictCommand(parameters_json=f'{{"target": {10**400}}}'))]
            ),
            "predict.parameters_json: has an integer of 401 characters",
        ),
        (
            pb.Answer(number=1, commands=[pb.Command(terminate_job=pb.TerminateJobCommand(job="1"))] * 10_001),
            "the answer has 10001 commands; at most 10000 are allowed",
        ),
        pytest.param(
            pb.Answer(number=1, commands=[pb.Command(ask=pb.AskCommand(payload_json=f'"{"a" * (17 << 20)}"'))]),
            "the answer takes 17.0 MiB; at most 16 are allowed",
            marks=pytest.mark.merge,
        ),
    ],
)
async def test_what_cannot_be_is_a_failure(answer: pb.Answer, error: str) -> None:
    rig = Rig()

    class Lies(Process):
        async def take(self, message: pb.DriveResponse) -> None:
            if message.WhichOneof("message") == "up_call":
                self.connection.deliver(pb.DriveRequest(answer=answer))

    Lies(rig.registry)
    found = await rig.ask()
    assert isinstance(found, PolicyFailed)
    assert error in str(found.reason)


async def test_an_answer_with_thousands_of_commands_is_one() -> None:
    rig = Rig()
    terminate = pb.Command(terminate_job=pb.TerminateJobCommand(job="1"))

    class Busy(Process):
        async def take(self, message: pb.DriveResponse) -> None:
            if message.WhichOneof("message") == "up_call":
                self.connection.deliver(pb.DriveRequest(answer=pb.Answer(number=1, commands=[terminate] * 10_000)))

    Busy(rig.registry)
    found = await rig.ask()
    assert isinstance(found, PolicyAnswered)
    assert len(found.answer.commands) == 10_000


@pytest.mark.merge
async def test_a_policy_in_python_says_itself_that_its_answer_is_too_large() -> None:
    class Asks(DefaultPolicy):
        def on_share_change(self, cluster: Cluster, change: ShareChange) -> None:
            cluster.ask("nobody", "a" * (17 << 20))

    rig = Rig()
    Process(rig.registry, Asks)
    found = await rig.ask()
    assert isinstance(found, PolicyFailed)
    assert "Asks on up-call 1 ShareChange: ValueError: the answer takes 17.0 MiB; at most 16 are allowed" in str(
        found.reason
    )


@pytest.mark.parametrize(
    ("reviewed", "error"),
    [
        (pb.PolicyReviewed(ship_every=-5), "policy remote:mine: reviewed.ship_every: found -5, allowed is 0 or more"),
        (pb.PolicyReviewed(error="x" * 100_000), f"policy remote:mine: {'x' * 2_000}..."),
    ],
)
async def test_a_review_that_cannot_be_is_refused(reviewed: pb.PolicyReviewed, error: str) -> None:
    registry = ConnectionRegistry()

    class Reviews(Process):
        async def take(self, message: pb.DriveResponse) -> None:
            self.connection.deliver(pb.DriveRequest(reviewed=reviewed))

    Reviews(registry)
    policies = PolicyProcesses(
        registry, lambda: "127.0.0.1:1", TokenAuthenticator(), cast("Any", None), Limits(HANG_SECONDS, HANG_SECONDS)
    )
    file = (
        "{name: x, trainer: t.py:T, metric: {name: m, mode: max}, space: {x: {choice: [1]}}, "
        "stop: {jobs: 1, max_iterations: 4}, policy: {name: 'remote:mine'}}"
    )
    settings = Settings(metric="m", mode="max", max_position=4, jobs=1)
    with pytest.raises(InvalidInput) as refused:
        await policies.review(load_spec(file), settings, None, "")
    assert str(refused.value) == error


async def test_what_the_policy_raises_is_said_with_its_place() -> None:
    class Raises(DefaultPolicy):
        def demand(self, cluster: Cluster) -> int:
            raise RuntimeError("this policy has had enough")

    rig = Rig()
    Process(rig.registry, Raises)
    found = await rig.ask()
    assert isinstance(found, PolicyFailed)
    assert not found.unheard
    assert "Raises on up-call 1 ShareChange: RuntimeError: this policy has had enough" in str(found.reason)


async def test_an_error_that_no_message_can_hold_is_said_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # the test report cannot contain the error either

    class Raises(DefaultPolicy):
        def demand(self, cluster: Cluster) -> int:
            raise FileNotFoundError("no file named \udcff")

    rig = Rig()
    Process(rig.registry, Raises)
    found = await rig.ask()
    assert isinstance(found, PolicyFailed)
    assert "Raises on up-call 1 ShareChange: FileNotFoundError: no file named \\udcff" in str(found.reason)


@pytest.mark.parametrize("later", range(5))
async def test_a_process_that_came_when_nobody_waited_any_more_waits_for_the_next(later: int) -> None:
    rig = Rig()
    process = Process(rig.registry)
    batch = asyncio.Lock()
    async with batch:
        asking = asyncio.create_task(rig.policy.answer(rig.core.streams[StreamId("x")], rig.calls[-1], batch))
        while rig.registry.has_waiting("mine"):  # noqa: ASYNC110 - the next turns of the event loop
            await asyncio.sleep(0)
        for _ in range(later):
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert rig.registry.has_waiting("mine")
    await rig.go()
    assert process.told == [1]


@pytest.mark.merge
async def test_a_journal_that_cannot_be_read_for_a_moment_is_read_again() -> None:
    rig = Rig()
    first = Process(rig.registry)
    await rig.go(3)
    first.connection.lose()
    away = iter([Unavailable("appstat is away")])

    async def read() -> AsyncIterator[Event]:
        for number, event in enumerate(list(rig.journal)):
            yield event
            if number == 3 and (error := next(away, None)) is not None:
                second.dial()  # connect again, as a disconnected process does
                raise error

    rig.policy._journal = read
    second = Process(rig.registry)
    assert isinstance(await rig.go(), PolicyAnswered)
    assert second.welcomes == [0, 0]
    assert second.told[-4:] == [1, 2, 3, 4]


@pytest.mark.merge
async def test_a_journal_that_cannot_be_read_for_too_long_fails_the_policy() -> None:
    rig = Rig(absence=0.2)
    first = Process(rig.registry)
    await rig.go(3)
    first.connection.lose()

    async def read() -> AsyncIterator[Event]:
        yield rig.journal[0]
        second.dial()  # connect again, as a disconnected process does
        raise Unavailable("appstat is away")

    rig.policy._journal = read
    second = Process(rig.registry)
    found = await rig.ask()
    assert isinstance(found, PolicyFailed)
    assert found.reason == Reason.of(ReasonCode.POLICY_PROCESS_NOT_RESTORED, policy="mine", error="appstat is away")


@pytest.mark.merge
async def test_a_damaged_journal_fails_the_policy_with_a_code_of_its_own() -> None:
    rig = Rig()
    first = Process(rig.registry)
    await rig.go(3)
    first.connection.lose()

    async def read() -> AsyncIterator[Event]:
        yield rig.journal[0]
        raise DataLoss("journal of x: record 2 is missing")

    rig.policy._journal = read
    Process(rig.registry)
    found = await rig.ask()
    assert isinstance(found, PolicyFailed)
    assert found.unheard
    assert found.reason == Reason.of(ReasonCode.JOURNAL_UNREADABLE, error="journal of x: record 2 is missing")


async def test_a_process_that_talks_on_and_on_is_hung_up_on() -> None:
    connection = Process(ConnectionRegistry()).connection
    for _ in range(MOST_UNREAD):
        connection.deliver(pb.DriveRequest(answer=pb.Answer(number=1)))
    assert not connection.closed
    connection.deliver(pb.DriveRequest(answer=pb.Answer(number=1)))
    with pytest.raises(InvalidInput, match="a policy process only answers; found 1000 further messages"):
        await connection.wait_closed()


async def test_further_reviews_wait_while_the_maximum_number_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, gate = 0, 0, asyncio.Event()

    async def review(*_: object) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1

    monkeypatch.setattr(PolicyProcesses, "_review", review)
    limits = Limits(HANG_SECONDS, HANG_SECONDS)
    policies: Any = PolicyProcesses(
        ConnectionRegistry(), lambda: "127.0.0.1:1", TokenAuthenticator(), cast("Any", None), limits
    )
    reviews = [asyncio.create_task(policies.review(None, None, None, "")) for _ in range(3 * MOST_REVIEWS)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert running == MOST_REVIEWS
    gate.set()
    await asyncio.gather(*reviews)
    assert most == MOST_REVIEWS
