"""The tuners of a group: each of its experiments has one of its own, which sees nothing of the others."""

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
from hopyard_policies.inner_policy.driver import Tuning
from hopyard_policies.inner_policy.member_view import MemberView
from hopyard_policies.inner_policy.progress import Progress
from hopyard_policies.inner_policy.trials import Errand, TrialState


class Tuners:
    """Makes a tuner for each experiment as it joins, and passes on to each what concerns it.

    Args:
        make: Makes a tuner.
        width: Trials that each may train at a time; None: all.
        hidden: Jobs that none is to see.

    Attributes:
        first: The tuner of the experiment that the group begins with; the others are like it.
        copies: Whether they go on with changed copies of trials.
    """

    def __init__(self, make: Callable[[], Policy], width: int | None, hidden: Collection[str]) -> None:
        self._make, self._width, self._hidden = make, width, hidden
        self.first = make()
        self.copies = self.first.copies
        self._all: dict[str, Tuning] = {}

    # -------------------------------------------------------------------------------------------------- what they want

    def changes(self, experiment: str) -> int:
        """Rises when what is known of any of an experiment's trials changes."""
        return self._all[experiment].changes

    @property
    def states(self) -> Mapping[str, Mapping[str, TrialState]]:
        """What is known of each trial, by the experiment that it is of."""
        return {name: tuning.states for name, tuning in self._all.items()}

    def states_of(self, experiment: str) -> dict[str, TrialState]:
        """What is known of an experiment's trials."""
        return self._all[experiment].states

    def state(self, job: str) -> TrialState | None:
        """What is known of a trial; None: it is none that a tuner has made."""
        return next((tuning.states[job] for tuning in self._all.values() if job in tuning.states), None)

    def errands(self) -> Iterator[tuple[TrialState, Errand]]:
        """The trials that are wanted further than they are known, and how far."""
        for tuning in self._all.values():
            yield from tuning.errands()

    def coming(self, cluster: Cluster) -> int:
        """Trials that could be trained beside those that are: they are being made, or will be. To be asked after a turn."""
        found = 0
        for name, tuning in self._all.items():
            if len(self._all) == 1 or cluster.experiments[name].running:
                wanted = tuning.demand(self._view(cluster, name))
                found += max(wanted - tuning.busy, 0) if wanted is not None else tuning.jobs_left
        return found

    def rest(self, cluster: Cluster, experiment: str) -> bool:
        """Whether an experiment's tuner trains nothing and never will, as things are. To be asked after its turn."""
        return self._all[experiment].rests(self._view(cluster, experiment))

    def rungs(self, cluster: Cluster) -> tuple[Rung, ...] | None:
        """Who stands where in their eyes; None: they have no rungs."""
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
        """Tells each all that it does not know yet, and lets it decide until it comes to rest."""
        for name in self._known(cluster):
            self._all[name].turn(self._view(cluster, name), progress)

    def hear(self, cluster: Cluster, call: Call | Verdict) -> None:
        """Something happened that concerns a tuner. It is told in its next turn."""
        known = self._known(cluster)
        tuning = self._all[known[0]] if len(known) == 1 else self._concerned(cluster, call)
        if tuning is not None:
            tuning.hear(call)

    def stir(self) -> None:
        """All that is known of trials may be other than it was."""
        for tuning in self._all.values():
            tuning.stir()

    def owns(self, ticket: str) -> bool:
        """Whether a question was a tuner's."""
        return any(tuning.owns(ticket) for tuning in self._all.values())

    def _concerned(self, cluster: Cluster, call: Call | Verdict) -> Tuning | None:
        """Whom it concerns, of several."""
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
        """The experiments, in the order in which they joined; each has its tuner from now on."""
        for name in cluster.experiments:
            if name not in self._all:
                tuner = self._make() if self._all else self.first
                self._all[name] = Tuning(tuner, self._width, self._hidden)
        return list(self._all)

    def _view(self, cluster: Cluster, name: str) -> Cluster:
        if len(self._all) == 1:
            return cluster
        return MemberView(cluster, name, self._all[name].made, self._all[name].best)
