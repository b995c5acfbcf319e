"""The tuners of a group of experiments: one for each experiment.

A tuner is an inner policy that decides up to which position each trial is trained. It sees only its own experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from hopyard.policy import Cluster, ExperimentChange, JobCreated, Policy, Verdict
from hopyard.policy.rungs import Rung
from hopyard.policy.vocabulary import (
    Call,
    CreateJob,
    EndExperiment,
    ForkJob,
    GeneratorExhausted,
    LabelJob,
)
from hopyard_policies.inner_policy.driver import TunerState
from hopyard_policies.inner_policy.member_view import MemberView
from hopyard_policies.inner_policy.progress import Progress
from hopyard_policies.inner_policy.trials import TrialRun, TrialState


class Tuners:
    """The tuners (inner policies) of a group of experiments, one for each.

    An up-call is passed to the tuner whose experiment it concerns.

    Args:
        make: Creates a tuner.
        width: Maximum number of trials that each tuner may train at the same time; None: as many as its experiment may have, but
            at most 1000.
        hidden: Jobs that no tuner sees.

    Attributes:
        first: The tuner of the first experiment, which the constructor creates. Those of further experiments are created when the
            experiments join.
        copies: Whether the tuners fork trials; the same for all, because `make` creates them all with the same parameters.
    """

    def __init__(self, make: Callable[[], Policy], width: int | None, hidden: Collection[str]) -> None:
        self._make, self._width, self._hidden = make, width, hidden
        self.first = make()
        self.copies = self.first.copies
        self._all: dict[str, TunerState] = {}

    # ---------------------------------------------------------------------------------------------------------- trials

    def changes(self, experiment: str) -> int:
        """Return a counter, increased when the state of any trial of an experiment changes.

        An experiment without a tuner raises `KeyError`.
        """
        return self._all[experiment].changes

    @property
    def states(self) -> Mapping[str, Mapping[str, TrialState]]:
        """The state of each trial: by id of the experiment, then by id of the trial."""
        return {name: tuning.states for name, tuning in self._all.items()}

    def states_of(self, experiment: str) -> dict[str, TrialState]:
        """Return the states of an experiment's trials, by id of the trial."""
        return self._all[experiment].states

    def state(self, job: str) -> TrialState | None:
        """Return the state of a trial; None: no tuner has created it."""
        return next((tuning.states[job] for tuning in self._all.values() if job in tuning.states), None)

    def virtual_runs(self) -> Iterator[tuple[TrialState, TrialRun]]:
        """Yield the trials that tuners want trained beyond the last position that was reported to them, with their virtual runs."""
        for tuning in self._all.values():
            yield from tuning.virtual_runs()

    def coming(self, cluster: Cluster) -> int:
        """Return the number of trials that tuners could train in addition to the present ones; 0: none. Call it after `turn`."""
        found = 0
        for name, tuning in self._all.items():
            if len(self._all) == 1 or cluster.experiments[name].running:
                wanted = tuning.demand(self._view(cluster, name))
                found += max(wanted - tuning.busy, 0) if wanted is not None else tuning.jobs_left
        return found

    def rest(self, cluster: Cluster, experiment: str) -> bool:
        """Return whether an experiment's tuner trains nothing and will not train again unless the experiment is changed.

        Call it after `turn`. A change is, for example, an extension. An experiment without a tuner raises `KeyError`.
        """
        return self._all[experiment].rests(self._view(cluster, experiment))

    def rungs(self, cluster: Cluster) -> tuple[Rung, ...] | None:
        """Return the rungs of all tuners, with different brackets for different tuners; None: at least one tuner has no rungs."""
        found: list[Rung] = []
        for name in self._known(cluster):
            rungs = self._all[name].rungs(self._view(cluster, name))
            if rungs is None:
                return None
            before = found[-1].bracket + 1 if found else 0
            found += [replace(rung, bracket=before + rung.bracket) for rung in rungs]
        return tuple(found)

    # ------------------------------------------------------------------------------------------------------- up-calls

    def turn(self, cluster: Cluster, progress: Progress) -> None:
        """Make the pending up-calls on each tuner, including those for new reports, until it makes no further request.

        Args:
            cluster: The view of the up-call.
            progress: The known progress of trials.

        Raises:
            RuntimeError: A tuner makes further requests without end.
        """
        for name in self._known(cluster):
            self._all[name].turn(self._view(cluster, name), progress)

    def hear(self, cluster: Cluster, call: Call | Verdict) -> None:
        """Queue an up-call or the refusal of a command for the tuner that it concerns. The tuner receives it in its next turn."""
        known = self._known(cluster)
        tuning = self._all[known[0]] if len(known) == 1 else self._concerned(cluster, call)
        if tuning is not None:
            tuning.hear(call)

    def mark_changed(self) -> None:
        """Make every tuner check all its trials and jobs for changes in its next turn."""
        for tuning in self._all.values():
            tuning.mark_changed()

    def owns(self, ticket: str) -> bool:
        """Return whether a tuner made the request with this ticket."""
        return any(tuning.owns(ticket) for tuning in self._all.values())

    def _concerned(self, cluster: Cluster, call: Call | Verdict) -> TunerState | None:
        """Return the one of several tuners that an up-call or the refusal of a command concerns; None: it concerns none of them."""
        subject = call.command if isinstance(call, Verdict) else call
        match subject:
            case ExperimentChange(change, experiment):
                return None if change in ("joined", "ended") else self._all[experiment]
            case JobCreated(job) | LabelJob(job):
                return self._all[cluster.jobs[job].experiment]
            case CreateJob(job) | ForkJob(job) | GeneratorExhausted(job):
                return next(tuning for tuning in self._all.values() if job in tuning.made)
            case EndExperiment():
                return self._all[subject.experiment or next(iter(self._all))]
            case _:
                ticket = getattr(subject, "ticket", "")
                return next((tuning for tuning in self._all.values() if tuning.owns(ticket)), None)

    def _known(self, cluster: Cluster) -> list[str]:
        """Return the ids of all experiments in the order in which they joined. Create the tuners that do not exist yet."""
        for name in cluster.experiments:
            if name not in self._all:
                tuner = self._make() if self._all else self.first
                self._all[name] = TunerState(tuner, self._width, self._hidden)
        return list(self._all)

    def _view(self, cluster: Cluster, name: str) -> Cluster:
        if len(self._all) == 1:
            return cluster
        return MemberView(cluster, name, self._all[name].made, self._all[name].best)
