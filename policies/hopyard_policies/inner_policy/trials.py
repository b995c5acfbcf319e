"""Trials as their tuner sees them: jobs that run on machines of its own, which are not there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hopyard.policy import CurvePoint, ExperimentView, JobState, JobView

Known = Callable[[str, int], Sequence[CurvePoint]]
"""A trial's curve up to a position, whoever trained it."""

Origin = tuple[str, int]
"""Whose state a trial begins with, and where; nobody's at 0: with nothing."""


@dataclass(slots=True)
class Errand:
    """A run of a trial as the tuner sees it: it wants the trial trained up to `until`.

    Attributes:
        machine: Where the tuner thinks that it runs.
        until: Where it parks.
        allowed: Reports below it need no decision.
        parked: Whether it waits at `until`; `held`: by the tuner's PARK.
        finished: Whether the training has nothing more to train.
    """

    machine: str
    until: int
    allowed: int
    parked: bool = False
    held: bool = False
    finished: bool = False

    def next_decision(self, position: int) -> int:
        """The next position at which the tuner decides something."""
        return min(max(self.allowed, position + 1), self.until)


@dataclass(slots=True)
class TrialState:
    """A trial as its tuner knows it.

    Attributes:
        id: Its job.
        position: How far the tuner knows that it was trained.
        errand: Its run.
        ended: How it ended for the tuner; None while it has not. `limit`: where it would have been complete then.
        over: Whether its job has ended, too: nothing more will happen to it unless the experiment is extended.
        attempt: Errands so far.
        parent: Whose state at `fork_position` it began with; empty: nobody's.
        stops: Where errands of it ended: it was saved there, as its tuner sees it.
    """

    id: str
    position: int = 0
    errand: Errand | None = None
    ended: JobState | None = None
    limit: int = 0
    over: bool = False
    attempt: int = 0
    parent: str = ""
    fork_position: int = 0
    stops: set[int] = field(default_factory=set)


class Trials(Mapping[str, JobView]):
    """The jobs of an experiment as its tuner sees them, made when they are looked at.

    `coming` are those that it has just asked for, `hidden` those that do not concern it, `running` the experiments that run.
    """

    def __init__(
        self,
        jobs: Mapping[str, JobView],
        states: Mapping[str, TrialState],
        coming: Mapping[str, Origin],
        terms: ExperimentView,
        hidden: Collection[str],
        running: Collection[str],
    ) -> None:
        self._jobs, self._hidden, self._states, self._terms = jobs, hidden, states, terms
        self._running = running
        self._coming = {job: origin for job, origin in coming.items() if job not in jobs}

    def __len__(self) -> int:
        return len(self._jobs) - sum(job in self._jobs for job in self._hidden) + len(self._coming)

    def __iter__(self) -> Iterator[str]:
        yield from (job for job in self._jobs if job not in self._hidden)
        yield from self._coming

    def __getitem__(self, job: str) -> JobView:
        if job in self._coming:
            parent, position = self._coming[job]
            return JobView(
                job,
                JobState.CREATING,
                position=position,
                high_water=position,
                parent=parent,
                fork_position=position,
                ordinal=int(job),
                experiment=self._terms.id,
                max_position=self._terms.max_position,
            )
        if job in self._hidden:
            raise KeyError(job)
        real, state = self._jobs[job], self._states.get(job)
        if state is None:
            return replace(real, state=self.state(job))
        errand = state.errand
        return replace(
            real,
            state=self.state(job),
            position=state.position,
            high_water=state.position,
            attempt=state.attempt,
            machines=(errand.machine,) if errand is not None else (),
            parked=errand is not None and errand.parked,
            parent=state.parent,
            fork_position=state.fork_position,
        )

    def idle(self) -> Iterator[JobView]:
        """Those that wait for the tuner to start them, while their experiments run."""
        return map(self.__getitem__, self.waiting())

    def waiting(self) -> Iterator[str]:
        """Which these are."""
        able = [job for job, state in self._states.items() if state.errand is None and state.ended is None]
        return filter(self.waits, able)

    def waits(self, job: str) -> bool:
        """Whether a trial is one of these."""
        return job in self._jobs and self.state(job).idle and self._jobs[job].experiment in self._running

    def heard(self) -> bool:
        """Whether the tuner has heard of all of them."""
        return not self._coming and len(self) == sum([job in self._jobs for job in self._states])

    def state(self, job: str) -> JobState:
        """Where a trial stands for the tuner."""
        if job not in self._jobs:
            return JobState.CREATING
        found, state = self._jobs[job].state, self._states.get(job)
        if state is None:  # It is about to hear of it.
            return JobState.CREATING if found.idle else found
        if found is JobState.CREATING:
            return found
        if state.ended is not None:
            return state.ended
        if found is JobState.HELD:
            return found
        if state.errand is not None:
            return JobState.RUNNING
        return JobState.SUSPENDED if state.position else JobState.PENDING
