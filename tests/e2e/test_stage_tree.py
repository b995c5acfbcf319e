"""Tests of a live search under `stage_tree`: common stages are trained once, and each trial equals its training alone bit by bit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from hopyard.cli.commands.experiments.plan_preview import planned
from hopyard.client import Client
from hopyard.client.queries import ENDED
from hopyard.client.types import Experiment, ExperimentState, Job, JobState
from hopyard.torch.state_io import read_state
from tests.e2e import kills
from tests.e2e.branches import LENGTH, States, Trained, branching_file, trained, whole_curves
from tests.e2e.harness import Curve, all_trained_alone

TRIALS = 16
UNIQUE = 2 * (15 + 2 * 3 + 4 * 6 + 8 * 12)
"""For each optimizer: up to where batch sizes differ, then rates, then momenta, then to the end."""


@dataclass(frozen=True)
class Search:
    """A finished search: its trials, curves, last snapshots, the training of its runs, and the replay of its journal."""

    file: Path
    experiment: Experiment
    jobs: Sequence[Job]
    curves: Mapping[str, Curve]
    snapshots: Mapping[str, Path]
    runs: Sequence[Trained]
    replay: Mapping[str, Any]


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Search:
    """The search over the grid, on two slots."""
    folder = tmp_path_factory.mktemp("search")
    file = branching_file(folder / "code", folder / "log")
    with Client.local(folder / "data", slots=2) as client:
        experiment = client.wait(client.create(file), timeout=200, until={*ENDED, ExperimentState.PAUSED})
        assert experiment.state is ExperimentState.COMPLETED, experiment.reason
        jobs = client.jobs(experiment)
        snapshots = {}
        for job in jobs:
            found = client.download(experiment, job.id, to=folder / "snapshots" / job.id, which="newest")
            assert found.position == LENGTH
            snapshots[job.id] = found.folder
        curves = whole_curves(client, experiment)
    replay = json.loads(kills.command("replay", experiment.id, "--data", str(folder / "data"), "--json"))
    return Search(file, experiment, jobs, curves, snapshots, trained(folder / "log"), replay)


def differing(one: object, other: object, where: str = "state") -> list[str]:
    """Return the places at which two states differ in a bit."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        same = one.dtype == other.dtype and one.shape == other.shape
        return [] if same and one.numpy().tobytes() == other.numpy().tobytes() else [where]
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if one.keys() != other.keys():
            return [where]
        return [found for key in one for found in differing(one[key], other[key], f"{where}[{key!r}]")]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return [where]
        return [
            found
            for index, pair in enumerate(zip(one, other, strict=True))
            for found in differing(*pair, f"{where}[{index}]")
        ]
    return [] if one == other and type(one) is type(other) else [where]


@pytest.mark.timeout(240)
def test_each_position_that_trials_share_is_trained_once(search: Search) -> None:
    assert [(job.state, job.position) for job in search.jobs] == [(JobState.COMPLETED, LENGTH)] * TRIALS
    assert search.replay["decisions_equal"] is True
    _, plan = planned([search.file], 2)
    assert (plan.trials, plan.unique_steps) == (TRIALS, UNIQUE)
    states = States(search.jobs)
    assert states.executed(search.runs) == Counter(states.all())
    assert sum(len(run.positions) for run in search.runs) == UNIQUE


@pytest.mark.timeout(240)
def test_each_trial_has_the_curve_and_the_state_of_the_same_trial_alone(search: Search, tmp_path: Path) -> None:
    configurations = [job.hyperparameters for job in search.jobs]
    alone = all_trained_alone(search.file.parent, configurations, LENGTH, "Branching", keep=tmp_path)
    for index, (job, curve) in enumerate(zip(search.jobs, alone, strict=True)):
        assert search.curves[job.id] == curve, job.id
        (expected,) = (tmp_path / str(index)).glob("position-*/**/torch.pt")
        (found,) = search.snapshots[job.id].glob("**/torch.pt")
        assert differing(read_state(found), read_state(expected)) == [], job.id
    # The trials differ, so that a confusion of two trials would show.
    weights = [read_state(next(path.glob("**/torch.pt")))["model"] for path in search.snapshots.values()]
    assert all(differing(one, other) for i, one in enumerate(weights) for other in weights[:i])
