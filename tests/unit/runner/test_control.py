"""Tests of the control of a run: positions, decisions and amendments, case by case."""

from __future__ import annotations

import pytest

from hopyard._runtime.runner.control import (
    Action,
    AmendAnswer,
    EndRun,
    Restate,
    RunControl,
    RunControlError,
    RunPlan,
    Save,
    Train,
    Wait,
)
from hopyard.policy.vocabulary import DecisionKind, RunEndReason

pytestmark = pytest.mark.quick

CONTINUE, SUSPEND, TERMINATE, PARK = (
    DecisionKind.CONTINUE,
    DecisionKind.SUSPEND,
    DecisionKind.TERMINATE,
    DecisionKind.PARK,
)
UNTIL = EndRun(RunEndReason.UNTIL, snapshot=True)


def run(plan: RunPlan) -> RunControl:
    control = RunControl(plan)
    control.started(finished=False)
    return control


def train(control: RunControl, units: int = 1, *, finished: bool = False, committed: int | None = None) -> bool:
    """Train one iteration, and return whether the run is at its `until`."""
    assert isinstance(control.next(), Train)
    control.began(committed=committed)
    return control.reached(control.position + units, finished=finished)


def save(control: RunControl) -> Action:
    assert control.next() == Save()
    control.saved()
    return control.next()


def test_without_anything_allowed_every_report_waits_for_its_decision() -> None:
    control = run(RunPlan())
    for position in range(1, 4):
        assert not train(control)
        assert control.next() == Wait()
        control.decide(CONTINUE, position, 0)


def test_below_allowed_it_never_waits_and_at_allowed_it_does() -> None:
    control = run(RunPlan(allowed=3))
    train(control)
    train(control)
    assert control.next() == Train(None)
    train(control)
    assert control.next() == Wait()
    control.decide(CONTINUE, 3, 5)
    train(control)
    assert control.next() == Train(None)
    train(control)
    assert control.next() == Wait()


def test_allowed_never_sinks_and_a_late_decision_on_an_older_position_releases_nothing() -> None:
    control = run(RunPlan(allowed=2))
    train(control)
    train(control)
    control.decide(CONTINUE, 1, 1)
    assert control.next() == Wait()
    control.decide(CONTINUE, 1, 4)
    assert control.next() == Train(None)


def test_it_parks_at_until_whatever_is_allowed_and_continue_ends_it_saved() -> None:
    control = run(RunPlan(until=2, allowed=100))
    assert not train(control)
    assert train(control)
    assert control.parked
    assert control.next() == Wait()
    control.decide(CONTINUE, 1, 0)
    assert control.next() == Wait()
    control.decide(CONTINUE, 2, 0)
    assert save(control) == UNTIL


def test_a_snapshot_that_was_just_taken_at_until_is_used_again() -> None:
    control = run(RunPlan(until=2, allowed=100, snapshot_every=2))
    train(control)
    train(control)
    assert save(control) == Wait()
    control.decide(CONTINUE, 2, 0)
    assert control.next() == UNTIL


def test_an_until_that_was_moved_lets_continue_go_on_without_a_save() -> None:
    control = run(RunPlan(until=1))
    train(control)
    assert control.amend(3, []) == AmendAnswer(True, 1)
    assert control.next() == Wait(), "an amendment alone does not release it"
    control.decide(CONTINUE, 1, 0)
    assert control.next() == Train(3)
    assert not train(control)


def test_a_parked_run_is_released_by_an_amendment_after_park() -> None:
    control = run(RunPlan(until=1))
    train(control)
    control.decide(PARK, 1, 0)
    assert control.next() == Wait()
    assert control.amend(0, []).accepted
    assert control.next() == Wait()
    assert control.amend(1, []).accepted
    assert control.next() == Wait()
    assert control.amend(2, []).accepted
    assert control.next() == Train(2)
    assert train(control)
    assert control.next() == Wait(), "the decision to park held for its own position only"


