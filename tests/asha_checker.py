"""An independent checker of Algorithm 2 of the ASHA paper (Li et al., MLSys 2020), written from its text.

It reads only the journal of an experiment: the up-calls of the policy and the commands that followed. Each promotion must be what
`get_job` returns at that moment: it scans rungs from the top and returns the first job that is among the best floor(|rung| / eta) of
its rung and has not been promoted. Equal values are ordered by completion; NaN and infinities are worst and never promoted. The
bottom rung may grow only if no rung of any bracket has a promotable job. No job may be terminated. A start toward the same rung
after a lost run is not a decision of Algorithm 2. The commands of one answer are one decision.

A worker is a slot. It calls `get_job` when its job completes. If another job is to be promoted then, the decision is made at that
moment, but the command follows when the worker has saved its own job and released the slot. Workers that are still saving are for
the jobs that wait for them already. A new job is drawn when it starts.

A job is not available for a worker, and so not promotable, while its own run is ending, after it has ended, while a person holds it
(HELD), while its experiment is paused, and while the core delays it after repeated losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hopyard.policy.vocabulary import (
    Answer,
    Call,
    DecisionKind,
    IterationFinish,
    JobState,
    RunEnd,
    RunKey,
    StartJob,
    TerminateJob,
)
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Amend, Send, Start, UpCall
from hopyard_engine.core.events import ClusterEvent, Event, PolicyAnswered, StreamEvent
from hopyard_engine.core.state.stream import Stream

Available = Callable[[str], bool]
"""Returns whether a worker can start this job now."""


class Violation(AssertionError):
    """Raised at a command that Algorithm 2 would not give."""


def positions(r: int, limit: int, eta: int, s: int = 0) -> tuple[int, ...]:
    """Return the positions of the rungs of bracket s: r * eta^(s + k), at most `limit` (R)."""
    found = [r * eta**s]
    while found[-1] < limit:
        found.append(min(found[-1] * eta, limit))
    return tuple(found)


@dataclass
class Bracket:
    """One bracket in the terms of Algorithm 2.

    Attributes:
        positions: Positions of the rungs, the bottom one first.
        eta: The reduction factor.
        mode: The direction of the metric: `max` or `min`.
        width: The maximum number of jobs of the bottom rung; None: no maximum.
        heading: By job, the rung that it trains toward or has reached last.
        values: By rung, the reported value of each job, in order of completion.
        promoted: By rung, the jobs that were promoted from it.
        grown: The number of jobs that were started toward the bottom rung.
    """

    positions: Sequence[int]
    eta: int = 4
    mode: Literal["max", "min"] = "max"
    width: int | None = None
    heading: dict[str, int] = field(default_factory=dict)
    values: list[dict[str, float]] = field(init=False)
    promoted: list[list[str]] = field(init=False)
    grown: int = 0

    def __post_init__(self) -> None:
        """Create empty rungs."""
        self.values = [{} for _ in self.positions]
        self.promoted = [[] for _ in self.positions]

    def candidates(self, rung: int) -> list[str]:
        """Return top_k(rung, floor(|rung| / eta)), without jobs whose value is not finite."""
        best = self._ordered(rung)[: len(self.values[rung]) // self.eta]
        return [job for job in best if math.isfinite(self.values[rung][job])]

    def get_job(self, available: Available) -> tuple[str, int] | None:
        """Return the job that Algorithm 2 would promote and its rung, or None if the bottom rung grows."""
        for rung in range(len(self.positions) - 2, -1, -1):
            for job in self.candidates(rung):
                if job not in self.promoted[rung] and available(job):
                    return job, rung
        return None

    def completed(self, job: str, position: int, value: float) -> bool:
        """Record a job's value at its rung; return False if the position is not that of its rung, or if its value is known."""
        rung = self.heading[job]
        if position != self.positions[rung] or not self.on_its_way(job):
            return False
        self.values[rung][job] = value
        return True

    def on_its_way(self, job: str) -> bool:
        """Return whether a job has not reported yet at the rung that it trains toward."""
        return job not in self.values[self.heading[job]]

    def grows(self, job: str, available: Available) -> None:
        """Record that a new job was started toward the bottom rung.

        Raises:
            Violation: A job was promotable instead, or the rung is full.
        """
        instead = self.get_job(available)
        if instead is not None:
            raise Violation(f"job {job} grows the bottom rung, but {self.told(*instead)} is promotable")
        if self.width is not None and self.grown >= self.width:
            raise Violation(f"job {job} grows the bottom rung beyond {self.width} jobs")
        self.heading[job] = 0
        self.grown += 1

    def promotes(self, job: str, available: Available) -> None:
        """Record that a job was promoted from its rung.

        Raises:
            Violation: Algorithm 2 would not promote this job now.
        """
        rung = self.heading[job]
        if self.on_its_way(job):
            raise Violation(f"job {job} is promoted from rung {rung}, where it has not reported")
        place, count = self._ordered(rung).index(job) + 1, len(self.values[rung])
        if job not in self.candidates(rung):
            told = f"{place} of {count}, and floor({count} / {self.eta}) = {count // self.eta} are promotable"
            raise Violation(f"job {job} is promoted from rung {rung}, where it is {told}")
        instead = self.get_job(lambda other: other == job or available(other))
        if instead != (job, rung):
            assert instead is not None  # this job itself is promotable
            raise Violation(f"{self.told(job, rung)} is promoted, but {self.told(*instead)} comes before it")
        self.promoted[rung].append(job)
        self.heading[job] = rung + 1

    def _ordered(self, rung: int) -> list[str]:
        values = self.values[rung]
        return sorted(values, key=lambda job: self._merit(values[job]))  # a stable sort: ties by completion

    def _merit(self, value: float) -> float:
        if not math.isfinite(value):
            return math.inf
        return -value if self.mode == "max" else value

    def told(self, job: str, rung: int) -> str:
        """Return the text that names a job in messages."""
        return f"job {job} ({self.values[rung][job]:g}) on rung {rung}"


