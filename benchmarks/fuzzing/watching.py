"""A simulated world that checks invariants at every event and at the end of the search."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from hopyard.policy import Policy
from hopyard.policy.vocabulary import ExperimentId, JobState, Report, RunEndReason, RunMode, StreamId, TerminateJob
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Effect, Record, Send, Start
from hopyard_engine.core.events import (
    Ended,
    Event,
    JobHeld,
    JobOperated,
    Operated,
    Reports,
    Requested,
    RunMessage,
    SnapshotsGivenUp,
    Updated,
)
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.journal.codec import decode, encode, kind_of
from hopyard_engine.policy_host import PolicyHost
from hopyard_engine.replay import Replay
from hopyard_simulator import World
from hopyard_simulator.world import NAME

_NEVER: Final = 10**6
"""A number of experiments to wait for that never join, so that the simulated world continues."""


class WrongError(AssertionError):
    """An invariant that must hold for every search is violated."""


def need(true: bool, says: str) -> None:
    """Raise `WrongError` with the message `says` unless `true` holds."""
    if not true:
        raise WrongError(says)


Kind = Literal["extend", "more jobs", "concurrency", "stop", "room", "request", "hold", "terminate"]


@dataclass(frozen=True)
class Deed:
    """Something that a user, a client or the store does at a certain time.

    Attributes:
        at: The virtual time in seconds.
        kind: What is done.
        number: Chooses the job, the snapshots or the amount.
        lasts: For "hold": seconds until the job is released.
        configuration: For "request": the requested configuration.
    """

    at: float
    kind: Kind
    number: int = 0
    lasts: float = 1.0
    configuration: dict[str, Any] | None = None


class Recording(Core):
    """A core that keeps its records, and calls `look` with each event and its effects."""

    def __init__(self, look: Callable[[Event, list[Effect]], None]) -> None:
        super().__init__()
        self.records: list[Event] = []
        self._look = look

    def handle(self, event: Event) -> list[Effect]:
        effects = super().handle(event)
        self.records += [effect.event for effect in effects if type(effect) is Record and effect.stream == NAME]
        self._look(event, effects)
        return effects


@dataclass
class Attempt:
    """A run as its messages show it: its start command, its last position and its number of reports."""

    start: Start
    position: int
    reports: int = 0


class Watched(World):
    """A simulated world that checks invariants, and in which deeds are done.

    Args:
        given: Positional arguments of `World`; `named`: its keyword arguments.
        deeds: The deeds.
        terms: Settings of the experiment that differ from those that `simulate` derives from its arguments.
        undisturbed: Whether there are no faults and no deeds, so that nothing may be trained twice.
    """

    def __init__(
        self, *given: Any, deeds: Sequence[Deed], terms: Mapping[str, Any], undisturbed: bool, **named: Any
    ) -> None:
        super().__init__(*given, **named)
        self._undisturbed = undisturbed
        self._settings = replace(self._settings, **terms)
        self._recording = Recording(self._look_at)
        self.core = self._recording
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._executed: Counter[tuple[str, int]] = Counter()
        for deed in deeds:
            self._expect(deed.at, self._do, deed)

    # ----------------------------------------------------------------------------------------------------------- deeds

    def _expect(self, at: float, action: Callable[..., None], *arguments: object) -> None:
        """Call `action` at a virtual time. The search does not end before."""
        self._to_join += _NEVER
        self.timeline.at(at, action, *arguments)

    def _do(self, deed: Deed) -> None:
        self._to_join -= _NEVER
        event = self._event(self.core.streams[StreamId(NAME)], deed)
        if event is not None:
            self._pending.append(event)

    def _event(self, stream: Stream, deed: Deed) -> Event | None:
        now, number, request = self.timeline.now, deed.number, f"deed at {deed.at}"
        match deed.kind:
            case "extend":
                return Updated(now, StreamId(NAME), request, max_position=stream.founder.settings.max_position + number)
            case "more jobs":
                return Updated(now, StreamId(NAME), request, more_jobs=number)
            case "concurrency":
                return Updated(now, StreamId(NAME), request, concurrency=number)
            case "stop":
                return Operated(now, StreamId(NAME), "stop", ExperimentId(NAME))
            case "room":
                hashes = sorted({entry.info.sha256 for entry in stream.snapshots.entries()})
                return SnapshotsGivenUp(now, StreamId(NAME), tuple(hashes[number % 2 :: 2]))
            case "request":
                position = 1 + number % stream.founder.settings.max_position
                running = stream.founder.running
                return Requested(now, StreamId(NAME), request, deed.configuration or {}, position) if running else None
            case _:
                return self._to_a_job(stream, deed)

    def _to_a_job(self, stream: Stream, deed: Deed) -> Event | None:
        now = self.timeline.now
        open_jobs = [job for job in stream.jobs.values() if not job.state.ended and job.experiment.running]
        if not open_jobs:
            return None
        job = open_jobs[deed.number % len(open_jobs)]
        if deed.kind == "hold":
            self._expect(now + deed.lasts, self._let_go, job)
            return JobHeld(now, StreamId(NAME), job.id, held=True)
        return JobOperated(now, StreamId(NAME), TerminateJob(job.id))

    def _let_go(self, job: Job) -> None:
        self._to_join -= _NEVER
        if not job.state.ended and job.experiment.running:
            self._pending.append(JobHeld(self.timeline.now, StreamId(NAME), job.id, held=False))

    # ---------------------------------------------------------------------------------------------------------- events

    def _look_at(self, event: Event, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is Send and type(effect.body) is Start and effect.run.rank == 0:
                start = effect.body
                position = start.snapshot.position if start.snapshot is not None else 0
                if start.mode is RunMode.TRAIN:
                    need(start.until > position, f"job {effect.run.job} starts at {position} with until {start.until}")
                self._attempts[effect.run.job, effect.run.attempt] = Attempt(start, position)
        if type(event) is RunMessage and event.rank == 0:
            self._take(event)

    def _take(self, event: RunMessage) -> None:
        run = self._attempts[event.job, event.attempt]
        if run.start.mode is not RunMode.TRAIN:
            return
        where = f"job {event.job}, attempt {event.attempt}"
        if isinstance(event.body, Reports):
            for report in event.body.reports:
                self._reported(where, event.job, run, report)
        elif isinstance(event.body, Ended):
            good = event.body.reason in (RunEndReason.UNTIL, RunEndReason.SUSPENDED)
            need(
                not good or run.reports > 0 or event.body.finished,
                f"{where}: of length 0 at {run.position}: {event.body}",
            )

    def _reported(self, where: str, job: str, run: Attempt, report: Report) -> None:
        again = report.finished and run.reports == 0 and report.position == run.position
        need(report.position > run.position or again, f"{where}: from {run.position} to {report.position}")
        run.position = report.position
        run.reports += 1
        if not again:
            self._executed[job, report.position] += 1
        elif self._undisturbed:  # A job that starts from another job's snapshot may find that its program ends there.
            snapshot = run.start.snapshot
            own = snapshot is not None and snapshot.sha256.startswith(f"{job}.")
            need(not own, f"{where}: nothing to train at {report.position}")

    # ------------------------------------------------------------------------------------------------------------- end

    def end(self, make: Callable[[], Policy]) -> None:
        """Check the invariants at the end of the search, and replay its journal.

        Args:
            make: Creates the policy for the replay.

        Raises:
            WrongError: An invariant is violated.
        """
        stream = self.experiment
        need(
            not stream.live and not stream.slots,
            f"it still holds {list(stream.slots)} and runs {list(stream.live)}",
        )
        need(
            not stream.asks and stream.conversation.in_flight is None,
            f"it still waits for {list(stream.asks)} {stream.conversation.in_flight}",
        )
        held = [slot.spec.id for slot in self.core.cluster.slots.values() if slot.holder]
        need(not held, f"slots are held by nobody alive: {held}")
        for job in stream.jobs.values():
            rest = job.state.ended or job.state.idle or job.state is JobState.HELD
            need(rest, f"job {job.id} is {job.state.value}: {list(job.story)}")
            self._curve(stream, job)
        for entry in stream.snapshots.entries():
            forks = {job.fork_holder for job in stream.jobs.values() if not job.state.ended}
            need(not entry.pins - forks, f"snapshot {entry.job}@{entry.info.position} is pinned by {entry.pins}")
        if self._undisturbed and not self.from_scratch:
            twice = [key for key, count in self._executed.items() if count > 1]
            need(not twice, f"trained more than once (job, position): {twice[:5]}")
        self._again(make)

    def _curve(self, stream: Stream, job: Job) -> None:
        """Check that a job's curve consists of its program's reports, from the first one on.

        The curve of a copy begins with the curve of its origin.
        """
        if job.hyperparameters is None:
            return
        lesson = self.lesson(job.hyperparameters)
        points = stream.curve(job)
        positions = [point.position for point in points]
        need(positions == sorted(set(positions)), f"the curve of job {job.id} is out of order: {positions}")
        # Up to the position of the copy, the origin had other hyperparameters, so only later points are checked.
        begins = job.origin[1] if job.origin is not None and stream.settings.space is not None else 0
        trained = [point for point in points if point.whole is not None and point.position > begins]
        reached = max((point.position for point in trained), default=begins)
        wanted = [position for position in lesson.positions if begins < position <= reached]
        found = [point.position for point in trained]
        # A gang over partitions trains several units at a time.
        whole = set(found) <= set(wanted) if stream.data is not None else found == wanted
        need(whole, f"the curve of job {job.id} has {found}, its program reports {wanted}")
        expected = dict(zip(lesson.positions, lesson.values, strict=True))
        for point in trained:
            value, true = (point.whole or {})[stream.settings.metric], expected[point.position]
            equal = value == true or (math.isnan(value) and math.isnan(true))
            need(equal, f"job {job.id} at {point.position}: {value}, its program reports {true}")

    def _again(self, make: Callable[[], Policy]) -> None:
        """Check that a replay of the journal gives the same answers of the policy and the same end of all jobs."""
        core = Core()
        replay = Replay(core, lambda _: PolicyHost(make()))
        for event in self._recording.records:
            replay.take(decode(kind_of(event), encode(event)))
        need(replay.first is None, f"the replay differs: {replay.first.text if replay.first else ''}")
        need(_picture(core.streams[StreamId(NAME)]) == _picture(self.experiment), "the replay leads to another end")


def _picture(stream: Stream) -> object:
    return (
        stream.state,
        stream.reason,
        [
            (job.id, job.state, job.position, job.high_water, job.reason, [repr(point) for point in stream.curve(job)])
            for job in stream.jobs.values()
        ],
    )
