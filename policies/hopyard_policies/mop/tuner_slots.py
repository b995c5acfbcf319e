"""Connects a tuner, which decides how many epochs configurations are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from hopyard.policy import Cluster, CurvePoint, Data, ExperimentView, JobState, JobView, Policy, PredictionReady
from hopyard.policy.rungs import Rung
from hopyard.policy.vocabulary import Call, ForkJob, Verdict
from hopyard_policies.default import DefaultPolicy
from hopyard_policies.inner_policy.driver import Tuning
from hopyard_policies.inner_policy.factory import made
from hopyard_policies.mop.epochs import InEpochs, prediction_in_epochs, terms_in_epochs

MOST: Final = 256
"""Default number of configurations that train at a time without a tuner."""

AHEAD: Final = 2
"""Default number of configurations for each partition that train at a time with a tuner."""


class TunerSlots:
    """A tuner and its places for configurations. The tuner counts epochs, all others count units.

    Args:
        tuner: The name of a policy, or a mapping with `name` and its parameters; None: all configurations train to
            their ends.
        places: The number of configurations that train at a time; None: see `MOST` and `AHEAD`.
        trains: The class of the outer policy.

    Raises:
        ValueError: There is no such tuner.
    """

    def __init__(self, tuner: str | Mapping[str, Any] | None, places: int | None, trains: type[Policy]) -> None:
        self.tuner = DefaultPolicy(ahead=0) if tuner is None else made(tuner, trains)
        self._name = tuner["name"] if isinstance(tuner, Mapping) else tuner or ""
        self._tuning = Tuning(self.tuner, places)
        self._passed: dict[str, int] = {}
        self._turned = False

    @property
    def copies(self) -> bool:
        """Whether the tuner forks configurations that it has stopped."""
        return self._tuning.copies

    @property
    def busy(self) -> int:
        """The number of configurations that it trains now."""
        return self._tuning.busy

    # ----------------------------------------------------------------------------------------------------------- turns

    def passes(self, job: str, position: int) -> bool:
        """Record that a configuration finished an epoch, including evaluation; return whether this is new."""
        new = position > self._passed.get(job, 0)
        if new:
            self._passed[job] = position
        return new

    def hear(self, call: Call | Verdict, data: Data) -> None:
        """Queue an up-call or a refusal for the tuner's next turn."""
        epoch = len(data.train)
        if isinstance(call, PredictionReady):
            call = prediction_in_epochs(call, epoch)
        if isinstance(call, Verdict) and isinstance(call.command, ForkJob):
            call = replace(call, command=replace(call.command, position=call.command.position // epoch))
        self._tuning.hear(call)

    def owns(self, ticket: str) -> bool:
        """Return whether the tuner asked the question with this ticket."""
        return self._tuning.owns(ticket)

    def turn(self, cluster: Cluster, data: Data, settle: Callable[[], None]) -> None:
        """Make all pending up-calls on the tuner and let it decide.

        Args:
            cluster: The view, in units.
            data: The partitions and their nodes.
            settle: See `Tuning.turn`.

        Raises:
            RuntimeError: The tuner does not settle.
        """
        self._turned, view = True, self._view(cluster, data)
        self._tuning.turn(view, _Progress(view, cluster.jobs, self._passed, len(data.train)), settle)

    # ------------------------------------------------------------------------------------------------- what comes of them

    def wanted(self, job: JobView, epoch: int) -> int:
        """Return the position up to which a job is wanted now; 0: it is not wanted."""
        state = self._tuning.states.get(job.id)
        if state is None:
            return 0
        if state.ended is JobState.COMPLETED:  # It may have lost its last training.
            return job.max_position
        return min(state.errand.until * epoch, job.max_position) if state.errand is not None else 0

    def stops_at(self, job: str, position: int, epoch: int) -> bool:
        """Return whether the tuner may fork a job at a position that it is about to reach."""
        state = self._tuning.states[job]
        return self.copies and state.errand is not None and position == state.errand.until * epoch

    def ended(self) -> Iterator[tuple[str, JobState]]:
        """Yield the jobs that have ended for the tuner but not yet themselves, with their final states."""
        for state in self._tuning.states.values():
            if state.ended is not None and not state.over:
                yield state.id, state.ended

    def forget(self, job: str) -> None:
        """Drop the record of a job that will not run again."""
        self._passed.pop(job, None)

    # ------------------------------------------------------------------------------------------------------ what is asked

    def idles(self, cluster: Cluster, data: Data) -> bool:
        """Return whether the tuner wants nothing beyond what it trains."""
        wanted = self._tuning.demand(self._view(cluster, data))
        return self._turned and wanted is not None and wanted <= self.busy

    def rungs(self, cluster: Cluster, data: Data) -> tuple[Rung, ...] | None:
        """Return the tuner's rungs, with positions in units; None: it has none."""
        found = self._tuning.rungs(self._view(cluster, data))
        return found and tuple(replace(rung, position=rung.position * len(data.train)) for rung in found)

    def review(self, terms: ExperimentView) -> str:
        """Return the tuner's remarks on the terms.

        Raises:
            ValueError: The tuner rejects the terms.
        """
        within = terms_in_epochs(terms, terms.partitions)
        try:
            said = self.tuner.review(within)
        except ValueError as error:
            raise ValueError(f"{self._to_it(within)}: {error}") from error
        return f"{self._to_it(within)}: {said}" if said else ""

    def _to_it(self, terms: ExperimentView) -> str:
        counted = f"counts epochs, of {terms.partitions} units each here"
        return f"tuner {self._name} ({counted}, so that max_iterations is {terms.max_position} to it)"

    def _view(self, cluster: Cluster, data: Data) -> InEpochs:
        usual = MOST if not self._name else AHEAD * len(data.train)
        self._tuning.width = self._tuning.width or usual
        return InEpochs(cluster, len(data.train))


class _Progress:
    """The progress of configurations at the moment of a turn, in epochs."""

    def __init__(self, cluster: InEpochs, jobs: Mapping[str, JobView], passed: Mapping[str, int], epoch: int) -> None:
        self._cluster, self._jobs, self._passed, self._epoch = cluster, jobs, passed, epoch

    moves = 0

    def moved(self, trial: str, since: int) -> bool:
        """Return True: progress is checked each time; see `Progress`."""
        return True

    def reached(self, trial: str) -> tuple[int, bool]:
        """Return the number of epochs that a trial has finished, and whether its training has finished."""
        job = self._jobs[trial]
        if job.state is JobState.COMPLETED:
            return max(job.position // self._epoch, 1), True
        passed = -(-self._passed.get(trial, 0) // self._epoch)
        return max(passed, job.fork_position // self._epoch), False

    def curve(self, trial: str) -> Sequence[CurvePoint]:
        """Return a trial's curve, with a point for each epoch."""
        return self._cluster.curve(trial)

    def saved(self, trial: str, position: int) -> str | None:
        """Return the trial itself if it has a snapshot after this number of epochs; None: it has not."""
        return trial if position in self._cluster.snapshots(trial) else None