@dataclass
class Judgement:
    """The result of checking a journal without a violation.

    Attributes:
        promotions: (job, position that it was promoted to), in order.
        grown: Jobs in the order in which they were started toward a bottom rung.
        again: (job, position) of restarts after a lost run.
        left: Jobs that are promotable and available at the end of the journal.
    """

    promotions: list[tuple[str, int]] = field(default_factory=list)
    grown: list[str] = field(default_factory=list)
    again: list[tuple[str, int]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


class Judge:
    """Checks the journal of one experiment.

    Args:
        brackets: Empty brackets with different lowest positions, by which the bracket of a job is identified.
        metric: Name of the metric.
    """

    def __init__(self, brackets: Sequence[Bracket], metric: str) -> None:
        self._bottoms = {bracket.positions[0]: bracket for bracket in brackets}
        self._metric = metric
        self._core = Core()
        self._calls: dict[int, Call] = {}
        self._of: dict[str, Bracket] = {}
        self._seen: set[tuple[RunKey, int]] = set()
        self._decided: list[str] = []
        self._number = 0
        self.found = Judgement()

    def follow(self, events: Iterable[Event]) -> Judgement:
        """Check all events of the stream in order.

        Raises:
            Violation: At the first command that Algorithm 2 would not give; the text has the number of the event.
        """
        for event in events:
            self._number += 1
            if isinstance(event, ClusterEvent):
                continue
            try:
                self._take(event)
            except Violation as found:
                raise Violation(f"event {self._number}: {found}") from None
        jobs = self._experiment.jobs
        idle = {job for job in self._of if jobs[job].state in (JobState.PENDING, JobState.SUSPENDED)}
        self.found.left = [
            job for bracket in self._bottoms.values() for job, _ in filter(None, [bracket.get_job(idle.__contains__)])
        ]
        return self.found

    def _take(self, event: StreamEvent) -> None:
        call = self._calls.pop(event.answer.number, None) if isinstance(event, PolicyAnswered) else None
        asking = call.job if isinstance(call, IterationFinish) and call.at_until else None
        if call is not None:
            self._told(call)
        stream = self._core.streams.get(event.stream)
        ready = set[str]()
        if isinstance(event, PolicyAnswered):
            ready = self._ready()  # as the policy saw it
            self._ended()
            _ends_nobody(event.answer, asking)
        free = stream is not None and asking is not None and stream.busy <= stream.share and stream.founder.running
        leaving = stream.states.get(JobState.SUSPENDING, 0) if stream is not None else 0
        sent = list(self._commands(event))
        if isinstance(event, PolicyAnswered):
            sent += _refused(event.answer, {job for job, _ in sent})

        def available(job: str) -> bool:
            return job in ready or job == asking

        resumed = {job for job, _ in sent}
        while sent:
            job, until = sent.pop(self._first(sent, available))
            if job in self._decided:
                self._follows(job, until)
                continue
            new = self._sent(job, until, available)
            waiting = [other for other in self._decided if other in ready]
            if new and waiting and job != asking:
                raise Violation(
                    f"job {job} is sent to {until}, but job {waiting[0]} was promoted before and waits for a worker"
                )
        if free and asking in self._of and asking not in resumed:
            waiting = [job for job in ready - resumed if job in self._decided or self._of[job].on_its_way(job)]
            if len(waiting) <= leaving:
                self._decides(available)

    def _commands(self, event: StreamEvent) -> Iterator[tuple[str, int]]:
        """Apply an event and yield (job, until) of each start and each amendment that it causes."""
        for effect in self._core.restore(event):
            if isinstance(effect, UpCall):
                self._calls[effect.number] = effect.call
            elif isinstance(effect, Send) and effect.run.rank == 0 and (effect.run, effect.sequence) not in self._seen:
                self._seen.add((effect.run, effect.sequence))
                if isinstance(effect.body, Start | Amend) and effect.body.until is not None:
                    yield effect.run.job, effect.body.until

    def _first(self, sent: Sequence[tuple[str, int]], available: Available) -> int:
        """Return the index of the command to check first.

        The commands of an answer are one decision, so their order is free; a correct one is first.
        """
        for index, (job, _) in enumerate(sent):
            bracket = self._of.get(job)
            if job in self._decided:
                return index
            if bracket is not None and (found := bracket.get_job(available)) is not None and found[0] == job:
                return index
        return 0

    def _decides(self, available: Available) -> None:
        """Record the promotion that is due for a worker that is about to release its job. Brackets are checked in their order."""
        for bracket in self._bottoms.values():
            if (found := bracket.get_job(available)) is not None:
                bracket.promotes(found[0], available)
                self._decided.append(found[0])
                return

    @property
    def _experiment(self) -> Stream:
        (stream,) = self._core.streams.values()
        return stream

    def _ready(self) -> set[str]:
        """Return the jobs that a worker can start now."""
        return {job.id for job in self._experiment.idle_jobs() if job.id in self._of}

    def _told(self, call: Call) -> None:
        """Record the result, if any, that an up-call brings."""
        if isinstance(call, IterationFinish) and call.job in self._of:
            value = call.report.metrics.get(self._metric, math.nan)
            self._of[call.job].completed(call.job, call.position, value)
        elif isinstance(call, RunEnd) and call.job in self._of:
            self._left(call.job)

    def _ended(self) -> None:
        """Record the worst value for jobs that a person ended between runs before they reached their rung."""
        for name, bracket in self._of.items():
            job = self._experiment.jobs[name]
            if job.run is None and bracket.on_its_way(name) and job.state in (JobState.FAILED, JobState.TERMINATED):
                self._left(name)

    def _left(self, name: str) -> None:
        """Record the result of an ended run: the report at its rung, or the worst value if its job will never get there."""
        job, bracket = self._experiment.jobs[name], self._of[name]
        position = bracket.positions[bracket.heading[name]]
        values = [p.metrics.get(self._metric, math.nan) for p in self._experiment.curve(job) if p.position == position]
        if values or job.state in (JobState.FAILED, JobState.TERMINATED):
            bracket.completed(name, position, *values or [math.nan])

    def _follows(self, job: str, until: int) -> None:
        """Record the start of a job whose promotion was decided while it waited for a worker."""
        self._decided.remove(job)
        bracket = self._of[job]
        if until != bracket.positions[bracket.heading[job]]:
            raise Violation(f"job {job} is sent to {until}; it was to be promoted to rung {bracket.heading[job]}")
        self.found.promotions.append((job, until))

    def _sent(self, job: str, until: int, available: Available) -> bool:
        """Record that a job was sent to a position; return whether this is a decision of Algorithm 2."""
        bracket = self._of.get(job)
        if bracket is None:
            bracket = self._bottoms.get(until)
            if bracket is None:
                raise Violation(f"job {job} starts towards {until}, the bottom rungs are at {sorted(self._bottoms)}")
            for other in self._bottoms.values():
                if (instead := other.get_job(available)) is not None and other is not bracket:
                    raise Violation(f"job {job} grows the bottom rung, but {other.told(*instead)} is promotable")
            bracket.grows(job, available)
            self._of[job] = bracket
            self.found.grown.append(job)
            return True
        heading = bracket.heading[job]
        if until == bracket.positions[heading] and bracket.on_its_way(job):
            self.found.again.append((job, until))
            return False
        if heading + 1 < len(bracket.positions) and until == bracket.positions[heading + 1]:
            bracket.promotes(job, available)
            self.found.promotions.append((job, until))
            return True
        raise Violation(f"job {job} is sent to {until}; it was sent to rung {heading} of {list(bracket.positions)}")


def _ends_nobody(answer: Answer, asking: str | None) -> None:
    """Raise Violation if an answer terminates a job, since a later result could promote it."""
    ended = [command.job for command in answer.commands if isinstance(command, TerminateJob)]
    if answer.decision is not None and answer.decision.kind is DecisionKind.TERMINATE and asking is not None:
        ended.append(asking)
    if ended:
        raise Violation(f"job {ended[0]} is ended, and may be promoted later")


def _refused(answer: Answer, sent: Collection[str]) -> list[tuple[str, int]]:
    """Return (job, until) of starts that the core refused: their jobs have their new rung and will start later."""
    starts = [command for command in answer.commands if isinstance(command, StartJob) and command.job not in sent]
    return [(command.job, command.until) for command in starts if command.until is not None]
