"""What the policy `stage_tree` remembers between its up-calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hopyard_policies.inner_policy.trials import Errand, TrialState
from hopyard_policies.stage_tree.cost_model import CostModel
from hopyard_policies.stage_tree.incremental_tree import Forest, Part
from hopyard_policies.stage_tree.plan import SearchPlan
from hopyard_policies.stage_tree.requests import Requests
from hopyard_policies.stage_tree.snapshot_retention import Keeping
from hopyard_policies.stage_tree.tuners import Tuners


@dataclass(slots=True)
class RequestedRun:
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
        forest: What there is to train.
        completed: Jobs that were trained to their ends, as far as is known: the experiment may have been extended.
        could_use: Machines that could be used now.
    """

    plan: SearchPlan
    tuners: Tuners
    requests: Requests
    save_every: int | None
    keeping: Keeping
    times: CostModel = field(default_factory=CostModel)
    runs: dict[str, RequestedRun] = field(default_factory=dict)
    amends: dict[str, tuple[str, int, set[int]]] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)
    trained: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    completed: set[str] = field(default_factory=set)
    could_use: int = 0
    forest: Forest = field(init=False)
    _parts: dict[str, tuple[int, Part]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing is to be trained yet."""
        self.forest = Forest(self.plan)

    def replant(self, plan: SearchPlan) -> None:
        """The plan is made anew."""
        self.plan, self.forest = plan, Forest(plan)
        self._parts.clear()

    def parts(self) -> Iterator[tuple[str, Part]]:
        """What each experiment wants: what its tuner does, and then what is wanted beside that."""
        for experiment, states in self.tuners.states.items():
            changes = self.tuners.changes(experiment)
            known = self._parts.get(experiment)
            if known is None or known[0] != changes:
                known = self._parts[experiment] = changes, Part.of(experiment, states.values(), self.plan)
            yield experiment, known[1]
        for experiment, asked in self.requests.trials().items():
            yield experiment, Part.of(experiment, asked, self.plan)

    def trials(self) -> Iterator[tuple[str, TrialState]]:
        """All that are there, each with the experiment that it is of."""
        for experiment, states in self.tuners.states.items():
            for state in states.values():
                yield experiment, state
        for experiment, asked in self.requests.trials().items():
            for state in asked:
                yield experiment, state

    def state(self, trial: str) -> TrialState | None:
        """What is known of a trial; None: there is none such."""
        return self.tuners.state(trial) or self.requests.states.get(trial)

    def errands(self) -> Iterator[tuple[TrialState, Errand]]:
        """All that are wanted further than they are known, and how far."""
        yield from self.tuners.errands()
        yield from self.requests.errands()

    def amended(self, ticket: str, accepted: bool) -> None:
        """A run was amended, or it was too late: then it is as it was."""
        trial, until, saves = self.amends.pop(ticket, ("", 0, set[int]()))
        run = self.runs.get(trial)
        if run is not None and not accepted:
            run.saves -= saves
            run.late |= saves
            run.until, run.firm = until, run.firm or not saves

    def over(self, trial: str, position: int) -> RequestedRun | None:
        """A trial's run is over: it came to a position."""
        for ticket in [ticket for ticket, (owner, _, _) in self.amends.items() if owner == trial]:
            del self.amends[ticket]
        run = self.runs.pop(trial, None)
        if run is not None:
            self.machines[trial] = run.machine
            self.trained.setdefault(trial, []).append((run.start, position))
        return run
