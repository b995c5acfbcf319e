"""What a job was trained on, also when what is lost is found again."""

from __future__ import annotations

from hopyard.policy import JobState, JobView, RunEnd, RunEndReason
from hopyard_policies.mop.books import Running, Visits


def train(visits: Visits, position: int, partition: str, resume: int) -> Running | None:
    visits.start("1", Running(position, partition, "m", 0.0))
    reason = RunEndReason.UNTIL if resume > position else RunEndReason.LOST
    return visits.end(RunEnd("1", 1, reason, position + 1, resume))


def at(position: int, high_water: int | None = None) -> JobView:
    return JobView("1", JobState.SUSPENDED, position=position, high_water=high_water or position, max_position=9)


def test_a_lost_unit_whose_snapshot_comes_back_with_its_node_has_been_visited() -> None:
    visits = Visits()
    assert train(visits, 0, "train/1", 1) is not None
    assert train(visits, 1, "train/0", 1) is None
    assert visits.visited(at(1), 0) == {"train/1"}
    assert visits.visited(at(2), 0) == {"train/0", "train/1"}


def test_a_lost_unit_that_had_reported_is_trained_again_alike_and_another_one_as_it_comes() -> None:
    visits = Visits()
    assert train(visits, 0, "train/1", 0) is None
    assert visits.again(at(0, high_water=1)) == "train/1"
    assert visits.again(at(0)) == ""
    assert train(visits, 0, "train/2", 1) is not None
    assert visits.order("1") == ["train/2"]


def test_what_was_trained_first_stays_known_when_another_try_is_lost() -> None:
    visits = Visits()
    train(visits, 0, "train/1", 1)
    train(visits, 1, "train/0", 2)
    assert train(visits, 0, "train/2", 0) is None
    assert visits.order("1") == ["train/1", "train/0"]
