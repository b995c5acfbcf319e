"""Connects a tuner, the inner policy that decides how many epochs each configuration trains, to the policy `mop`.

The tuner's positions are epochs; those of `mop` and the cluster are training units. The *target* of a job is the position up to which
the tuner wants it trained now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from hopyard.policy import Cluster, CurvePoint, Data, ExperimentView, JobState, JobView, Policy, PredictionReady
from hopyard.policy.rungs import Rung
from hopyard.policy.vocabulary import Call, ForkJob, Verdict
from hopyard_policies.default import DefaultPolicy
from hopyard_policies.inner_policy.driver import TunerState
from hopyard_policies.inner_policy.factory import made
from hopyard_policies.mop.epochs import EpochView, prediction_in_epochs, terms_in_epochs

MOST: Final = 256
"""Default number of configurations that train at a time without a tuner."""

AHEAD: Final = 2
"""Default number of configurations for each partition that train at a time with a tuner."""


class TunerSlots:
    """A tuner and the number of configurations that it may train at a time. Converts between the tuner's epochs and training units.

    Args:
        tuner: The name of a policy, or a mapping with `name` and its parameters; None: all configurations train to
            their maximum position.
        places: The number of configurations that train at a time; None: `MOST`, or with a tuner `AHEAD` for each partition.
        trains: The class of the outer policy, which cannot be its own tuner.

    Attributes:
        tuner: The tuner, as a policy object.

    Raises:
        ValueError: There is no such tuner.
    """

    def __init__(self, tuner: str | Mapping[str, Any] | None, places: int | None, trains: type[Policy]) -> None:
        self.tuner = DefaultPolicy(ahead=0) if tuner is None else made(tuner, trains)
        self._name = tuner["name"] if isinstance(tuner, Mapping) else tuner or ""
        self._tuning = TunerState(self.tuner, places)
        self._passed: dict[str, int] = {}
        self._turned = False

    @property
    def copies(self) -> bool:
        """Whether the tuner forks configurations whose virtual runs it has stopped."""
        return self._tuning.copies

    @property
    def busy(self) -> int:
        """The number of configurations that the tuner trains now."""
        return self._tuning.busy

    # ----------------------------------------------------------------------------------------------------------- turns

    def passes(self, job: str, position: int) -> bool:
        """Record that a configuration finished an epoch, including evaluation.

        Args:
            job: The id of the configuration's job.
            position: The end position of the epoch, in units.

        Returns:
            True if this epoch end was not recorded before.
        """
        new = position > self._passed.get(job, 0)
        if new:
            self._passed[job] = position
        return new

    def hear(self, call: Call | Verdict, data: Data) -> None:
        """Queue an up-call, or the refusal of a command, for the tuner's next turn. Positions in it are converted to epochs.

        Args:
            call: The up-call or refusal, with positions in training units.
            data: The partitions and their nodes.
        """
        epoch = len(data.train)
        if isinstance(call, PredictionReady):
            call = prediction_in_epochs(call, epoch)
        if isinstance(call, Verdict) and isinstance(call.command, ForkJob):
            call = replace(call, command=replace(call.command, position=call.command.position // epoch))
        self._tuning.hear(call)

    def owns(self, ticket: str) -> bool:
        """Return whether the tuner made the request with this ticket."""
        return self._tuning.owns(ticket)

    def turn(self, cluster: Cluster, data: Data, settle: Callable[[], None]) -> None:
        """Make all pending up-calls on the tuner and let it decide.

        Args:
            cluster: The view of the up-call, with positions in training units.
            data: The partitions and their nodes.
            settle: Carries out the tuner's decisions; called before each up-call and at the end.

        Raises:
            RuntimeError: The tuner still makes further requests after a large fixed number of up-calls.
        """
        self._turned, view = True, self._view(cluster, data)
        self._tuning.turn(view, _Progress(view, cluster.jobs, self._passed, len(data.train)), settle)

    # ---------------------------------------------------------------------------------------------------------- decisions

    def wanted(self, job: JobView, epoch: int) -> int:
        """Return the position, in training units, up to which the tuner wants a job trained.

        It is the end of the job's virtual run, or the maximum position if the tuner has completed the job. It is 0 for any other job.

        Args:
            job: The job.
            epoch: The number of units in an epoch.
        """
        state = self._tuning.states.get(job.id)
        if state is None:
            return 0
        if state.ended is JobState.COMPLETED:  # The job may have lost the snapshot of its last training.
            return job.max_position
        return min(state.virtual_run.until * epoch, job.max_position) if state.virtual_run is not None else 0

    def stops_at(self, job: str, position: int, epoch: int) -> bool:
        """Return whether a unit that ends at a position must save a snapshot there, because the tuner may fork the job from it.

        Args:
            job: The id of the job.
            position: The end position of the unit, in units.
            epoch: The number of units in an epoch.
        """
        state = self._tuning.states[job]
        return self.copies and state.virtual_run is not None and position == state.virtual_run.until * epoch

    def ended(self) -> Iterator[tuple[str, JobState]]:
        """Yield the id and final state of each job that the tuner has ended but whose real job has not ended yet."""
        for state in self._tuning.states.values():
            if state.ended is not None and not state.over:
                yield state.id, state.ended

    def forget(self, job: str) -> None:
        """Delete the record of finished epochs of a job that will not run again."""
        self._passed.pop(job, None)

    # ------------------------------------------------------------------------------------------------------------ queries

    def idles(self, cluster: Cluster, data: Data) -> bool:
        """Return whether the tuner needs no slot beyond those for the configurations that it trains now.

        The result is False before the first call of `turn`, because the tuner has not decided anything yet.

        Args:
            cluster: The view of the up-call, with positions in training units.
            data: The partitions and their nodes.
        """
        wanted = self._tuning.demand(self._view(cluster, data))
        return self._turned and wanted is not None and wanted <= self.busy

    def rungs(self, cluster: Cluster, data: Data) -> tuple[Rung, ...] | None:
        """Return the tuner's rungs, with positions in units; None: the tuner has no rungs.

        Args:
            cluster: The view of the up-call, with positions in training units.
            data: The partitions and their nodes.
        """
        found = self._tuning.rungs(self._view(cluster, data))
        return found and tuple(replace(rung, position=rung.position * len(data.train)) for rung in found)

    def review(self, terms: ExperimentView) -> str:
        """Return the tuner's remarks on an experiment, after a note that the tuner counts epochs; empty if there are no remarks.

        Raises:
            ValueError: The tuner rejects the experiment.
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

    def _view(self, cluster: Cluster, data: Data) -> EpochView:
        usual = MOST if not self._name else AHEAD * len(data.train)
        self._tuning.width = self._tuning.width or usual
        return EpochView(cluster, len(data.train))