def test_continue_after_park_ends_the_run() -> None:
    control = run(RunPlan(until=1))
    train(control)
    control.decide(PARK, 1, 0)
    control.decide(CONTINUE, 1, 0)
    assert save(control) == UNTIL
    assert control.amend(5, []) == AmendAnswer(False, 1), "it is ending"


def test_park_means_nothing_away_from_until() -> None:
    control = run(RunPlan(until=5))
    train(control)
    control.decide(PARK, 1, 0)
    assert control.next() == Wait()
    assert control.amend(9, []).accepted
    assert control.next() == Wait()


@pytest.mark.parametrize("position", [0, 1, 99])
def test_suspend_holds_from_the_next_boundary_whatever_position_it_names(position: int) -> None:
    control = run(RunPlan(allowed=100))
    control.began()
    control.decide(SUSPEND, position, 0)
    control.decide(CONTINUE, 99, 99)
    control.reached(1, finished=False)
    assert save(control) == EndRun(RunEndReason.SUSPENDED, snapshot=True)


def test_suspend_of_a_waiting_run_is_now() -> None:
    control = run(RunPlan())
    train(control)
    assert control.next() == Wait()
    control.decide(SUSPEND, 0, 0)
    assert save(control) == EndRun(RunEndReason.SUSPENDED, snapshot=True)


def test_before_the_first_iteration_a_decision_waits_for_its_report() -> None:
    control = run(RunPlan())
    control.decide(TERMINATE, 0, 0)
    train(control)
    assert control.next() == EndRun(RunEndReason.TERMINATED, snapshot=False)


def test_terminate_wins_over_suspend_in_either_order() -> None:
    for decisions in ((SUSPEND, TERMINATE), (TERMINATE, SUSPEND)):
        control = run(RunPlan(snapshot_every=1))
        train(control)
        for decision in decisions:
            control.decide(decision, 1, 0)
        assert control.next() == EndRun(RunEndReason.TERMINATED, snapshot=False)


def test_a_save_point_that_was_asked_for_is_served_even_if_the_run_is_being_terminated() -> None:
    control = run(RunPlan(snapshot_at=frozenset({1})))
    control.began()
    control.decide(TERMINATE, 0, 0)
    control.reached(1, finished=False)
    assert save(control) == EndRun(RunEndReason.TERMINATED, snapshot=False)


def test_save_points_are_served_before_waiting_and_once() -> None:
    control = run(RunPlan(allowed=10, snapshot_at=frozenset({2}), snapshot_every=3))
    train(control)
    assert control.next() == Train(2)
    train(control)
    assert save(control) == Train(None)
    train(control)
    train(control)
    assert control.next() == Train(None)
    train(control)
    assert save(control) == Train(None), "3 units after the snapshot at 2"


def test_stops_inside_an_iteration_are_served_at_the_boundary_behind_them() -> None:
    control = run(RunPlan(allowed=100, until=12, snapshot_at=frozenset({3})))
    assert control.next() == Train(3)
    train(control, 5)
    assert save(control) == Train(12)
    train(control, 5)
    assert train(control, 5)
    assert control.position == 15


@pytest.mark.parametrize("every", [0, 2])
def test_a_run_that_waits_saves_where_it_is_if_asked_and_only_once(every: int) -> None:
    control = run(RunPlan(until=2, allowed=2, snapshot_every=every))
    train(control)
    train(control)
    if every:
        assert save(control) == Wait()
    assert control.amend(4, [2]) == AmendAnswer(True, 2)
    control.decide(CONTINUE, 2, 4)
    if not every:
        assert save(control) == Train(4)
    train(control)
    assert control.next() == Train(4), "the position 2 is saved"


def test_save_points_behind_the_start_are_not_served_again() -> None:
    control = run(RunPlan(position=4, allowed=100, snapshot_at=frozenset({2, 4, 6})))
    assert control.next() == Train(6)
    train(control)
    assert control.next() == Train(6)


