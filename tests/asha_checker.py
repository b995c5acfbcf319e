"""An independent checker of Algorithm 2 of the ASHA paper (Li et al., MLSys 2020), written from the text of the paper.

It reads only an experiment's journal: the up-calls to the policy and the commands that followed. Each promotion must be the one
that `get_job` returns at that moment: it scans the rungs from the top and takes the first job that is not promoted yet among the
floor(|rung| / eta) best of a rung. Equal values rank in the order of completion; NaN and infinities rank last and are never
promoted. The bottom rung grows only if no rung of any bracket has a promotable job. No job is terminated. A job that is sent to the
same rung again, because its run was lost, is no decision of Algorithm 2. The commands of one answer are one decision.

A worker calls `get_job` when its job completes. If another job is to be promoted then, the decision is made at once, but the worker
first has to save and leave its own job: the command follows after that. A worker that is leaving its job is reserved for the job
that was chosen for it. A new job is drawn when it starts.

A job whose run is ending cannot be given to a worker: it is promotable only after the end of that run. The same holds for jobs that
have ended, that a person holds, whose experiment is paused, or that the engine delays because their runs were lost repeatedly.
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
    """An action in the journal that Algorithm 2 does not make."""


def positions(r: int, limit: int, eta: int, s: int = 0) -> tuple[int, ...]:
    """Return the positions of a bracket's rungs: `limit` (R) / eta^k not below r, to the nearest, halves up, without the lowest s."""
    powers = [1]
    while powers[-1] * eta * r <= limit:
        powers.append(powers[-1] * eta)
    found = tuple((2 * limit + power) // (2 * power) for power in reversed(powers))
    return found[min(s, len(found) - 1) :]


@dataclass
class Bracket:
    """One bracket with the state that Algorithm 2 has of it.

    Attributes:
        positions: Positions of its rungs, the bottom one first.
        eta: The reduction factor.
        mode: Which direction of the metric is better.
        width: The most jobs of the bottom rung; None: any number.
        heading: By job, the rung that it was sent to last.
        values: By rung, the value of each job that reported there, in order of completion.
        promoted: By rung, the jobs that were promoted from it.
        grown: The number of jobs that were sent to the bottom rung.
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
        """Create the empty rungs."""
        self.values = [{} for _ in self.positions]
        self.promoted = [[] for _ in self.positions]

    def candidates(self, rung: int) -> list[str]:
        """Return top_k(rung, floor(|rung| / eta)) without jobs whose value is not finite."""
        best = self._ordered(rung)[: len(self.values[rung]) // self.eta]
        return [job for job in best if math.isfinite(self.values[rung][job])]

    def get_job(self, available: Available) -> tuple[str, int] | None:
        """Return the promotable job that Algorithm 2 would return, and its rung; None: the bottom rung grows."""
        for rung in range(len(self.positions) - 2, -1, -1):
            for job in self.candidates(rung):
                if job not in self.promoted[rung] and available(job):
                    return job, rung
        return None

    def completed(self, job: str, position: int, value: float) -> bool:
        """Record the value of a job at the rung it was sent to; return False if it is not there yet, or had already reported there."""
        rung = self.heading[job]
        if position != self.positions[rung] or not self.on_its_way(job):
            return False
        self.values[rung][job] = value
        return True

    def on_its_way(self, job: str) -> bool:
        """Return whether a job has not yet reported at the rung that it was sent to."""
        return job not in self.values[self.heading[job]]

    def grows(self, job: str, available: Available) -> None:
        """Record that a new job is sent to the bottom rung.

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
        """Record that a job is promoted from the rung that it was sent to last.

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
            assert instead is not None  # This job itself is promotable.
            raise Violation(f"{self.told(job, rung)} is promoted, but {self.told(*instead)} comes before it")
        self.promoted[rung].append(job)
        self.heading[job] = rung + 1

    def _ordered(self, rung: int) -> list[str]:
        values = self.values[rung]
        # A stable sort: of equal values the job that completed earlier comes first.
        return sorted(values, key=lambda job: self._merit(values[job]))

    def _merit(self, value: float) -> float:
        if not math.isfinite(value):
            return math.inf
        return -value if self.mode == "max" else value

    def told(self, job: str, rung: int) -> str:
        """Return how a message names a job: with its value and rung."""
        return f"job {job} ({self.values[rung][job]:g}) on rung {rung}"


@dataclass
class Judgement:
    """The result of a journal without violations.

    Attributes:
        promotions: (job, position that it was sent to), in order.
        grown: Jobs in the order in which they were sent to a bottom rung.
        again: (job, position) of runs that were lost and queued again.
        left: Jobs that are promotable at the journal's end, although a worker could be given them.
    """

    promotions: list[tuple[str, int]] = field(default_factory=list)
    grown: list[str] = field(default_factory=list)
    again: list[tuple[str, int]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


class Judge:
    """Checks the journal of one experiment.

    Args:
        brackets: Empty brackets with different lowest positions, which identify the bracket of a job.
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
        """Process all events of the stream.

        Raises:
            Violation: The first command that Algorithm 2 would not give; the message names the event.
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
            ready = self._ready()  # As the policy saw it.
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
        """Yield the commands that follow an event: each job and the position it is sent to."""
        for effect in self._core.restore(event):
            if isinstance(effect, UpCall):
                self._calls[effect.number] = effect.call
            elif isinstance(effect, Send) and effect.run.rank == 0 and (effect.run, effect.sequence) not in self._seen:
                self._seen.add((effect.run, effect.sequence))
                if isinstance(effect.body, Start | Amend) and effect.body.until is not None:
                    yield effect.run.job, effect.body.until

    def _first(self, sent: Sequence[tuple[str, int]], available: Available) -> int:
        """Return the index of the command of an answer to check first: an answer is one decision, so any valid order is accepted."""
        for index, (job, _) in enumerate(sent):
            bracket = self._of.get(job)
            if job in self._decided:
                return index
            if bracket is not None and (found := bracket.get_job(available)) is not None and found[0] == job:
                return index
        return 0

    def _decides(self, available: Available) -> None:
        """Promote the job for which a worker leaves its own job. Brackets are asked in their order."""
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
        """Return the jobs that a worker could be given now."""
        return {job.id for job in self._experiment.idle_jobs() if job.id in self._of}

    def _told(self, call: Call) -> None:
        """Process an up-call to the policy: a report of a job, or the end of its run."""
        if isinstance(call, IterationFinish) and call.job in self._of:
            value = call.report.metrics.get(self._metric, math.nan)
            self._of[call.job].completed(call.job, call.position, value)
        elif isinstance(call, RunEnd) and call.job in self._of:
            self._left(call.job)

    def _ended(self) -> None:
        """Record jobs that a person ended while they had no run: they never report at their rung, which ranks last."""
        for name, bracket in self._of.items():
            job = self._experiment.jobs[name]
            if job.run is None and bracket.on_its_way(name) and job.state in (JobState.FAILED, JobState.TERMINATED):
                self._left(name)

    def _left(self, name: str) -> None:
        """Record the end of a run: its job has reported at its rung, or never will, which ranks last."""
        job, bracket = self._experiment.jobs[name], self._of[name]
        position = bracket.positions[bracket.heading[name]]
        values = [p.metrics.get(self._metric, math.nan) for p in self._experiment.curve(job) if p.position == position]
        if values or job.state in (JobState.FAILED, JobState.TERMINATED):
            bracket.completed(name, position, *values or [math.nan])

    def _follows(self, job: str, until: int) -> None:
        """Record that a promoted job is sent to its rung after it waited for a worker."""
        self._decided.remove(job)
        bracket = self._of[job]
        if until != bracket.positions[bracket.heading[job]]:
            raise Violation(f"job {job} is sent to {until}; it was to be promoted to rung {bracket.heading[job]}")
        self.found.promotions.append((job, until))

    def _sent(self, job: str, until: int, available: Available) -> bool:
        """Record that a job is sent to a position; return whether that is a decision of Algorithm 2."""
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
    """Raise a Violation if an answer terminates a job: a job that waits at a rung may be promoted later."""
    ended = [command.job for command in answer.commands if isinstance(command, TerminateJob)]
    if answer.decision is not None and answer.decision.kind is DecisionKind.TERMINATE and asking is not None:
        ended.append(asking)
    if ended:
        raise Violation(f"job {ended[0]} is ended, and may be promoted later")


def _refused(answer: Answer, sent: Collection[str]) -> list[tuple[str, int]]:
    """Return the starts of an answer that the engine could not carry out: their jobs are sent to their rung later."""
    starts = [command for command in answer.commands if isinstance(command, StartJob) and command.job not in sent]
    return [(command.job, command.until) for command in starts if command.until is not None]
