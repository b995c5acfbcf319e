"""Trials that are trained in addition to those of the tuners: requests of clients, and best trials that are trained further."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hopyard.policy import JobState, JobView
from hopyard_policies.inner_policy.progress import Progress
from hopyard_policies.inner_policy.trials import TrialRun, TrialState


class Requests:
    """The additional trials. Each is a job that completes at its maximum position; the tuner does not see it.

    Attributes:
        states: The state of each additional trial, by job id.
    """

    def __init__(self) -> None:
        self.states: dict[str, TrialState] = {}
        self._experiments: dict[str, str] = {}

    def add(self, job: JobView) -> None:
        """Request that a job is trained to its maximum position. A job that has ended is recorded, but not trained."""
        self.states[job.id] = TrialState(job.id)
        self._experiments[job.id] = job.experiment
        self._look(self.states[job.id], job)

    def expect(self, job: str) -> None:
        """Register a job that is about to be created, so that the tuner does not see it.

        No training is requested for it until the caller passes the created job to `add`.
        """
        self.states[job] = TrialState(job, over=True)

    def trials(self) -> dict[str, list[TrialState]]:
        """Return the states of all additional trials, by experiment."""
        found: dict[str, list[TrialState]] = {}
        for job, experiment in self._experiments.items():
            found.setdefault(experiment, []).append(self.states[job])
        return found

    def virtual_runs(self) -> Iterator[tuple[TrialState, TrialRun]]:
        """Yield the states of the additional trials that are not fully trained yet, with their virtual runs."""
        for state in self.states.values():
            if state.virtual_run is not None:
                yield state, state.virtual_run

    def turn(self, jobs: Mapping[str, JobView], progress: Progress) -> None:
        """Update the trials: complete those that any job has trained; pause or end those whose jobs a person paused or ended.

        Args:
            jobs: The real jobs, by id.
            progress: The known progress of trials.
        """
        for state in self.states.values():
            if state.over:
                continue
            job = jobs[state.id]
            self._look(state, job)
            if state.virtual_run is not None:
                reached, finished = progress.reached(state.id)
                if finished or reached >= state.virtual_run.until:
                    state.position, state.ended, state.virtual_run = reached, JobState.COMPLETED, None

    def _look(self, state: TrialState, job: JobView) -> None:
        state.over = job.state.ended
        if state.over:
            state.ended, state.position = state.ended or job.state, max(state.position, job.position)
        waits = state.ended is not None or job.state is JobState.HELD
        state.virtual_run = None if waits else state.virtual_run or TrialRun("", job.max_position, job.max_position)
