"""Property-based tests of the control of a run: invariants for any messages in any order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hopyard._runtime.runner.control import Action, EndRun, Restate, RunControl, RunPlan, Save, Train, Wait
from hopyard.policy.vocabulary import DecisionKind, RunEndReason

POSITIONS = st.integers(min_value=0, max_value=12)
# Distance from the run's position: most messages of a scheduler are about positions near it.
NEAR = st.integers(min_value=-2, max_value=3)
ALLOWED = st.one_of(st.just(0), POSITIONS)
# Decisions that end the run are rarer than others; otherwise hardly any run would get far.
DECISIONS = st.sampled_from([DecisionKind.CONTINUE] * 6 + [DecisionKind.PARK] * 3 + list(DecisionKind))


class RunSlot(RuleBasedStateMachine):
    """A training loop that follows the control, and a scheduler that sends any message at any time."""

    @initialize(
        position=st.integers(0, 4),
        until=POSITIONS,
        allowed=ALLOWED,
        points=st.frozensets(POSITIONS, max_size=3),
        every=st.integers(0, 3),
        units=st.integers(1, 3),
        exact=st.booleans(),
    )
    def begin(
        self, position: int, until: int, allowed: int, points: frozenset[int], every: int, units: int, exact: bool
    ) -> None:
        self.start = position
        self.units = units
        self.exact = exact
        self.until = until
        self.allowed = allowed
        self.points = {point for point in points if point > position}
        self.decided_through = -1
        self.stop: DecisionKind | None = None
        self.reports: list[tuple[int, bool]] = []
        self.saves: list[int] = []
        self.released = self.completing = False
        self.parked_by_decision = False
        self.iteration: int | None = None
        self.ended: EndRun | None = None
        self.control = RunControl(
            RunPlan(position=position, until=until, allowed=allowed, snapshot_at=points, snapshot_every=every)
        )
        self.control.started(finished=False)

    def act(self) -> Action:
        return self.control.next()

    @rule()
    def training_loop(self) -> None:
        if self.ended is not None:
            return
        if self.iteration is not None:
            self.finish_iteration()
            return
        match self.act():
            case Train(limit):
                assert limit is None or limit > self.control.position
                assert self.may_train(), "it trained where it had to wait"
                end = self.control.position + self.units
                if self.exact and limit is not None:
                    end = min(end, limit)
                self.iteration = end
                self.control.began(committed=end if self.exact else None)
            case Restate():
                assert not self.reports
                self.iteration = self.control.position
                self.finish_iteration()
            case Save():
                assert self.control.position not in self.saves, "it saved one position twice"
                self.saves.append(self.control.position)
                self.points = {point for point in self.points if point > self.control.position}
                self.control.saved()
            case Wait():
                assert self.stop is None
                assert not self.may_train(), "it waited where it could train"
            case EndRun() as end_action:
                self.ended = end_action

    def finish_iteration(self) -> None:
        assert self.iteration is not None
        position, self.iteration = self.iteration, None
        at_until = self.control.reached(position, finished=False)
        assert at_until == (0 < self.until <= position)
        self.reports.append((position, at_until))
        self.released = self.parked_by_decision = self.completing = False

    def may_train(self) -> bool:
        """Return whether training may continue, by an independent formulation of the contract."""
        if self.stop is not None and self.reports:
            return False
        if not self.reports:
            return True
        position, at_until = self.reports[-1]
        if at_until:
            return self.released
        return position < self.allowed or position <= self.decided_through or self.released

    @rule(decision=DECISIONS, near=NEAR, allowed=ALLOWED)
    def decision_comes(self, decision: DecisionKind, near: int, allowed: int) -> None:
        if self.ended is not None:
            return
        position = max(0, self.control.position + near)
        self.allowed = max(self.allowed, allowed)
        at_boundary = self.iteration is None and bool(self.reports)
        parked = at_boundary and self.reports[-1][1] and not self.released
        if decision is DecisionKind.TERMINATE or (decision is DecisionKind.SUSPEND and self.stop is None):
            self.stop = decision
        if decision is DecisionKind.CONTINUE:
            self.decided_through = max(self.decided_through, position)
        if parked and position >= self.reports[-1][0]:
            if decision is DecisionKind.CONTINUE:
                self.parked_by_decision = False
                self.completing = 0 < self.until <= self.reports[-1][0]
                self.released = not self.completing
            elif decision is DecisionKind.PARK:
                self.parked_by_decision = True
        self.control.decide(decision, position, allowed)

    @rule(moved=st.one_of(st.none(), NEAR), ahead=st.frozensets(NEAR, max_size=2))
    def amendment_comes(self, moved: int | None, ahead: frozenset[int]) -> None:
        if self.ended is not None:
            return
        until = 0 if moved is None else max(0, self.control.position + moved)
        points = frozenset(max(0, self.control.position + near) for near in ahead)
        reached = self.reports[-1][0] if self.reports else self.start
        answer = self.control.amend(until, points)
        if not answer.accepted:
            return
        if until:
            assert until > reached or (self.reports and self.reports[-1][1])
            self.until = until
            if self.parked_by_decision and self.iteration is None and until > reached and not self.released:
                self.released = True
        assert all(point >= reached for point in points)
        self.points |= {point for point in points if point > reached}

    @invariant()
    def saves_and_ends_are_where_they_belong(self) -> None:
        if not hasattr(self, "control"):
            return
        if self.iteration is None and self.reports and self.ended is None and isinstance(self.act(), Wait | Train):
            assert all(point > self.reports[-1][0] for point in self.points), "a save point was passed without a save"
        if self.ended is None:
            return
        position, at_until = self.reports[-1]
        if self.ended.snapshot:
            assert self.saves[-1] == position
        match self.ended.reason:
            case RunEndReason.UNTIL:
                assert at_until
                assert self.completing, "it ended at until without a decision on it"
                assert self.stop is None
            case RunEndReason.SUSPENDED:
                assert self.stop is DecisionKind.SUSPEND
                assert self.ended.snapshot
            case RunEndReason.TERMINATED:
                assert self.stop is DecisionKind.TERMINATE
                assert not self.ended.snapshot
            case other:
                raise AssertionError(other)


TestRunSlot = RunSlot.TestCase
TestRunSlot.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