class _Progress:
    """The progress of configurations during one turn of the tuner, in epochs; implements `Progress`.

    Args:
        cluster: The view in epochs.
        jobs: The real jobs, with positions in units.
        passed: The position in units up to which each job has finished epochs, including evaluation.
        epoch: The number of units in an epoch.
    """

    def __init__(self, cluster: EpochView, jobs: Mapping[str, JobView], passed: Mapping[str, int], epoch: int) -> None:
        self._cluster, self._jobs, self._passed, self._epoch = cluster, jobs, passed, epoch

    moves = 0

    def moved(self, trial: str, since: int) -> bool:
        """Return True, because progress is not tracked by change counters here: the tuner checks each trial in every turn."""
        return True

    def reached(self, trial: str) -> tuple[int, bool]:
        """Return the number of epochs that a trial has finished and been evaluated on, and whether its training is complete."""
        job = self._jobs[trial]
        if job.state is JobState.COMPLETED:
            return max(job.position // self._epoch, 1), True
        passed = -(-self._passed.get(trial, 0) // self._epoch)
        return max(passed, job.fork_position // self._epoch), False

    def curve(self, trial: str) -> Sequence[CurvePoint]:
        """Return a trial's learning curve, with one point for each epoch."""
        return self._cluster.curve(trial)

    def saved(self, trial: str, position: int) -> str | None:
        """Return the trial's own id if it has a snapshot after `position` epochs, otherwise None."""
        return trial if position in self._cluster.snapshots(trial) else None
