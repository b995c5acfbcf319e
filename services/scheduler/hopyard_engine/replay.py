"""Re-driving an experiment from its journal: the core's state again, and the policy's decisions compared with the recorded ones.

Recovery and `hopyard replay` are both this. The events are applied to a core in their order; each up-call that follows is made
on a fresh policy at the place of its recorded answer, on the state on which it was first made. The recorded answers hold in
any case. What is compared are answers: a recorded failure decided nothing, so nothing can differ from it.

When recovery finds a difference, the next up-call of the running experiment is failed with it (`Objecting`), which pauses the
experiment and stands in the journal. So a later recovery knows which differences people have been shown, and a resumed
experiment goes on from the recorded decisions without being paused for the same difference again.

An up-call whose policy was given up because it took too long (`PolicyFailed.unheard`) is not made again at its record: it comes
again, recorded anew, when the experiment is resumed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from hopyard.errors import Internal, InvalidInput
from hopyard.policy.vocabulary import Call, ExperimentState
from hopyard.policy.vocabulary.reasons import Argument, Reason, ReasonCode, explain
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Effect, Record, UpCall
from hopyard_engine.core.events import ClusterEvent, Event, PolicyAnswered, PolicyFailed, StreamCreated, StreamEvent
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import PolicyVersion
from hopyard_engine.journal.codec import encode
from hopyard_engine.policy_host import Host, PolicyHost, answer_text


@dataclass(frozen=True, slots=True)
class Difference:
    """An answer that is not what the journal has.

    Attributes:
        event: Number of the recorded event in the experiment's stream.
        at: When it happened.
        up_call: The up-call's number.
        call: The up-call; None: the core makes none here any more, so the record is no answer to anything.
        recorded: What stands in the journal.
        computed: What the policy answers now; None without an up-call.
        versions: How the policy's version differs from the recorded one; empty: it does not.
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
        """What was recorded, in words."""
        return answer_text.answer(self.recorded)

    @property
    def now(self) -> str:
        """What comes now, in words."""
        return (
            answer_text.answer(self.computed)
            if self.computed is not None
            else "nothing: the core does not take it any more"
        )

    @property
    def told(self) -> str:
        """The up-call in words; without one the record."""
        return answer_text.told(self.call) if self.call is not None else f"record {type(self.recorded).__name__}"

    @property
    def text(self) -> str:
        """All of it in one sentence."""
        versions = f"; {self.versions}" if self.versions else ""
        return f"event {self.event} ({self.told}): recorded is {self.then}; now it is {self.now}{versions}"


class Replay:
    """Re-applies one experiment's events to a core, and drives its policy along.

    Args:
        core: Where the experiment is rebuilt.
        make_host: Makes the experiment's policy, fresh; called once. None: it runs elsewhere, and is not driven along.

    Attributes:
        number: Events taken so far: the number of the last one.
        up_calls: Recorded answers that were compared.
        failures: Recorded failures of the policy: nothing to compare with.
        first: The first difference of all.
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
        """Takes the stream's next event; answers the core's effects.

        Raises:
            Internal: The event does not belong to an experiment's stream.
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
        """How the policy's version differs from the recorded one, in a sentence; empty: it does not, or it is not known here."""
        recorded, host = self._recorded_policy, self.host
        if recorded is None or not isinstance(host, PolicyHost) or host.version == recorded.version:
            return ""
        return f"policy {recorded.name} had version {recorded.version} when the experiment began and has version {host.version} now"

    @property
    def unseen(self) -> Difference | None:
        """The first difference that nobody has been shown, if there is one."""
        if self.first is not None and objection(self.first) not in self._shown:
            return self.first
        return self._since

    def unanswered(self, host: Host | None = None) -> PolicyAnswered | PolicyFailed | None:
        """The answer to the up-call that the journal has none for, if it ends with one.

        Args:
            host: Makes it, instead of the replayed policy.
        """
        call, stream = self.unmade, self.experiment
        if call is None or stream is None:
            return None
        return self._make(stream, call, host)

    @property
    def unmade(self) -> UpCall | None:
        """The up-call that the journal has no answer for, if it ends with one."""
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
        """Makes the up-call that waits, if it has this number."""
        call = self._pending
        if call is None or call.number != number or self.experiment is None:
            return None
        self._pending = None
        made = self._make(self.experiment, call)
        return (call, made) if made is not None else None

    def _answered(self, event: PolicyAnswered) -> None:
        made = self._answer(event.answer.number)
        if made is None:
            return  # The core will not take it: that is the difference then.
        self.up_calls += 1
        call, computed = made
        if not same(event, computed):
            versions = self.version_change
            self._differs(Difference(self.number, event.at, call.number, call.call, event, computed, versions))

    def _failed(self, event: PolicyFailed) -> None:
        self.failures += 1
        if event.diverged:  # The policy was never asked.
            self._pending = None
            self._shown.add(event.reason)
            self._since = None
        elif event.unheard:
            self._pending = None
        else:
            self._answer(event.number)  # It may have learned something before it failed.

    def _differs(self, difference: Difference) -> None:
        self.first = self.first or difference
        self._since = self._since or difference


