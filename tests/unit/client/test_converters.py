"""Tests of the conversion from wire messages to the client's values."""

from __future__ import annotations

import math

import pytest

from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard.client.types import (
    Experiment,
    ExperimentState,
    JobGone,
    JobReport,
    JobState,
    Metric,
    NodeState,
    Report,
    Statistic,
)
from hopyard.client.wire import converters
from hopyard.errors import Internal, InvalidInput
from hopyard.v1 import common_pb2, experiment_pb2, resource_manager_pb2

pytestmark = pytest.mark.quick


def wire_experiment() -> experiment_pb2.Experiment:
    return experiment_pb2.Experiment(
        id="e1",
        name="digits",
        state=experiment_pb2.EXPERIMENT_STATE_PAUSED,
        spec_json='{"stop": {"jobs": 3}}',
        metric=common_pb2.Metric(name="loss", mode=common_pb2.METRIC_MODE_MIN, target=0.1, target_over=5),
        jobs={"RUNNING": 2},
    )


def test_an_experiment() -> None:
    found = converters.experiment(wire_experiment())
    assert found.state is ExperimentState.PAUSED
    assert found.metric == Metric("loss", "min", target=0.1, target_over=5)
    assert found.spec == {"stop": {"jobs": 3}}
    assert (found.best_job, found.best_value, found.ended_at) == (None, None, None)
    assert found.jobs == {"RUNNING": 2}


def test_every_state_of_the_wire_is_known() -> None:
    for state in set(ExperimentState) - {ExperimentState.INTERRUPTED}:
        assert converters.EXPERIMENT_STATES.from_proto(converters.EXPERIMENT_STATES.to_proto(state)) is state
    for node in NodeState:
        assert converters.NODE_STATES.from_proto(converters.NODE_STATES.to_proto(node)) is node


def test_a_state_that_is_not_said_is_refused() -> None:
    message = wire_experiment()
    message.state = experiment_pb2.EXPERIMENT_STATE_UNSPECIFIED
    with pytest.raises(InvalidInput, match=r"experiment.state"):
        converters.experiment(message)


def test_a_specification_that_is_no_json_is_the_servers_fault() -> None:
    message = wire_experiment()
    message.spec_json = "nonsense"
    with pytest.raises(Internal, match="no JSON"):
        converters.experiment(message)


def test_a_job_keeps_integers_and_floats_apart() -> None:
    message = experiment_pb2.Job(
        experiment="e1",
        id="3",
        state=common_pb2.JOB_STATE_SUSPENDED,
        hyperparameters=hyperparameters_to_proto({"batch": 32, "lr": 1.0}),
        best_value=math.inf,
        snapshots=[common_pb2.Snapshot(job="3", position=4, sha256="ab", nodes=["n"], stored=True)],
    )
    found = converters.job(message)
    assert found.state is JobState.SUSPENDED
    assert {name: type(value) for name, value in found.hyperparameters.items()} == {"batch": int, "lr": float}
    assert (found.priority, found.last_value, found.best_value) == (None, None, math.inf)
    assert found.snapshots[0].stored


def test_changes() -> None:
    assert isinstance(
        converters.change(experiment_pb2.WatchExperimentResponse(experiment=wire_experiment())), Experiment
    )
    report = experiment_pb2.JobReport(job="1", report=common_pb2.Report(position=2, metrics={"loss": 0.5}))
    change = converters.change(experiment_pb2.WatchExperimentResponse(report=report))
    assert change == JobReport("1", Report(2, {"loss": 0.5}))
    assert converters.change(experiment_pb2.WatchExperimentResponse(job_gone="7")) == JobGone("7")
    assert converters.change(experiment_pb2.WatchExperimentResponse()) is None


def test_a_node() -> None:
    message = resource_manager_pb2.Node(
        id="n",
        state=resource_manager_pb2.NODE_STATE_DRAINING,
        slots=[resource_manager_pb2.Slot(id="n/0", node="n", gpus=[1, 2])],
    )
    found = converters.node(message)
    assert found.state is NodeState.DRAINING
    assert found.slots[0].gpus == (1, 2)
    assert found.slots[0].job is None


def reported(position: int, value: float, part: str = "", examples: int = 0, seconds: float = 1.0) -> Statistic:
    return Statistic("1", 1, Report(position, {"loss": value}, seconds, part=part, examples=examples))


def test_parts_of_a_position_are_weighted_by_examples() -> None:
    points = converters.curve(
        [reported(1, 1.0), reported(2, 1.0, "a", 30), reported(2, 3.0, "b", 10), reported(3, 5.0)], "loss"
    )
    assert [(point.position, point.value) for point in points] == [(1, 1.0), (2, 1.5), (3, 5.0)]
    assert [point.seconds for point in points] == [1.0, 3.0, 4.0]


def test_an_evaluation_by_parts_stands_above_what_training_said_of_the_same_metric() -> None:
    points = converters.curve([reported(2, 9.0), reported(2, 1.0, "a")], "loss")
    assert [point.value for point in points] == [1.0]


def test_positions_without_the_metric_are_left_out() -> None:
    assert converters.curve([reported(1, 1.0)], "accuracy") == []


@pytest.mark.parametrize(("mode", "expected"), [("max", (True, False)), ("min", (False, True))])
def test_better(mode: str, expected: tuple[bool, bool]) -> None:
    metric = Metric("m", mode)  # type: ignore[arg-type]  # a parametrised literal
    assert (metric.better(2.0, 1.0), metric.better(1.0, 2.0)) == expected
    assert metric.better(1.0, math.nan)
    assert not metric.better(math.nan, 1.0)