@pytest.mark.parametrize(
    ("until", "points", "accepted"),
    [(0, [], True), (6, [], True), (5, [], False), (4, [], False), (0, [6], True), (0, [5], True), (9, [4, 8], False)],
)
def test_amendments_of_a_waiting_run(until: int, points: list[int], accepted: bool) -> None:
    control = run(RunPlan(position=4, until=20))
    train(control)
    assert control.amend(until, points) == AmendAnswer(accepted, 5)
    expected: Action = Save() if accepted and 5 in points else Wait()
    assert control.next() == expected


@pytest.mark.parametrize(
    ("until", "points", "accepted"), [(5, [], False), (6, [], True), (0, [5], False), (0, [6], True)]
)
def test_amendments_inside_an_iteration_look_at_the_last_finished_position(
    until: int, points: list[int], accepted: bool
) -> None:
    control = run(RunPlan(position=4, until=20, allowed=20))
    train(control)
    control.began()
    assert control.amend(until, points) == AmendAnswer(accepted, 5)


def test_inside_an_iteration_that_stops_exactly_only_its_end_or_more_is_in_time() -> None:
    control = run(RunPlan(until=20, allowed=20))
    control.began(committed=10)
    assert control.amend(9, []) == AmendAnswer(False, 9)
    assert control.amend(10, []) == AmendAnswer(True, 0)
    assert control.reached(10, finished=False)


def test_a_finished_trainer_parks_and_cannot_be_sent_further() -> None:
    control = run(RunPlan(until=20, allowed=20))
    assert train(control, finished=True)
    assert control.amend(30, []) == AmendAnswer(False, 1)
    assert control.amend(0, [2]) == AmendAnswer(False, 1)
    assert control.amend(0, [1]).accepted
    assert save(control) == Wait()
    control.decide(CONTINUE, 1, 0)
    assert control.next() == UNTIL


@pytest.mark.parametrize(("plan", "finished"), [(RunPlan(position=4, until=4), False), (RunPlan(position=4), True)])
def test_a_run_with_nothing_to_train_restates_its_position_and_parks(plan: RunPlan, finished: bool) -> None:
    control = RunControl(plan)
    control.started(finished=finished)
    assert control.next() == Restate()
    assert control.reached(4, finished=finished)
    assert control.next() == Wait()
    control.decide(CONTINUE, 4, 0)
    assert save(control) == UNTIL


def test_an_evaluation_reports_once_saves_nothing_and_cannot_be_amended() -> None:
    control = run(RunPlan(position=4, evaluate=True, allowed=100, snapshot_every=1))
    assert control.next() == Train(None)
    control.began()
    assert control.reached(4, finished=False)
    assert control.next() == Wait()
    assert control.amend(9, []) == AmendAnswer(False, 4)
    control.decide(CONTINUE, 4, 0)
    assert control.next() == EndRun(RunEndReason.UNTIL, snapshot=False)


def test_the_training_loop_is_held_to_its_order() -> None:
    control = run(RunPlan())
    control.began()
    with pytest.raises(RunControlError, match="twice"):
        control.began()
    with pytest.raises(RunControlError, match="inside the iteration"):
        control.next()
    with pytest.raises(RunControlError, match="from position 0 to 0"):
        control.reached(0, finished=False)


def test_where_no_snapshot_can_be_taken_a_run_ends_without_one() -> None:
    for decision, reason in ((SUSPEND, RunEndReason.SUSPENDED), (CONTINUE, RunEndReason.UNTIL)):
        control = run(RunPlan(until=1, snapshot_every=1))
        assert isinstance(control.next(), Train)
        control.began()
        assert control.reached(1, finished=False, savable=False)
        assert control.next() == Wait()
        control.decide(decision, 1, 0)
        assert control.next() == EndRun(reason, snapshot=False)


