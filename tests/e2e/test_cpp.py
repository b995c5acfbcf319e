"""Tests of a C++ trainer as jobs of an experiment: repeatedly suspended with both providers, it trains the same as alone."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState, Job, JobState
from hopyard.spec import configuration_seed
from tests.conftest import require_criu
from tests.cpp import EXAMPLE, Programs
from tests.e2e.harness import cluster
from tests.timing import HANG_SECONDS, scaled

pytestmark = pytest.mark.timeout(600)

PATIENCE = 2 * HANG_SECONDS
EPOCHS = 6
JOBS = 4


def experiment(folder: Path, programs: Programs, **changes: Any) -> Path:
    """Write the example with its program and its data into a folder, with changed top-level fields; return its file."""
    (folder / "build").mkdir(parents=True)
    shutil.copy(programs.digits, folder / "build" / "digits")
    shutil.copy(EXAMPLE / ".hopyardignore", folder)
    runpy.run_path(str(EXAMPLE / "make_data.py"))["main"](folder)
    spec = yaml.safe_load((EXAMPLE / "experiment.yaml").read_text())
    spec["policy"] = {"name": "default", "barrier": True}
    spec["metric"].pop("target")
    spec["stop"] = {"jobs": JOBS, "max_iterations": EPOCHS}
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(spec | changes))
    return file


def alone(folder: Path, job: Job) -> list[dict[str, float]]:
    """Return the metrics that the program reports without a cluster and without interruption."""
    seed = configuration_seed(0, job.hyperparameters)
    variables = {"HOPYARD_HYPERPARAMETERS": json.dumps(job.hyperparameters), "HOPYARD_SEED": str(seed)}
    done = subprocess.run(
        ["build/digits", f"--hopyard-until={EPOCHS}"],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return [
        {name: float(value) for name, value in re.findall(r"(\w+)=(\S+)", line)} for line in done.stdout.splitlines()
    ]


async def need_equal_curves(client: AsyncClient, experiment_id: str, folder: Path) -> list[Job]:
    """Check that all jobs are complete, and that each has trained the same as alone; return them."""
    ended = await client.wait(experiment_id, timeout=PATIENCE)
    jobs = await client.jobs(experiment_id)
    assert ended.state is ExperimentState.COMPLETED
    assert {(job.state, job.position, job.failures) for job in jobs} == {(JobState.COMPLETED, EPOCHS, 0)}
    for job in jobs:
        statistics = await client.statistics(experiment_id, job.id)
        found = [dict(one.report.metrics) for one in statistics]
        assert found == alone(folder, job)
        assert found[-1]["accuracy"] > 0.15  # It has learnt something, whatever its configuration.
    assert max(job.best_value or 0.0 for job in jobs) > 0.9
    return jobs


@pytest.mark.parametrize("provider", ["framework", pytest.param("criu", marks=pytest.mark.nightly)])
async def test_a_trainer_in_cpp_is_suspended_and_resumed_at_barriers(
    cpp: Programs, tmp_path: Path, provider: str
) -> None:
    if provider == "criu":
        require_criu()
    file = experiment(tmp_path / "code", cpp, snapshot={"provider": provider})
    data = tmp_path / "data"
    async with cluster(data, {"a": 1, "b": 1}) as (_, client):
        created = await client.create(file)
        jobs = await need_equal_curves(client, created.id, file.parent)
        # In each round the two slots retain at most two jobs of the round before; the others are resumed.
        assert sum(job.attempt for job in jobs) >= JOBS + (JOBS - 2) * (EPOCHS - 1), [job.attempt for job in jobs]
        assert {snapshot.provider for job in jobs for snapshot in job.snapshots} == {provider}


REASONS = {
    "throw": r"failed 1 times, 0 allowed: train at position 2: the count ran out \(std::runtime_error\)",
    "save-throw": r"failed 1 times, 0 allowed: save at position 2: nothing to save \(std::runtime_error\)",
    "exit": r"failed 1 times, 0 allowed: the program ended with exit code 3",
    "crash": r"failed 1 times, 0 allowed: the training process was killed by signal SIGABRT",
}


def counting(folder: Path, programs: Programs, kinds: list[str], stop: dict[str, Any]) -> Path:
    """Write an experiment of the counter; each job does another of `kinds` in its third iteration. Return its file."""
    folder.mkdir()
    shutil.copy(programs.counter, folder / "counter")
    spec = {
        "name": folder.name,
        "command": ["./counter", "--{kind}=2"],
        "metric": {"name": "count", "mode": "max"},
        "space": {"kind": {"choice": kinds}},
        "generator": {"name": "grid"},
        "stop": stop,
    }
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(spec))
    return file


async def test_what_goes_wrong_in_a_cpp_trainer_is_told_as_the_reason_of_its_job(cpp: Programs, tmp_path: Path) -> None:
    seconds = scaled(3.0)
    # The limit has its own experiment: on a busy host so short a limit may end any iteration.
    stop = {"max_iterations": 4, "max_failures": 0}
    file = counting(tmp_path / "code", cpp, [*REASONS, "nan", "finish"], stop)
    hanging = counting(tmp_path / "hanging", cpp, ["hang"], {**stop, "iteration_timeout": f"{seconds}s"})
    async with cluster(tmp_path / "data", {"a": 2}) as (_, client):
        created, hung = await client.create(file), await client.create(hanging)
        await client.wait(created.id, timeout=PATIENCE)
        await client.wait(hung.id, timeout=PATIENCE)
        (job,) = await client.jobs(hung.id)
        says = f"failed 1 times, 0 allowed: an iteration took longer than {seconds:g} s and was ended"
        assert (job.state, job.reason.startswith(says)) == (JobState.FAILED, True), job.reason
        jobs = {job.hyperparameters["kind"]: job for job in await client.jobs(created.id)}
        for kind, pattern in REASONS.items():
            job = jobs.pop(kind)
            assert job.state is JobState.FAILED, kind
            assert re.match(pattern, job.reason), f"{kind}: {job.reason}"
        ended = {kind: (job.state, job.position) for kind, job in jobs.items()}
        assert ended == {"nan": (JobState.COMPLETED, 4), "finish": (JobState.COMPLETED, 2)}
