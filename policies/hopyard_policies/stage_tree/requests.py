"""Trials wanted in addition to the tuner's: requests of clients, and best trials that train further."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hopyard.policy import JobState, JobView
from hopyard_policies.inner_policy.progress import Progress
from hopyard_policies.inner_policy.trials import Errand, TrialState


class Requests:
    """The additional trials. Each is a job that completes at its max position; the tuner does not see it."""

    def __init__(self) -> None:
        self.states: dict[str, TrialState] = {}
        self._experiments: dict[str, str] = {}

    def add(self, job: JobView) -> None:
        """Request that a job is trained to its end."""
        self.states[job.id] = TrialState(job.id)
        self._experiments[job.id] = job.experiment
        self._look(self.states[job.id], job)

    def expect(self, job: str) -> None:
        """Announce a job that is about to be created; `add` follows."""
        self.states[job] = TrialState(job, over=True)

    def trials(self) -> dict[str, list[TrialState]]:
        """Return all trials by experiment."""
        found: dict[str, list[TrialState]] = {}
        for job, experiment in self._experiments.items():
            found.setdefault(experiment, []).append(self.states[job])
        return found

    def errands(self) -> Iterator[tuple[TrialState, Errand]]:
        """Yield the trials that are not trained yet, with their errands."""
        for state in self.states.values():
            if state.errand is not None:
                yield state, state.errand

    def turn(self, jobs: Mapping[str, JobView], progress: Progress) -> None:
        """Update the trials: trained by any job, or paused or ended by a person."""
        for state in self.states.values():
            if state.over:
                continue
            job = jobs[state.id]
            self._look(state, job)
            if state.errand is not None:
                reached, finished = progress.reached(state.id)
                if finished or reached >= state.errand.until:
                    state.position, state.ended, state.errand = reached, JobState.COMPLETED, None

    def _look(self, state: TrialState, job: JobView) -> None:
        state.over = job.state.ended
        if state.over:
            state.ended, state.position = state.ended or job.state, max(state.position, job.position)
        waits = state.ended is not None or job.state is JobState.HELD
        state.errand = None if waits else state.errand or Errand("", job.max_position, job.max_position)
