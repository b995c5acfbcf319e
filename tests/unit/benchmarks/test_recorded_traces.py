"""Tests that the recorded traces agree with their README and with the experiment files of their folders."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from statistics import quantiles

import pytest

from hopyard.spec import ExperimentSpec, load_spec
from hopyard.traces import Trace, read_traces

pytestmark = pytest.mark.quick

FOLDER = Path(__file__).parents[3] / "benchmarks" / "traces"
NAMES = ("fashion", "lunarlander")


@cache
def recorded(name: str) -> list[Trace]:
    return read_traces(FOLDER / f"{name}.jsonl.gz")


def declared(name: str) -> ExperimentSpec:
    return load_spec((FOLDER / name / "experiment.yaml").read_text(), name)


@pytest.mark.parametrize("name", NAMES)
def test_every_job_of_the_experiment_is_there_to_its_end(name: str) -> None:
    spec, traces = declared(name), recorded(name)
    assert [trace.job for trace in traces] == [str(number) for number in range(1, (spec.stop.jobs or 0) + 1)]
    for trace in traces:
        assert (trace.metric, trace.mode) == (spec.metric.name, spec.metric.mode)
        assert trace.positions == range(1, (spec.stop.max_iterations or 0) + 1)
        assert all(0 < seconds < 60 for seconds in trace.seconds)


@pytest.mark.parametrize("name", NAMES)
def test_configurations_are_those_that_the_experiment_s_seed_proposes(name: str) -> None:
    spec = declared(name)
    for ordinal, trace in enumerate(recorded(name)):
        assert spec.space.problems(trace.hyperparameters) == []
        assert trace.hyperparameters == spec.space.sample_at(spec.generator.seed, ordinal)


def test_more_than_a_quarter_of_the_networks_never_learn_and_the_others_differ_widely() -> None:
    bests = sorted(max(trace.metrics) for trace in recorded("fashion"))
    learners = [best for best in bests if best >= 0.15]
    assert 0.25 <= 1 - len(learners) / len(bests) <= 0.5
    lower, _, upper = quantiles(learners, n=4)
    assert upper - lower > 0.1
    assert learners[0] < 0.3
    assert 0.8 < learners[-1] < 0.9
    assert all(0 <= value <= 1 for trace in recorded("fashion") for value in trace.metrics)


def test_some_agents_land_half_never_do_and_some_forget_what_they_had_learned() -> None:
    traces = recorded("lunarlander")
    bests = [max(trace.metrics) for trace in traces]
    assert 0.25 <= sum(best < 0 for best in bests) / len(bests) <= 0.5
    assert sum(best > 150 for best in bests) >= 5
    crashes = [
        trace.job
        for trace in traces
        if any(max(trace.metrics[:place]) > 0 and value < -50 for place, value in enumerate(trace.metrics) if place)
    ]
    assert len(crashes) >= 10


def test_what_an_agent_has_not_measured_is_not_a_number() -> None:
    for trace in recorded("lunarlander"):
        assert not any(map(math.isnan, (*trace.metrics, *trace.others["episodes"])))
        before_learning = (trace.hyperparameters["warmup"] - 1) // 1500
        for place, loss in enumerate(trace.others["train_loss"]):
            assert math.isnan(loss) == (place < before_learning)
