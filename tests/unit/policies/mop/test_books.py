"""Tests of the visit history of `mop`: the partitions of each job, with lost runs and with nodes that come back."""

from __future__ import annotations

import pytest

from hopyard.policy import JobState, JobView, RunEnd, RunEndReason
from hopyard_policies.mop.visit_history import RunningUnit, VisitHistory

pytestmark = pytest.mark.quick


def train(visits: VisitHistory, position: int, partition: str, resume: int) -> RunningUnit | None:
    visits.start("1", RunningUnit(position, (partition,), ("m",), 0.0))
    reason = RunEndReason.UNTIL if resume > position else RunEndReason.LOST
    return visits.end(RunEnd("1", 1, reason, position + 1, resume))


def at(position: int, high_water: int | None = None) -> JobView:
    return JobView("1", JobState.SUSPENDED, position=position, high_water=high_water or position, max_position=9)


def test_a_lost_unit_whose_snapshot_comes_back_with_its_node_has_been_visited() -> None:
    visits = VisitHistory()
    assert train(visits, 0, "train/1", 1) is not None
    assert train(visits, 1, "train/0", 1) is None
    assert visits.visited(at(1), 0) == {"train/1"}
    assert visits.visited(at(2), 0) == {"train/0", "train/1"}


def test_a_lost_unit_that_had_reported_is_trained_again_alike_and_another_one_as_it_comes() -> None:
    visits = VisitHistory()
    assert train(visits, 0, "train/1", 0) is None
    assert visits.again(at(0, high_water=1)) == ("train/1",)
    assert visits.again(at(0)) == ()
    assert train(visits, 0, "train/2", 1) is not None
    assert visits.order("1") == ["train/2"]


def test_what_was_trained_first_stays_known_when_another_try_is_lost() -> None:
    visits = VisitHistory()
    train(visits, 0, "train/1", 1)
    train(visits, 1, "train/0", 2)
    assert train(visits, 0, "train/2", 0) is None
    assert visits.order("1") == ["train/1", "train/0"]


def together(visits: VisitHistory, position: int, partitions: tuple[str, ...], resume: int) -> RunningUnit | None:
    visits.start("1", RunningUnit(position, partitions, tuple(f"m{name}" for name in partitions), 0.0))
    return visits.end(RunEnd("1", 1, RunEndReason.UNTIL, position + len(partitions), resume))


def test_a_gang_visits_each_of_its_partitions_once_and_trains_all_of_them_again() -> None:
    visits = VisitHistory()
    assert train(visits, 0, "train/1", 1) is not None
    assert together(visits, 1, ("train/0", "train/2"), 3) is not None
    assert visits.visited(at(3), 0) == {"train/0", "train/1", "train/2"}
    assert visits.visited(at(3), 3) == set()
    assert visits.order("1") == ["train/1", "train/0", "train/2"]
    assert visits.again(at(1, high_water=3)) == ("train/0", "train/2")
    # One of the two partitions alone is a different training, so the later units no longer count.
    assert train(visits, 1, "train/0", 2) is not None
    assert visits.again(at(2, high_water=3)) == ()
    assert visits.order("1") == ["train/1", "train/0"]


def test_of_a_gang_that_was_left_in_between_only_what_was_saved_counts() -> None:
    visits = VisitHistory()
    assert together(visits, 0, ("train/0", "train/1", "train/2"), 2) is not None
    assert visits.visited(at(2), 0) == {"train/0", "train/1"}