def test_a_save_point_waits_for_the_next_boundary_at_which_a_snapshot_can_be_taken() -> None:
    control = run(RunPlan(allowed=9, snapshot_at=frozenset({1})))
    control.next()
    control.began()
    control.reached(1, finished=False, savable=False)
    assert isinstance(control.next(), Train)
    control.began()
    control.reached(2, finished=False, savable=True)
    assert isinstance(save(control), Train)


def test_a_snapshot_that_could_not_be_taken_waits_for_the_next_boundary() -> None:
    control = run(RunPlan(allowed=9, snapshot_at=frozenset({1})))
    train(control)
    assert control.next() == Save()
    control.unsaved()
    train(control)
    assert save(control) == Train(None)


def test_a_run_that_is_to_be_suspended_and_cannot_be_saved_tries_again_and_then_leaves_without() -> None:
    control = run(RunPlan(allowed=9))
    train(control)
    control.decide(SUSPEND, 1, 0)
    for _ in range(2):
        assert control.next() == Save()
        control.unsaved()
        train(control)
    assert control.next() == Save()
    control.unsaved()
    assert control.next() == EndRun(RunEndReason.SUSPENDED, snapshot=False)


def test_a_try_that_succeeds_in_the_end_suspends_the_run_there() -> None:
    control = run(RunPlan(allowed=9))
    train(control)
    control.decide(SUSPEND, 1, 0)
    assert control.next() == Save()
    control.unsaved()
    train(control)
    assert save(control) == EndRun(RunEndReason.SUSPENDED, snapshot=True)
    assert control.position == 2


def test_at_its_end_a_run_that_cannot_be_saved_leaves_at_once() -> None:
    control = run(RunPlan(until=1, allowed=9))
    train(control)
    control.decide(CONTINUE, 1, 0)
    assert control.next() == Save()
    control.unsaved()
    assert control.next() == EndRun(RunEndReason.UNTIL, snapshot=False)


def only_leaving(control: RunControl) -> None:
    assert isinstance(control.next(), Train)
    control.began()
    control.reached(control.position + 1, finished=False, only_leaving=True)


def test_what_is_worth_a_snapshot_only_for_leaving_is_saved_when_the_run_leaves() -> None:
    control = run(RunPlan(allowed=9, snapshot_every=1, snapshot_at=frozenset({1})))
    only_leaving(control)
    assert control.next() == Train(None)
    assert control.free == 9
    only_leaving(control)
    control.decide(SUSPEND, 2, 0)
    assert save(control) == EndRun(RunEndReason.SUSPENDED, snapshot=True)


def test_it_is_saved_at_a_stop_on_the_way_and_not_at_the_very_end() -> None:
    for completes in (False, True):
        control = run(RunPlan(until=1, allowed=9, completes=completes))
        only_leaving(control)
        if not completes:
            control.decide(CONTINUE, 1, 0)
            assert control.next() == Save()
            control.saved()
        assert control.next() == EndRun(RunEndReason.UNTIL, snapshot=not completes)


def test_where_another_boundary_is_no_better_a_run_leaves_at_once() -> None:
    control = run(RunPlan(allowed=9))
    train(control)
    control.decide(SUSPEND, 1, 0)
    assert control.next() == Save()
    control.unsaved(again=False)
    assert control.next() == EndRun(RunEndReason.SUSPENDED, snapshot=False)


@pytest.mark.parametrize(
    ("plan", "free"),
    [
        (RunPlan(), 0),
        (RunPlan(allowed=7), 7),
        (RunPlan(allowed=7, until=5), 5),
        (RunPlan(allowed=7, until=5, snapshot_at=frozenset({3})), 3),
        (RunPlan(position=2, allowed=7, snapshot_every=2), 4),
    ],
)
def test_what_is_free_ends_where_something_may_be_wanted(plan: RunPlan, free: int) -> None:
    assert run(plan).free == free


def test_nothing_is_free_for_a_run_that_is_to_end() -> None:
    control = run(RunPlan(allowed=7))
    train(control)
    control.decide(SUSPEND, 1, 0)
    assert control.free == 1
