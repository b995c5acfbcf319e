"""Trials: the jobs of an outer policy as its tuner, an inner policy, sees them. Each trial runs on a virtual slot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hopyard.policy import CurvePoint, ExperimentView, JobState, JobView

Known = Callable[[str, int], Sequence[CurvePoint]]
"""Takes a trial and a position. Returns the trial's curve up to the position, whichever job trained it."""

Origin = tuple[str, int]
"""The parent trial and the position that a trial is forked from; ("", 0): it starts from scratch."""


@dataclass(slots=True)
class TrialRun:
    """A virtual run of a trial: the tuner wants it trained up to `until`.

    Attributes:
        slot: The virtual slot.
        until: The position at which the trial parks for a decision of the tuner.
        allowed: Reports below this position need no decision.
        parked: Whether the trial waits at `until`, or at the end of its training.
        held: Whether the tuner has decided PARK for the trial that waits.
        finished: Whether the training is complete although the last report is below the trial's maximum position.
    """

    slot: str
    until: int
    allowed: int
    parked: bool = False
    held: bool = False
    finished: bool = False

    def next_decision(self, position: int) -> int:
        """Return the next position after `position`, the present one, at which the tuner makes a decision; at most `until`."""
        return min(max(self.allowed, position + 1), self.until)


@dataclass(slots=True)
class TrialState:
    """The tuner's knowledge of a trial.

    Attributes:
        id: The id of its job.
        position: The position up to which the tuner knows it to be trained.
        virtual_run: The virtual run; None: the trial waits for the tuner or has ended.
        ended: The final state in which the tuner has ended it; None: the tuner has not.
        limit: The job's maximum position when the trial was trained to its end; 0: that has not happened. A larger maximum
            position later means that the experiment was extended.
        over: Whether both the trial (see `ended`) and its job have ended, so that only an extension of the experiment can change
            the trial.
        attempt: The number of virtual runs so far.
        parent: The trial that it was forked from at `fork_position`; empty: it was not forked.
        fork_position: The position of the fork.
        stops: Positions at which virtual runs ended; the tuner assumes a snapshot there.
    """

    id: str
    position: int = 0
    virtual_run: TrialRun | None = None
    ended: JobState | None = None
    limit: int = 0
    over: bool = False
    attempt: int = 0
    parent: str = ""
    fork_position: int = 0
    stops: set[int] = field(default_factory=set)


class Trials(Mapping[str, JobView]):
    """The jobs of an experiment as its tuner sees them, by id; views are created on access.

    Args:
        jobs: The real jobs.
        states: The tuner's knowledge of each trial.
        coming: Jobs that the tuner has just requested, each with the trial and position that it is forked from.
        terms: The experiment of the `coming` jobs.
        hidden: Jobs that the tuner does not see.
        running: The ids of the running experiments.
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
        virtual_run = state.virtual_run
        return replace(
            real,
            state=self.state(job),
            position=state.position,
            high_water=state.position,
            attempt=state.attempt,
            slots=(virtual_run.slot,) if virtual_run is not None else (),
            parked=virtual_run is not None and virtual_run.parked,
            parent=state.parent,
            fork_position=state.fork_position,
        )

    def idle(self) -> Iterator[JobView]:
        """Yield the trials that wait for the tuner to start them and whose experiments are running."""
        return map(self.__getitem__, self.waiting())

    def waiting(self) -> Iterator[str]:
        """Yield the ids of the trials of `idle`."""
        able = [job for job, state in self._states.items() if state.virtual_run is None and state.ended is None]
        return filter(self.waits, able)

    def waits(self, job: str) -> bool:
        """Return whether a trial waits for the tuner to start it, and its experiment is running."""
        return job in self._jobs and self.state(job).idle and self._jobs[job].experiment in self._running

    def heard(self) -> bool:
        """Return whether every job that exists or was requested has been announced to the tuner by an up-call."""
        return not self._coming and len(self) == sum([job in self._jobs for job in self._states])

    def state(self, job: str) -> JobState:
        """Return the state of a trial as the tuner sees it.

        The result follows from the virtual run and the tuner's decisions; the state of the real job may differ.
        """
        if job not in self._jobs:
            return JobState.CREATING
        found, state = self._jobs[job].state, self._states.get(job)
        if state is None:  # The tuner receives its creation in this turn.
            return JobState.CREATING if found.idle else found
        if found is JobState.CREATING:
            return found
        if state.ended is not None:
            return state.ended
        if found is JobState.HELD:
            return found
        if state.virtual_run is not None:
            return JobState.RUNNING
        return JobState.SUSPENDED if state.position else JobState.PENDING
