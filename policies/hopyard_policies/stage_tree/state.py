"""The state of the policy `stage_tree` between up-calls."""

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
    """A run as it was requested.

    Attributes:
        trial: The trial that runs.
        slot: Its slot.
        start: The position that it started from.
        began: The time of its start.
        until: The position at which it parks.
        saves: The requested save points.
        leaving: Whether it was told to end.
        late: Save points that were requested too late.
        wanted: The experiments that pay for it, each with the position up to which it wants the training.
        firm: Whether an amendment of `until` came too late; then it is not shortened again.
    """

    trial: str
    slot: str
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
    """The plan, the tuners with their trials, and the current runs.

    Attributes:
        plan: The search plan.
        tuners: The tuners of the group.
        requests: Additional trials.
        save_every: Save every so many units; None: only where trials branch off.
        keeping: Decides which snapshots of ended jobs are kept.
        times: Measured costs.
        runs: Current runs by trial.
        amends: Pending amendments by ticket: trial, previous `until`, requested save points.
        slots: The slot of each trial's last run.
        trained: Start and end positions of each trial's own ended runs; other jobs may have trained the same before.
        forest: The stage tree.
        completed: Jobs known as completed; an extension of the experiment may revive them.
        could_use: The number of slots that could be used now.
    """

    plan: SearchPlan
    tuners: Tuners
    requests: Requests
    save_every: int | None
    keeping: Keeping
    times: CostModel = field(default_factory=CostModel)
    runs: dict[str, RequestedRun] = field(default_factory=dict)
    amends: dict[str, tuple[str, int, set[int]]] = field(default_factory=dict)
    slots: dict[str, str] = field(default_factory=dict)
    trained: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    completed: set[str] = field(default_factory=set)
    could_use: int = 0
    forest: Forest = field(init=False)
    _parts: dict[str, tuple[int, Part]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start with an empty stage tree."""
        self.forest = Forest(self.plan)

    def replant(self, plan: SearchPlan) -> None:
        """Replace the plan and reset the stage tree."""
        self.plan, self.forest = plan, Forest(plan)
        self._parts.clear()

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Yield the trials of each experiment: first those of the tuners, then the additional ones."""
        for experiment, states in self.tuners.states.items():
            changes = self.tuners.changes(experiment)
            known = self._parts.get(experiment)
            if known is None or known[0] != changes:
                known = self._parts[experiment] = changes, Part.of(experiment, states.values(), self.plan)
            yield experiment, known[1]
        for experiment, asked in self.requests.trials().items():
            yield experiment, Part.of(experiment, asked, self.plan)

    def trials(self) -> Iterator[tuple[str, TrialState]]:
        """Yield all trials with their experiments."""
        for experiment, states in self.tuners.states.items():
            for state in states.values():
                yield experiment, state
        for experiment, asked in self.requests.trials().items():
            for state in asked:
                yield experiment, state

    def state(self, trial: str) -> TrialState | None:
        """Return the state of a trial; None: it is unknown."""
        return self.tuners.state(trial) or self.requests.states.get(trial)

    def errands(self) -> Iterator[tuple[TrialState, Errand]]:
        """Yield all trials that are wanted further, with their errands."""
        yield from self.tuners.errands()
        yield from self.requests.errands()

    def amended(self, ticket: str, accepted: bool) -> None:
        """Handle the answer to an amendment; if it came too late, restore the previous values."""
        trial, until, saves = self.amends.pop(ticket, ("", 0, set[int]()))
        run = self.runs.get(trial)
        if run is not None and not accepted:
            run.saves -= saves
            run.late |= saves
            run.until, run.firm = until, run.firm or not saves

    def over(self, trial: str, position: int) -> RequestedRun | None:
        """Record that a trial's run has ended at a position; return it."""
        for ticket in [ticket for ticket, (owner, _, _) in self.amends.items() if owner == trial]:
            del self.amends[ticket]
        run = self.runs.pop(trial, None)
        if run is not None:
            self.slots[trial] = run.slot
            self.trained.setdefault(trial, []).append((run.start, position))
        return run
