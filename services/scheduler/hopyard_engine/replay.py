"""Replay: rebuilds an experiment from its journal and compares its policy's decisions with the recorded ones.

Recovery and `hopyard replay` both use it. The events are applied to a core in order. Each resulting up-call is made on a fresh policy
just before its recorded answer is applied, so the policy sees the original state. The core always applies the recorded answers. Only
answers are compared: a recorded failure contains no decision.

When recovery finds a difference, `DivergenceGuard` answers the next up-call of the running experiment with a failure that describes it.
This pauses the experiment, and the failure in the journal shows that people were informed of the difference. When the experiment is
resumed, it continues from the recorded decisions and is not paused for the same difference again.

If a recorded failure says that the policy exceeded its time (`PolicyFailed.unheard`), the replay does not make this up-call. The
up-call was made again, with its own record, when the experiment was resumed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from hopyard.errors import Internal, InvalidInput
from hopyard.policy import JobView
from hopyard.policy.vocabulary import Call, ExperimentState
from hopyard.policy.vocabulary.reasons import Argument, Reason, ReasonCode, explain
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Effect, Record, UpCall
from hopyard_engine.core.events import ClusterEvent, Event, PolicyAnswered, PolicyFailed, StreamCreated, StreamEvent
from hopyard_engine.core.job_ends import shown_end
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import PolicyVersion
from hopyard_engine.journal.codec import encode
from hopyard_engine.policy_host import Host, PolicyHost, answer_text, job_view


@dataclass(frozen=True, slots=True)
class Difference:
    """A recorded answer of a policy that differs from the policy's present answer.

    Attributes:
        event: Number of the recorded event in its stream, from 1.
        at: Time of the event in seconds since the Unix epoch.
        up_call: Number of the up-call; 0: there is none.
        call: The up-call; None: the present core makes no up-call at this event, so the recorded answer belongs to none.
        recorded: The recorded event.
        computed: The policy's present answer; None if there is no up-call.
        versions: A sentence about how the policy's version differs from the recorded one; empty: it does not differ.
    """

    event: int
    at: float
    up_call: int
    call: Call | None
    recorded: StreamEvent
    computed: PolicyAnswered | PolicyFailed | None
    versions: str = ""

    @property
    def then(self) -> str:
        """A description of the recorded answer."""
        return answer_text.answer(self.recorded)

    @property
    def now(self) -> str:
        """A description of the present answer."""
        return (
            answer_text.answer(self.computed)
            if self.computed is not None
            else "nothing: the core does not take it any more"
        )

    @property
    def told(self) -> str:
        """A description of the up-call; if there is none, the class name of the record."""
        return answer_text.told(self.call) if self.call is not None else f"record {type(self.recorded).__name__}"

    @property
    def text(self) -> str:
        """A description of the whole difference in one sentence."""
        versions = f"; {self.versions}" if self.versions else ""
        return f"event {self.event} ({self.told}): recorded is {self.then}; now it is {self.now}{versions}"


class Replay:
    """Applies the events of one stream to a core and repeats the up-calls on the stream's policy.

    Args:
        core: The core in which the stream is rebuilt.
        make_host: Creates a host with a fresh policy for the stream. It is called at most once. It returns None if the policy runs
            elsewhere: then no up-call is made.

    Attributes:
        experiment: The stream; None: no event has been applied.
        host: The host of the policy; None: no up-call was made.
        number: Number of the last applied event; 0: none.
        up_calls: Number of recorded answers that were compared.
        failures: Number of recorded failures, which are not compared.
        first: The first difference; None: there is none.
    """

    def __init__(self, core: Core, make_host: Callable[[Stream], Host | None]) -> None:
        self._core = core
        self._make_host = make_host
        self._pending: UpCall | None = None
        self._since: Difference | None = None
        self._recorded_policy: PolicyVersion | None = None
        self._shown: set[Reason] = set()
        self.experiment: Stream | None = None
        self.host: Host | None = None
        self._elsewhere = False
        self.number = 0
        self.up_calls = 0
        self.failures = 0
        self.first: Difference | None = None

    def take(self, event: Event) -> list[Effect]:
        """Apply the next event of the stream. If it is a recorded answer, make its up-call before and compare the answers.

        Returns:
            The core's effects of the event.

        Raises:
            Internal: The event is a cluster event.
        """
        self.number += 1
        event = of_experiment(event, self.number)
        if isinstance(event, PolicyAnswered):
            self._answered(event)
        elif isinstance(event, PolicyFailed):
            self._failed(event)
        effects = self._core.restore(event)
        if isinstance(event, StreamCreated):
            self._recorded_policy = event.policy
        if self.experiment is None:
            self.experiment = self._core.streams[event.stream]
        if not effects or not isinstance(effects[0], Record):
            self._differs(Difference(self.number, event.at, 0, None, event, None))
        for effect in effects:
            if isinstance(effect, UpCall):
                self._pending = effect
        return effects

    @property
    def version_change(self) -> str:
        """A sentence about the policy's version when the experiment began and its version in this process.

        Empty if the versions are equal, the recorded one is unknown, or the policy does not run in this process.
        """
        recorded, host = self._recorded_policy, self.host
        if recorded is None or not isinstance(host, PolicyHost) or host.version == recorded.version:
            return ""
        return f"policy {recorded.name} had version {recorded.version} when the experiment began and has version {host.version} now"

    @property
    def unseen(self) -> Difference | None:
        """The first difference that no failure in the journal has reported to people; None: there is none."""
        if self.first is not None and objection(self.first) not in self._shown:
            return self.first
        return self._since

    def unanswered(self, host: Host | None = None) -> PolicyAnswered | PolicyFailed | None:
        """Make the up-call that the applied events caused and that has no recorded answer, and return the policy's answer.

        Args:
            host: The host to use; None: the one with the replayed policy.

        Returns:
            The answer or failure; None if there is no such up-call, or if the policy runs elsewhere and no host is given.
        """
        call, stream = self.unmade, self.experiment
        if call is None or stream is None:
            return None
        return self._make(stream, call, host)

    @property
    def unmade(self) -> UpCall | None:
        """The up-call that the applied events caused and that has no recorded answer; None: there is no such up-call."""
        call, stream = self._pending, self.experiment
        if call is None or stream is None or not stream.conversation.is_answered_by(call.number):
            return None
        return call

    def _make(self, stream: Stream, call: UpCall, host: Host | None = None) -> PolicyAnswered | PolicyFailed | None:
        if host is None and self.host is None and not self._elsewhere:
            self.host = self._make_host(stream)
            self._elsewhere = self.host is None
        host = host or self.host
        return host.answer(stream, call) if host is not None else None

    def _answer(self, number: int) -> tuple[UpCall, PolicyAnswered | PolicyFailed] | None:
        """Make the up-call that has no answer yet, if `number` is its number in the stream.

        Returns:
            The up-call and the policy's answer; None: there is no such up-call, or the policy runs elsewhere.
        """
        call = self._pending
        if call is None or call.number != number or self.experiment is None:
            return None
        self._pending = None
        made = self._make(self.experiment, call)
        return (call, made) if made is not None else None

    def _answered(self, event: PolicyAnswered) -> None:
        made = self._answer(event.answer.number)
        if made is None:
            return  # Nothing to compare. If the core ignores the record, `take` reports that.
        self.up_calls += 1
        call, computed = made
        if not same(event, computed):
            versions = self.version_change
            self._differs(Difference(self.number, event.at, call.number, call.call, event, computed, versions))

    def _failed(self, event: PolicyFailed) -> None:
        self.failures += 1
        if event.diverged:  # The policy got no up-call.
            self._pending = None
            self._shown.add(event.reason)
            self._since = None
        elif event.unheard:
            self._pending = None
        else:
            self._answer(event.number)  # The up-call may have changed the policy's state before it failed.

    def _differs(self, difference: Difference) -> None:
        self.first = self.first or difference
        self._since = self._since or difference


def of_experiment(event: Event, number: int) -> StreamEvent:
    """Return `event` if it belongs to the stream of an experiment. `number` is its number, for the error message.

    Raises:
        Internal: It is a cluster event.
    """
    if isinstance(event, ClusterEvent):
        raise Internal(f"event {number}: {type(event).__name__} belongs to the stream of the cluster")
    return event


def same(recorded: PolicyAnswered, computed: PolicyAnswered | PolicyFailed) -> bool:
    """Return whether two answers are equal in their journal format, apart from their times. False if `computed` is a failure.

    In the journal format NaN equals NaN, and a tuple equals a list.
    """
    if not isinstance(computed, PolicyAnswered):
        return False
    if (recorded.answer, recorded.demand, recorded.gang, recorded.nodes) == (
        computed.answer,
        computed.demand,
        computed.gang,
        computed.nodes,
    ):
        return True
    try:
        return encode(recorded) == encode(replace(computed, at=recorded.at))
    except (TypeError, ValueError):  # The computed answer cannot be recorded.
        return False


def objection(difference: Difference) -> Reason:
    """Return the reason of the failure that reports a difference and pauses the experiment. Equal differences have equal reasons."""
    return Reason.of(
        ReasonCode.POLICY_DIVERGED,
        event=difference.event,
        call=difference.told,
        recorded=difference.then,
        computed=difference.now,
    )


class DivergenceGuard:
    """A host that reports a difference found by a replay, and then passes up-calls to the policy's own host.

    It answers the first up-call while the experiment is RUNNING with a failure. This pauses the experiment with a reason that people
    can see. All other up-calls reach the policy, whose state results from the recorded up-calls.

    Args:
        host: The host of the policy.
        difference: The difference to report.
    """

    def __init__(self, host: Host, difference: Difference) -> None:
        self._host = host
        self._reason: Reason | None = objection(difference)

    def answer(self, stream: Stream, call: UpCall) -> PolicyAnswered | PolicyFailed:
        """Return a failure that reports the difference, or the answer of the policy's own host.

        The failure is returned once, for the first up-call while the experiment is RUNNING; the policy does not get that up-call.
        """
        if self._reason is not None and stream.state is ExperimentState.RUNNING:
            reason, self._reason = self._reason, None
            return PolicyFailed(call.at, call.stream, call.number, reason)
        return self._host.answer(stream, call)


# ------------------------------------------------------------------------------------------------------------------- until


@dataclass(frozen=True, slots=True)
class Until:
    """The point at which a replay ends. Exactly one field is set.

    Attributes:
        event: Number of the last event to apply.
        seconds: Seconds since the experiment's creation. Events up to and including this time are applied.
        at: Seconds since the Unix epoch. Events up to and including this time are applied.
    """

    event: int | None = None
    seconds: float | None = None
    at: float | None = None

    def passed(self, number: int, event: Event, created_at: float) -> bool:
        """Return whether an event is after the end of the replay and must not be applied. An event exactly at the end is applied.

        Args:
            number: Number of the event in its stream.
            event: The event.
            created_at: Time of the experiment's creation in seconds since the Unix epoch.
        """
        if self.event is not None:
            return number > self.event
        end = self.at if self.at is not None else created_at + (self.seconds or 0.0)
        return event.at > end


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_until(text: str, option: str = "--until") -> Until:
    """Parse the value of an option that sets the end of a replay.

    `120` is the number of an event. `90s`, `2.5m`, `1h` or `12.5` (seconds) is a time since the experiment's creation. Any other text
    is an ISO time, local unless it has a time zone.

    Args:
        text: The value.
        option: Name of the option, for the error message.

    Raises:
        InvalidInput: The text has none of these forms.
    """
    if text.isdecimal():
        return Until(event=int(text))
    since = re.fullmatch(r"(\d+|\d*\.\d+)([smhd]?)", text)
    if since:
        return Until(seconds=float(since[1]) * _UNITS[since[2] or "s"])
    try:
        return Until(at=datetime.fromisoformat(text).timestamp())
    except ValueError as error:
        raise InvalidInput(
            f"{option}: found {text!r}, allowed are an event's number (120), a time since the start (90s, 2.5m, 1h) "
            f"or a time of day (2026-01-31T12:00:00)"
        ) from error


# ------------------------------------------------------------------------------------------------------------------- state


@dataclass(frozen=True, slots=True)
class JobLine:
    """The state of a job after an event of a replay.

    Attributes:
        view: The job as a policy sees it.
        snapshots: Positions of its available snapshots, ascending.
        best: Best reported value of the metric; None: there is none.
        reason: Reason of its state as text.
        reason_code: Code of the reason; None: there is no reason.
        reason_args: Arguments of the reason.
    """

    view: JobView
    snapshots: tuple[int, ...]
    best: float | None
    reason: str
    reason_code: ReasonCode | None
    reason_args: Mapping[str, Argument]


@dataclass(frozen=True, slots=True)
class ReplayState:
    """The state of a stream (an experiment, or a group of experiments) after an event of a replay.

    Attributes:
        event: Number of the event.
        at: Time of the event in seconds since the Unix epoch.
        state: Name of the experiment's state; for a group, of the combined state of its experiments.
        reason: Reason of the state as text.
        reason_code: Code of the reason; None: there is no reason.
        reason_args: Arguments of the reason.
        share: Number of slots that the stream may use.
        slots: Id of the job that runs on each slot, by slot id; empty: none.
        jobs: The states of all jobs of the stream.
    """

    event: int
    at: float
    state: str
    reason: str
    reason_code: ReasonCode | None
    reason_args: Mapping[str, Argument]
    share: int
    slots: dict[str, str]
    jobs: tuple[JobLine, ...]


def _told(reason: Reason | None) -> dict[str, Any]:
    """Return the reason fields of `JobLine` and `ReplayState`, by field name: text, code and arguments.

    `reason` None gives an empty text, no code and no arguments.
    """
    code, args = (reason.code, reason.args) if reason is not None else (None, {})
    return {"reason": explain(reason), "reason_code": code, "reason_args": args}


def state_of(stream: Stream, event: int, at: float) -> ReplayState:
    """Return the current state of a stream.

    Args:
        stream: The stream.
        event: Number of its last event.
        at: Time of this event in seconds since the Unix epoch.
    """
    return ReplayState(
        event=event,
        at=at,
        state=stream.state.value,
        **_told(stream.reason),
        share=stream.share,
        slots={m.id: m.run.job if m.run is not None else "" for _, m in sorted(stream.slots.items())},
        jobs=tuple(
            JobLine(
                view=replace(job_view(job), state=shown_end(job)[0]),
                snapshots=tuple(stream.snapshots.positions(job.id)),
                best=job.best[0] if job.best is not None else None,
                **_told(shown_end(job)[1]),
            )
            for job in stream.jobs.values()
        ),
    )
