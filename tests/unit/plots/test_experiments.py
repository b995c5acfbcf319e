"""Tests of the conversion from a client's experiment to the data of plots."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import entry_points
from typing import Any

import pytest

from hopyard._common.plugins import TIMELINES
from hopyard.client.types import ExperimentState, JobState, Metric, Statistic
from hopyard.errors import Unsupported
from hopyard.plots import JobEnd, PlottedRun, SearchSource, experiments
from hopyard.plots.model import JournalStory
from tests.unit.results.given import NAN, experiment, job, statistic

SPEC: dict[str, Any] = {
    "policy": {"name": "bandit"},
    "resources": {"slots": 3},
    "unit": "steps",
    "stop": {"max_iterations": 2},
}


def again(given: Statistic, attempt: int) -> Statistic:
    return replace(given, attempt=attempt)


def test_curves_are_in_seconds_since_the_experiment_began() -> None:
    given = replace(experiment(), spec=SPEC, metric=Metric("accuracy", "max", 0.8), ended_at=1100.0, best_value=0.9)
    jobs = [job("1", seconds=7.0), job("2", state=JobState.FAILED), job("3", state=JobState.SUSPENDED)]
    reports = [
        statistic("1", 1, 1010.0, accuracy=0.5),
        again(statistic("1", 2, 1030.0, accuracy=0.9), 2),
        statistic("2", 1, 1005.0, accuracy=NAN),
        statistic("2", 2, 1004.0, accuracy=0.1),
    ]
    found = experiments.search_of(
        given, jobs, reports, JournalStory([PlottedRun("n/0", "1", 1, 1001.0, 1010.0, "UNTIL")])
    )
    assert found.curves is not None
    one, two, three = found.curves
    assert (one.times.tolist(), one.positions.tolist(), one.values.tolist()) == ([10.0, 30.0], [1.0, 2.0], [0.5, 0.9])
    assert (one.end, two.end, three.end) == (JobEnd.COMPLETED, JobEnd.FAILED, JobEnd.OPEN)
    assert (one.resumed, two.resumed) == ((1,), ())
    assert two.times.tolist() == [5.0, 5.0]
    assert str(two.values.tolist()) == "[nan, 0.1]"
    assert len(three.times) == 0
    assert (found.policy, found.slots, found.unit, found.max_position) == ("bandit", 3, "steps", 2)
    assert (found.time_to_target, found.time, found.best) == (30.0, 100.0, 0.9)
    assert found.completed_jobs == ((0.0, 0.0), (5.0, 1.0), (30.0, 2.0))
    assert found.runs == (PlottedRun("n/0", "1", 1, 1.0, 10.0, "UNTIL"),)
    assert (found.source, found.durations) == (SearchSource.EXPERIMENT, {"1": 7.0, "2": 0.0, "3": 0.0})


def test_a_copy_s_line_begins_where_it_left_its_parent_s() -> None:
    given = replace(experiment(), spec=SPEC, metric=Metric("accuracy", "max"))
    jobs = [
        job("1"), replace(job("2"), parent="1", fork_position=2), replace(job("3"), parent="2", fork_position=2),
        replace(job("4"), parent="1", fork_position=9),
    ]  # fmt: skip
    reports = [statistic("1", position, 1010.0 + position, accuracy=position / 10) for position in (1, 2, 3)]
    reports += [statistic(name, 3, 1030.0, accuracy=0.9) for name in ("2", "3")] + [
        statistic("4", 10, 1030.0, accuracy=0.2)
    ]
    found = experiments.search_of(given, jobs, reports)
    assert found.curves is not None
    _, two, three, four = found.curves
    for copy in (two, three):
        assert (copy.positions.tolist(), copy.values.tolist()) == ([2.0, 3.0], [0.2, 0.9])
        assert (copy.times.tolist(), copy.resumed) == ([12.0, 30.0], (1,))
    assert four.positions.tolist() == [10.0]  # Its parent has not reported that position.


def test_what_the_journal_tells_is_in_seconds_since_the_experiment_began() -> None:
    told = JournalStory([], [(1001.0, 1.0, 2.0)], {"1": [(1002.0, 0.5)]}, [(1003.0, 4, (0.5, 0.1))])
    spec = {**SPEC, "policy": {"name": "pop", "slots_per_job": 2}}
    found = experiments.search_of(replace(experiment(), spec=spec), [job("1")], [], told)
    assert found.pools == ((1.0, 1.0, 2.0),)
    assert found.labels == {"1": ((2.0, 0.5),)}
    assert (found.confidences, found.slots_per_job) == (((3.0, 4, (0.5, 0.1)),), 2)
    unlabelled = experiments.search_of(experiment(), [job("1")], [], replace(told, labels={}))
    assert unlabelled.pools == ()  # no pools without labels


def test_what_the_specification_does_not_say_is_not_known() -> None:
    given = experiment(ExperimentState.RUNNING)
    found = experiments.search_of(given, [], [], now=1042.0)
    assert (found.policy, found.slots, found.max_position, found.completed_jobs) == (None, None, None, None)
    assert (found.time, found.target, found.time_to_target, found.runs) == (42.0, None, None, None)


def test_a_target_is_reached_downwards_too() -> None:
    given = replace(experiment(), metric=Metric("loss", "min", 0.2))
    reports = [statistic("1", 1, 1010.0, loss=0.5), statistic("1", 2, 1020.0, loss=0.2)]
    assert experiments.search_of(given, [job("1")], reports).time_to_target == 20.0


@pytest.mark.parametrize(("over", "reached"), [(1, 10.0), (2, 40.0), (3, None)])
def test_a_target_may_be_reached_by_a_mean(over: int, reached: float | None) -> None:
    """Check the rounding of means (0.1 + 0.1 + 0.1 is not 0.3 in doubles), and that a mean with NaN reaches no target."""
    given = replace(experiment(), metric=Metric("loss", "min", 0.1, target_over=over))
    values = [0.1, NAN, 0.1, 0.1, 0.3]
    reports = [statistic("1", at, 1000.0 + 10 * at, loss=value) for at, value in enumerate(values, 1)]
    assert experiments.search_of(given, [job("1")], reports).time_to_target == reached
    again = [statistic("1", at, 1000.0 + 10 * at, loss=0.1) for at in range(1, 4)]
    assert experiments.search_of(given, [job("1")], again).time_to_target == 10.0 * over


def test_runs_are_read_by_what_the_scheduler_s_distribution_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    (entry,) = entry_points(group=TIMELINES)
    assert experiments.timeline() is entry.load()
    monkeypatch.setattr(experiments, "plugin_names", lambda group: [])
    with pytest.raises(Unsupported, match=r"pip install .*\[scheduler\]'"):
        experiments.timeline()
