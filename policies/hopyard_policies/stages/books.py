"""What the policy `stage_tree` remembers between its up-calls."""

from __future__ import annotations

from dataclasses import dataclass, field

from hopyard_policies.stages.keeping import Keeping
from hopyard_policies.stages.plan import SearchPlan
from hopyard_policies.stages.requests import Requests
from hopyard_policies.stages.times import Times
from hopyard_policies.stages.tuners import Tuners
from hopyard_policies.tuning.trials import Errand, TrialState


@dataclass(slots=True)
class Run:
    """A run as it was asked for.

    Attributes:
        trial: Whose it is.
        machine: Where.
        start: The position that it started from, at the time `began`.
        until: Where it parks.
        saves: Where it saves, as far as that was asked for.
        leaving: Whether it was told to end.
        late: Save points that it had passed when they were asked for.
        wanted: Which experiments were said to want what it trains, each up to where.
        firm: Whether it was beyond where it was to park: it is not asked again to give way sooner.
    """

    trial: str
    machine: str
    start: int
    began: float
    until: int
    saves: set[int] = field(default_factory=set)
    leaving: bool = False
    late: set[int] = field(default_factory=set)
    firm: bool = False
    wanted: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class Books:
    """The plan, the tuners with their trials, and the runs under way.

    Attributes:
        plan: What trials have in common.
        tuners: What the tuners want.
        requests: What is wanted beside that.
        save_every: Save every so many units; None: only where trials branch off.
        keeping: Says what is to be kept of the jobs that have ended.
        times: What training and saving take.
        runs: Runs under way, by trial.
        amends: Amendments under way, by ticket: the run's trial, its `until` before, the save points asked for.
        machines: The machine of each trial's last run.
        trained: Where each trial's own runs that are over began and ended: what others trained before may be among it.
        completed: Jobs that were trained to their ends, as far as is known: the experiment may have been extended.
        could_use: Machines that could be used now.
    """

    plan: SearchPlan
    tuners: Tuners
    requests: Requests
    save_every: int | None
    keeping: Keeping
    times: Times = field(default_factory=Times)
    runs: dict[str, Run] = field(default_factory=dict)
    amends: dict[str, tuple[str, int, set[int]]] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)
    trained: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    completed: set[str] = field(default_factory=set)
    could_use: int = 0

    @property
    def states(self) -> dict[str, TrialState]:
        """All trials, in no special order."""
        return {**self.tuners.states, **self.requests.states}

    @property
    def errands(self) -> list[tuple[TrialState, Errand]]:
        """All that are wanted further than they are known, and how far."""
        return [*self.tuners.errands(), *self.requests.errands()]

    def amended(self, ticket: str, accepted: bool) -> None:
        """A run was amended, or it was too late: then it is as it was."""
        trial, until, saves = self.amends.pop(ticket, ("", 0, set[int]()))
        run = self.runs.get(trial)
        if run is not None and not accepted:
            run.saves -= saves
            run.late |= saves
            run.until, run.firm = until, run.firm or not saves

    def over(self, trial: str, position: int) -> Run | None:
        """A trial's run is over: it came to a position."""
        for ticket in [ticket for ticket, (owner, _, _) in self.amends.items() if owner == trial]:
            del self.amends[ticket]
        run = self.runs.pop(trial, None)
        if run is not None:
            self.machines[trial] = run.machine
            self.trained.setdefault(trial, []).append((run.start, position))
        return run
