"""Tests of unusual and of invalid simulations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from hopyard.errors import InvalidInput
from hopyard.policy import CONTINUE, SUSPEND, Cluster, Decision, IterationFinish, Policy
from hopyard.traces import Trace
from hopyard_simulator import CurveWorkload, Faults, JoiningExperiment, SimulationError, TraceWorkload, simulate
from tests.unit.simulator.test_by_hand import FOUR

pytestmark = pytest.mark.quick


def test_an_infinite_report_reaches_no_target() -> None:
    workload = CurveWorkload(lambda given, position: math.inf if position == 1 else 0.5, [{"x": 1}], 3)
    assert simulate(workload, slots=1, policy="default", target=0.4).time_to_target == 2.0


def test_a_search_is_over_when_a_mean_of_reports_reaches_the_target() -> None:
    values = [250.0, 100.0, math.nan, 300.0, 150.0, 250.0]
    workload = CurveWorkload(lambda given, position: values[position - 1], [{"x": 1}], len(values))
    found = [
        simulate(workload, slots=1, policy="default", target=200.0, parameters={"target_over": over}).time_to_target
        for over in (1, 2, 3, 4)
    ]
    assert found == [1.0, 5.0, 6.0, None]


def test_a_node_that_never_comes_back() -> None:
    workload = CurveWorkload(lambda given, position: 0.5, [{"x": 1}], 1000)
    with pytest.raises(SimulationError, match=r"after [\d.]+ s nothing happens any more"):
        simulate(workload, "default", slots=1, faults=Faults(node_failures=0.1, downtime=math.inf))


def test_a_gang_that_trains_from_scratch_trains_once() -> None:
    class Pairs(Policy):
        def allocate_jobs(self, cluster: Cluster) -> None:
            slots, job = cluster.idle_slots(), cluster.get_idle_job()
            if len(slots) == 2 and job is not None:
                cluster.start_job(job, tuple(slot.id for slot in slots))
            elif cluster.experiment.jobs_left:
                cluster.create_job()

        def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
            return CONTINUE if event.at_until else SUSPEND

        def gang(self, cluster: Cluster) -> int:
            return 2

    workload = CurveWorkload(lambda given, position: 0.5, [{"x": 1}], 3)
    result = simulate(workload, Pairs, slots=2, from_scratch=True, details=True)
    assert result.iterations == 1 + 2 + 3
    assert result.job_seconds == result.time * 2 == (1 + 2 + 3) * 2 / 2


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: {"target": math.nan}, "target must be a finite number, found nan"),
        (lambda: {"target": math.inf}, "target must be a finite number, found inf"),
        (lambda: {"max_time": 0.0}, "max_time must be a number of seconds > 0, found 0.0"),
        (lambda: {"max_time": math.nan}, "max_time must be a number of seconds > 0, found nan"),
        (lambda: {"jobs": 0}, "jobs must be at least 1, found 0"),
        (lambda: {"slots": 0}, "slots must be at least 1, found 0"),
        (lambda: {"parameters": {"snapshot_every": -1}}, "snapshot_every must be at least 0, found -1"),
        (lambda: {"parameters": {"snapshot_every": True}}, "snapshot_every must be a whole number, found True"),
        (
            lambda: {"group": [JoiningExperiment([{"x": 1}], at=3.0, stopped=2.0)]},
            "experiment 2 of the group is stopped at 2.0; allowed are seconds >= 3, when it joins",
        ),
        (lambda: {"faults": Faults(drop=1.0)}, r"drop must be a chance in \[0, 1\), found 1.0"),
    ],
)
def test_arguments_that_are_wrong(made: Callable[[], dict[str, Any]], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        simulate(TraceWorkload(FOUR), "default", **{"slots": 2, **made()})


def test_workloads_that_are_wrong() -> None:
    with pytest.raises(InvalidInput, match=r"max_position .* must be at least 1, found 0"):
        TraceWorkload(FOUR, 0)
    with pytest.raises(InvalidInput, match=r"max_position .* must be at least 1, found -1"):
        CurveWorkload(lambda given, position: 0.5, [{"x": 1}], -1)
    backwards = CurveWorkload(
        lambda given, position: 0.5, [{"x": 1}], 3, seconds=lambda given, position: 1.5 - position
    )
    with pytest.raises(InvalidInput, match=r"position 2 takes -0\.5 s; allowed are finite numbers >= 0"):
        simulate(backwards, "default", slots=1)


def test_a_barrier_opens_when_the_last_job_is_already_beyond_it() -> None:
    # Job 2 reports at 2 and 3 only. It is last, at 3.0, and at the end of the second round at once: job 1 must continue alone.
    traces = [
        Trace("1", {"x": 1}, "score", "max", (0.1, 0.2, 0.3), (1.0, 1.0, 1.0)),
        Trace("2", {"x": 2}, "score", "max", (0.1, 0.2), (3.0, 1.0), (2, 3)),
    ]
    result = simulate(TraceWorkload(traces), "default", slots=2, parameters={"barrier": True}, details=True)
    assert result.curves == {
        "1": [[1.0, 1, 0.1], [4.0, 2, 0.2], [5.0, 3, 0.3]],
        "2": [[3.0, 2, 0.1], [5.0, 3, 0.2]],
    }
