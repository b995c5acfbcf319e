"""The state of the policy `stage_tree` between up-calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hopyard_policies.inner_policy.trials import TrialRun, TrialState
from hopyard_policies.stage_tree.cost_model import CostModel
from hopyard_policies.stage_tree.incremental_tree import Forest, Part
from hopyard_policies.stage_tree.plan import SearchPlan
from hopyard_policies.stage_tree.requests import Requests
from hopyard_policies.stage_tree.snapshot_retention import SnapshotRetention
from hopyard_policies.stage_tree.tuners import Tuners


@dataclass(slots=True)
class RequestedRun:
    """A current run of a trial, with the parameters that this policy has requested for it.

    Attributes:
        trial: The trial that runs.
        slot: The id of its slot.
        start: The position that it started from.
        began: The time of its start, in seconds (`Cluster.now`).
        until: The position at which it parks.
        saves: The positions at which it has been requested to save.
        leaving: Whether this policy has decided to end it.
        late: Positions at which it was requested to save after it had already passed them.
        wanted: The experiments among which the slot time of the run is divided, each with the position up to which it wants the
            training.
        firm: Whether the engine has refused to shorten the run, because it had already passed the requested end; then `until` is not
            reduced any more.
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
class PolicyState:
    """The state of the policy between up-calls: the search plan, the tuners with their trials, and the current runs.

    Attributes:
        plan: The search plan.
        tuners: The tuners of the group.
        requests: Additional trials, which no tuner sees.
        save_every: The number of units between the positions at which runs save; None: save only where trials branch off.
        keeping: Decides which snapshots of ended jobs are kept.
        times: Measured costs of training and of runs.
        runs: Current runs by trial.
        amends: By ticket, the requests to change a run that the engine has not answered: the trial, the run's `until` before the
            request, and the requested save points.
        slots: The slot of each trial's last run.
        trained: Start and end positions of each trial's own ended runs; other jobs may have trained the same before.
        forest: The stage tree.
        completed: Jobs known as completed; after an extension of the experiment they may train again.
        could_use: The number of slots that the policy can use now.
    """

    plan: SearchPlan
    tuners: Tuners
    requests: Requests
    save_every: int | None
    keeping: SnapshotRetention
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
        """Replace the search plan and start with an empty stage tree."""
        self.plan, self.forest = plan, Forest(plan)
        self._parts.clear()

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Yield each experiment's id and its trials grouped by branch: first the trials of tuners, then the additional ones."""
        for experiment, states in self.tuners.states.items():
            changes = self.tuners.changes(experiment)
            known = self._parts.get(experiment)
            if known is None or known[0] != changes:
                known = self._parts[experiment] = changes, Part.of(experiment, states.values(), self.plan)
            yield experiment, known[1]
        for experiment, asked in self.requests.trials().items():
            yield experiment, Part.of(experiment, asked, self.plan)

    def trials(self) -> Iterator[tuple[str, TrialState]]:
        """Yield the state of every trial, with the id of its experiment."""
        for experiment, states in self.tuners.states.items():
            for state in states.values():
                yield experiment, state
        for experiment, asked in self.requests.trials().items():
            for state in asked:
                yield experiment, state

    def state(self, trial: str) -> TrialState | None:
        """Return the state of a trial of a tuner or a client; None: there is no such trial."""
        return self.tuners.state(trial) or self.requests.states.get(trial)

    def virtual_runs(self) -> Iterator[tuple[TrialState, TrialRun]]:
        """Yield all trials that tuners or clients want trained further, with their virtual runs."""
        yield from self.tuners.virtual_runs()
        yield from self.requests.virtual_runs()

    def amended(self, ticket: str, accepted: bool) -> None:
        """Handle the answer to an amendment, a request to change the end (`until`) or the save points of a run.

        If it was not accepted, restore the run's previous `until`, and record the requested save points as `late`.

        Args:
            ticket: The ticket of the amendment.
            accepted: False if the engine refused the request, or the run had already passed the requested end or save point.
        """
        trial, until, saves = self.amends.pop(ticket, ("", 0, set[int]()))
        run = self.runs.get(trial)
        if run is not None and not accepted:
            run.saves -= saves
            run.late |= saves
            run.until, run.firm = until, run.firm or not saves

    def over(self, trial: str, position: int) -> RequestedRun | None:
        """Record that a trial's run has ended at a position; return the run, or None if there was none."""
        for ticket in [ticket for ticket, (owner, _, _) in self.amends.items() if owner == trial]:
            del self.amends[ticket]
        run = self.runs.pop(trial, None)
        if run is not None:
            self.slots[trial] = run.slot
            self.trained.setdefault(trial, []).append((run.start, position))
        return run
