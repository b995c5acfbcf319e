"""Tests of the cluster that repeats training: it gets the same program and data, and no limits that would end it early."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hopyard.errors import InvalidInput, NotFound
from hopyard.policy.vocabulary import RunMode, StreamId
from hopyard.spec import load_spec, parse_spec
from hopyard_engine.core.events import DataChanged
from hopyard_engine.core.types import PlacedData, PlacedPartition
from hopyard_scheduler.experiments.program import ExperimentProgram
from hopyard_tools.commands.retrain import slots_for
from hopyard_tools.reexecution.chains import TrainingChain, chains_of
from hopyard_tools.reexecution.extract import NumberedMessage, Recorded, RecordedRun
from hopyard_tools.reexecution.scratch_cluster import partitions_here, spec_again
from tests.unit.core.rig import Rig

pytestmark = pytest.mark.quick

FILE = """
name: digits
trainer: train.py:Digits
metric: {name: accuracy, mode: max, target: 0.9, target_over: 2, kill_threshold: 0.1}
space: {lr: {loguniform: [1.0e-4, 1.0]}, batch_size: {choice: [32, 64]}}
generator: {name: tpe, seed: 7}
policy: {name: asha, eta: 4}
predictor: {name: "mine:Predictor"}
data: images
stop: {jobs: 16, max_iterations: 8, max_time: 5m, max_failures: 2}
snapshot: {every: 2, keep_latest: 3, keep_best: 2, quota: 1GiB}
resources: {slots: 2, concurrency: 3, per_job: {cpus: 2, memory: 1GiB}}
environment: {A: b}
seed: 11
share: mine
"""


def chain(until: int, ranks: int = 1) -> TrainingChain:
    run = RecordedRun(1, "x", "1", 1, RunMode.TRAIN, 0, None, {"lr": 0.1}, ("",) * ranks)
    run.reports[until, ""] = NumberedMessage(2, {"accuracy": 0.5})
    return chains_of([run], 0)[0]


def test_what_trains_is_as_it_was_and_nothing_decides_but_the_plan() -> None:
    program = ExperimentProgram(load_spec(FILE), "b" * 64, "/opt/python")
    chains = [chain(9), chain(4)]
    before, after = program.spec, parse_spec(spec_again(program, chains, Path("/scratch/plan.json")))
    same = ("name", "trainer", "space", "constraints", "data", "unit", "environment", "working_directory", "seed")
    assert {name: getattr(after, name) for name in same} == {name: getattr(before, name) for name in same}
    assert after.resources.per_job == before.resources.per_job
    assert (after.snapshot.every, after.stop.max_failures) == (2, 2)
    assert (after.policy.name, after.policy.parameters) == (
        "hopyard_tools.reexecution.recorded_policy:RecordedPolicy",
        {"plan": "/scratch/plan.json"},
    )
    assert (after.stop.jobs, after.stop.max_iterations, after.stop.max_time) == (2, 10, None)
    assert (after.metric.target, after.resources.slots, after.resources.concurrency) == (None, None, None)
    assert (after.share, after.generator.name, after.interpreter) == (None, "random", "/opt/python")
    assert "predictor" not in after.model_fields_set


def test_a_plan_says_what_each_chain_trains() -> None:
    assert json.loads(json.dumps(chain(9).plain())) == {
        "hyperparameters": {"lr": 0.1},
        "origin": None,
        "stretches": [[1, 0, 9, [], [""]]],
        "evaluations": [],
    }


def test_partitions_are_where_any_node_had_them_and_what_is_nowhere_is_named(tmp_path: Path) -> None:
    here = tmp_path / "train-0.npy"
    here.write_text("0")
    parts = (
        PlacedPartition("train/0", 1, "a", 10, {"n1": "/not/here"}),
        PlacedPartition("train/1", 1, "b", 10, url="s3://data/1"),
    )
    rig = Rig(data=PlacedData("images", parts))
    recorded = Recorded()
    for event in rig.journal:
        recorded.take(event)
    with pytest.raises(NotFound, match=r"^train/0 is not on this computer; it was n1:/not/here\ncopy it"):
        partitions_here(recorded)
    recorded.take(DataChanged(rig.now, StreamId("x"), (PlacedPartition("train/0", 1, "a", 10, {"n2": str(here)}),)))
    first, second = partitions_here(recorded)
    assert [(replica.node, replica.path) for replica in first.replicas] == [("local", str(here))]
    assert (second.url, second.sha256, second.replicas) == ("s3://data/1", "b", ())


def test_a_gang_needs_its_slots_and_gpus_are_refused() -> None:
    program = ExperimentProgram(load_spec(FILE), "", "")
    assert slots_for(program, [chain(1, ranks=64)], None) == 64
    assert slots_for(program, [chain(1)], 3) == 3
    with pytest.raises(InvalidInput, match="--slots 2: a job was on 4 slots at once; give at least --slots 4"):
        slots_for(program, [chain(1, ranks=4)], 2)
    program = ExperimentProgram(load_spec(FILE.replace("cpus: 2", "gpus: 1")), "", "")
    with pytest.raises(InvalidInput, match=r"resources.per_job.gpus is 1: only what is trained on CPUs"):
        slots_for(program, [chain(1)], None)