def of_experiment(event: Event, number: int) -> StreamEvent:
    """An event of an experiment's stream.

    Raises:
        Internal: It is one of the cluster's.
    """
    if isinstance(event, ClusterEvent):
        raise Internal(f"event {number}: {type(event).__name__} belongs to the stream of the cluster")
    return event


def same(recorded: PolicyAnswered, computed: PolicyAnswered | PolicyFailed) -> bool:
    """Whether two answers say the same, as the journal writes them: NaN is NaN, and a tuple is a list there."""
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
    except (TypeError, ValueError):  # It says something that could not even be recorded.
        return False


def objection(difference: Difference) -> Reason:
    """The reason that pauses an experiment for a difference. The same difference has the same reason."""
    return Reason.of(
        ReasonCode.POLICY_DIVERGED,
        event=difference.event,
        call=difference.told,
        recorded=difference.then,
        computed=difference.now,
    )


class Objecting:
    """Stands before a policy that would have decided otherwise: the first up-call of the running experiment fails with the reason.

    That pauses the experiment, visibly. All other up-calls go to the policy, whose memory is what the recorded up-calls made it.
    """

    def __init__(self, host: Host, difference: Difference) -> None:
        self._host = host
        self._reason: Reason | None = objection(difference)

    def answer(self, experiment: Stream, call: UpCall) -> PolicyAnswered | PolicyFailed:
        """Fails once while the experiment runs, then lets the policy answer."""
        if self._reason is not None and experiment.state is ExperimentState.RUNNING:
            reason, self._reason = self._reason, None
            return PolicyFailed(call.at, call.stream, call.number, reason)
        return self._host.answer(experiment, call)


# ------------------------------------------------------------------------------------------------------------------- until


@dataclass(frozen=True, slots=True)
class Until:
    """Where a replay stops: with an event's number, or before the first event later than a time; one of them is set.

    Attributes:
        event: The last event taken.
        seconds: Since the experiment's creation.
        at: Seconds since the epoch.
    """

    event: int | None = None
    seconds: float | None = None
    at: float | None = None

    def passed(self, number: int, event: Event, created_at: float) -> bool:
        """Whether an event is not to be taken any more."""
        if self.event is not None:
            return number > self.event
        end = self.at if self.at is not None else created_at + (self.seconds or 0.0)
        return event.at > end


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_until(text: str, option: str = "--until") -> Until:
    """What an option says: `120` is an event's number, `90s`, `2.5m`, `1h` or `12.5` a time since the start, else an ISO time.

    Raises:
        InvalidInput: None of these.
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
    """A job as it stood at an event; `snapshots` are the positions that it can be loaded from."""

    id: str
    state: str
    position: int
    attempt: int
    slots: tuple[str, ...]
    snapshots: tuple[int, ...]
    best: float | None
    reason: str
    reason_code: ReasonCode | None
    reason_args: Mapping[str, Argument]


@dataclass(frozen=True, slots=True)
class ReplayState:
    """An experiment as it stood after an event."""

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
    """A reason for people and for programs."""
    code, args = (reason.code, reason.args) if reason is not None else (None, {})
    return {"reason": explain(reason), "reason_code": code, "reason_args": args}


def state_of(stream: Stream, event: int, at: float) -> ReplayState:
    """The experiment as it stands now, after an event; `slots` names the job that runs on each, or nothing."""
    return ReplayState(
        event=event,
        at=at,
        state=stream.state.value,
        **_told(stream.reason),
        share=stream.share,
        slots={m.id: m.run.job if m.run is not None else "" for _, m in sorted(stream.slots.items())},
        jobs=tuple(
            JobLine(
                id=job.id,
                state=job.state.value,
                position=job.position,
                attempt=job.attempt,
                slots=job.run.slots if job.run is not None else (),
                snapshots=tuple(stream.snapshots.positions(job.id)),
                best=job.best[0] if job.best is not None else None,
                **_told(job.reason),
            )
            for job in stream.jobs.values()
        ),
    )
