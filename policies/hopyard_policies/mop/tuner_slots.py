"""Who decides which configurations are wanted for how many epochs: a tuner, which is a policy like any other."""

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
"""Configurations that train at a time if all are to, and nothing else is said."""

AHEAD: Final = 2
"""With a tuner that ends some, so many configurations for each partition train at a time if nothing else is said."""


class TunerSlots:
    """A tuner and the places of the configurations that it trains at a time. It counts in epochs, all others count in units.

    Args:
        tuner: The name of a policy, or a mapping of `name` and its parameters; None: all are trained to their ends.
        places: How many train at a time; None: see `MOST` and `AHEAD`.
        trains: The policy that trains for it.

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
        """Whether it goes on with copies of configurations that it has stopped."""
        return self._tuning.copies

    @property
    def busy(self) -> int:
        """How many configurations it trains now."""
        return self._tuning.busy

    # ----------------------------------------------------------------------------------------------------------- turns

    def passes(self, job: str, position: int) -> bool:
        """A configuration has been through an epoch that ends at a position, evaluation included; whether that is news."""
        new = position > self._passed.get(job, 0)
        if new:
            self._passed[job] = position
        return new

    def hear(self, call: Call | Verdict, data: Data) -> None:
        """Something happened that concerns the tuner. It is told in its next turn."""
        epoch = len(data.train)
        if isinstance(call, PredictionReady):
            call = prediction_in_epochs(call, epoch)
        if isinstance(call, Verdict) and isinstance(call.command, ForkJob):
            call = replace(call, command=replace(call.command, position=call.command.position // epoch))
        self._tuning.hear(call)

    def owns(self, ticket: str) -> bool:
        """Whether a question was the tuner's."""
        return self._tuning.owns(ticket)

    def turn(self, cluster: Cluster, data: Data, settle: Callable[[], None]) -> None:
        """Tells the tuner what it does not know yet, and lets it decide.

        Args:
            cluster: The cluster, in units.
            data: What lies where.
            settle: See `Tuning.turn`.

        Raises:
            RuntimeError: It does not come to rest.
        """
        self._turned, view = True, self._view(cluster, data)
        self._tuning.turn(view, _Progress(view, cluster.jobs, self._passed, len(data.train)), settle)

    # ------------------------------------------------------------------------------------------------- what comes of them

    def wanted(self, job: JobView, epoch: int) -> int:
        """The position up to which a job is wanted now; 0: the tuner wants nothing of it."""
        state = self._tuning.states.get(job.id)
        if state is None:
            return 0
        if state.ended is JobState.COMPLETED:  # It may have lost what it had trained last.
            return job.max_position
        return min(state.errand.until * epoch, job.max_position) if state.errand is not None else 0

    def stops_at(self, job: str, position: int, epoch: int) -> bool:
        """Whether the tuner may go on with a copy of a job from a position that it is about to reach."""
        state = self._tuning.states[job]
        return self.copies and state.errand is not None and position == state.errand.until * epoch

    def ended(self) -> Iterator[tuple[str, JobState]]:
        """The jobs that have ended for the tuner while they themselves had not when it was told last, and how."""
        for state in self._tuning.states.values():
            if state.ended is not None and not state.over:
                yield state.id, state.ended

    def forget(self, job: str) -> None:
        """The job will never run again."""
        self._passed.pop(job, None)

    # ------------------------------------------------------------------------------------------------------ what is asked

    def idles(self, cluster: Cluster, data: Data) -> bool:
        """Whether the tuner wants nothing but what it trains, as things are."""
        wanted = self._tuning.demand(self._view(cluster, data))
        return self._turned and wanted is not None and wanted <= self.busy

    def rungs(self, cluster: Cluster, data: Data) -> tuple[Rung, ...] | None:
        """Who stands where in the tuner's eyes, with positions in units; None: it has no rungs."""
        found = self._tuning.rungs(self._view(cluster, data))
        return found and tuple(replace(rung, position=rung.position * len(data.train)) for rung in found)

    def review(self, terms: ExperimentView) -> str:
        """What the tuner says of the terms.

        Raises:
            ValueError: It cannot serve them.
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
    """What is known of configurations at the moment of a turn, in epochs."""

    def __init__(self, cluster: InEpochs, jobs: Mapping[str, JobView], passed: Mapping[str, int], epoch: int) -> None:
        self._cluster, self._jobs, self._passed, self._epoch = cluster, jobs, passed, epoch

    moves = 0

    def moved(self, trial: str, since: int) -> bool:
        """See `Progress`: it is looked at each time."""
        return True

    def reached(self, trial: str) -> tuple[int, bool]:
        """How many epochs a trial has been through, and whether there is nothing more to train."""
        job = self._jobs[trial]
        if job.state is JobState.COMPLETED:
            return max(job.position // self._epoch, 1), True
        passed = -(-self._passed.get(trial, 0) // self._epoch)
        return max(passed, job.fork_position // self._epoch), False

    def curve(self, trial: str) -> Sequence[CurvePoint]:
        """A trial's curve, with a point for each epoch."""
        return self._cluster.curve(trial)

    def saved(self, trial: str, position: int) -> str | None:
        """Whose job has a snapshot of a trial's state after so many epochs: its own, or nobody."""
        return trial if position in self._cluster.snapshots(trial) else None
