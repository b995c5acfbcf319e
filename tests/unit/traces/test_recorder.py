"""Tests of the traces that are made from the reports of an experiment's jobs."""

from __future__ import annotations

import math

import pytest

from hopyard.client.types import Job, Statistic
from hopyard.traces import Trace
from hopyard.traces.recorder import Recorder
from tests.unit.results.given import INF, experiment, job, statistic

pytestmark = pytest.mark.quick

NAN = math.nan


def recorded(jobs: list[Job], statistics: list[Statistic], page: int = 2) -> list[Trace]:
    recorder = Recorder()
    for start in range(0, len(statistics), page):
        recorder.add(statistics[start : start + page])
    return recorder.traces(experiment(), jobs)


def curve(name: str, *values: float, first: int = 1) -> list[Statistic]:
    return [statistic(name, first + index, accuracy=value) for index, value in enumerate(values)]


@pytest.mark.parametrize("page", [1, 2, 3, 100])
def test_jobs_come_in_the_order_of_their_creation_without_those_that_said_nothing(page: int) -> None:
    # AppStat orders ids as texts: "10" comes before "2".
    statistics = [*curve("10", 0.1, 0.2), *curve("2", 0.3), *curve("9", 0.4, NAN, 0.6)]
    found = recorded([job("2"), job("3"), job("9", {"lr": 0.5}), job("10")], statistics, page)
    assert found == [
        Trace("2", {"lr": 0.1}, "accuracy", "max", (0.3,), (0.5,)),
        Trace("9", {"lr": 0.5}, "accuracy", "max", (0.4, NAN, 0.6), (0.5, 0.5, 0.5)),
        Trace("10", {"lr": 0.1}, "accuracy", "max", (0.1, 0.2), (0.5, 0.5)),
    ]


def test_positions_stand_where_they_are_not_one_two_three() -> None:
    statistics = [statistic("1", 0, accuracy=0.1), statistic("1", 5, accuracy=0.2), statistic("1", 10, accuracy=INF)]
    (found,) = recorded([job("1")], statistics)
    assert (found.positions, found.metrics) == ((5, 10), (0.2, NAN))
    assert recorded([job("1")], statistics[:1]) == []


def test_further_metrics_come_along_and_what_was_not_reported_is_null() -> None:
    statistics = [
        statistic("1", 1, loss=2.0),
        statistic("1", 2, accuracy=0.5),
        statistic("1", 3, accuracy=0.6, loss=1.0),
    ]
    (found,) = recorded([job("1")], statistics)
    assert found.metrics == (NAN, 0.5, 0.6)
    assert found.others == {"loss": (2.0, NAN, 1.0)}


def test_parts_of_an_evaluation_are_one_report() -> None:
    parts = [
        statistic("1", 1, part="a", examples=3, accuracy=1.0),
        statistic("1", 1, part="b", examples=1, accuracy=0.0),
    ]
    (found,) = recorded([job("1")], [*parts, *curve("1", 0.9, first=2)], page=1)
    assert (found.metrics, found.seconds) == ((0.75, 0.9), (1.0, 0.5))


def test_a_fork_begins_with_its_ancestor_s_curve() -> None:
    jobs = [job("1"), job("2", parent="1", fork_position=2), job("3", parent="2", fork_position=3)]
    jobs.append(job("4", parent="3", fork_position=1))  # forked before its parent's own start
    statistics = [*curve("1", 0.1, 0.2, 0.3), *curve("2", 2.3, 2.4, first=3), *curve("3", 3.4, first=4)]
    statistics += curve("4", 4.2, first=2)
    found = {one.job: one for one in recorded(jobs, statistics)}
    assert found["2"].metrics == (0.1, 0.2, 2.3, 2.4)
    assert found["3"].metrics == (0.1, 0.2, 2.3, 3.4)
    assert found["4"].metrics == (0.1, 4.2)
    assert all(isinstance(one.positions, range) for one in found.values())


def test_a_job_that_took_another_s_state_goes_on_from_there() -> None:
    """Check two jobs that forked from each other: the one that the search for the beginning meets twice began from scratch."""
    jobs = [job("1", parent="2", fork_position=2), job("2", parent="1", fork_position=1)]
    found = {one.job: one for one in recorded(jobs, [*curve("1", 0.1, 0.2, 0.3), *curve("2", 2.1, 2.2, 2.3)])}
    assert found["1"].metrics == (0.1, 2.2, 0.3)
    assert found["2"].metrics == (0.1, 2.2, 2.3)


def test_a_job_that_was_answered_has_the_curve_it_was_answered_with() -> None:
    found = recorded([job("1"), job("2", parent="1", fork_position=2)], curve("1", 0.1, 0.2, 0.3))
    assert [(one.job, one.metrics) for one in found] == [("1", (0.1, 0.2, 0.3)), ("2", (0.1, 0.2))]


def test_a_fork_of_a_job_of_another_experiment_begins_where_it_parted() -> None:
    (found,) = recorded([job("2", parent="1", fork_position=2)], curve("2", 0.3, 0.4, first=3))
    assert (found.positions, found.metrics) == ((3, 4), (0.3, 0.4))


def test_an_experiment_s_metric_that_was_never_reported_is_null() -> None:
    (found,) = recorded([job("1")], [statistic("1", 1, loss=1.0)])
    assert math.isnan(found.metrics[0])
    assert found.others == {"loss": (1.0,)}
