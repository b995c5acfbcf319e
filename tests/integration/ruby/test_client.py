"""Tests of the Ruby example: it follows the protocol of training programs in the conformance program and on a real agent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from itertools import accumulate, repeat
from pathlib import Path

import pytest

from hopyard._runtime.application.conformance import CASES, ClientUnderTest, check
from hopyard.client.types import ExperimentState, JobState
from tests.conftest import require_system_package
from tests.e2e.harness import cluster
from tests.timing import HANG_SECONDS, scaled

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "ruby_client"

_PACKAGES = (
    ("ruby", "ruby"),
    ("ruby-grpc", "/usr/share/doc/ruby-grpc"),
    ("protobuf-compiler", "protoc"),
    ("protobuf-compiler-grpc", "grpc_ruby_plugin"),
)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A copy of the example with generated stubs; without the required packages the test is skipped, or fails in CI."""
    for package, wanted in _PACKAGES:
        require_system_package(package, wanted)
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("stubs"))
    done = subprocess.run([folder / "generate.sh", ROOT / "protos"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_it_passes_the_conformance_program(example: Path) -> None:
    results = {
        result.name: result
        for result in check(
            ClientUnderTest(("ruby", "adder.rb"), example), patience=HANG_SECONDS, jobs=8, stretch=scaled(2.5)
        )
    }
    assert results.keys() == CASES.keys()
    failed = {name: (one.expected, one.seen, one.printed) for name, one in results.items() if one.outcome != "ok"}
    assert failed == {}


def test_without_an_agent_it_trains_alone(example: Path) -> None:
    variables = {"HOPYARD_HYPERPARAMETERS": json.dumps({"lr": 0.5, "last": 2})}
    done = subprocess.run(
        ["ruby", "adder.rb"], cwd=example, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["1", "2"]


async def test_its_jobs_are_suspended_and_resumed_by_an_agent(example: Path, tmp_path: Path) -> None:
    async with cluster(tmp_path / "data", {"a": 2}) as (_, client):
        created = await client.create(example / "experiment.yaml")
        ended = await client.wait(created.id, timeout=2 * HANG_SECONDS)
        jobs = await client.jobs(created.id)
        assert ended.state is ExperimentState.COMPLETED
        assert {(job.state, job.position, job.failures) for job in jobs} == {(JobState.COMPLETED, 6, 0)}
        # In each of three rounds the two slots retain at most two jobs of the earlier round; the two others are resumed.
        assert sum(job.attempt for job in jobs) >= 4 + 2 * 2
        for job in jobs:
            found = [report.report.metrics["value"] for report in await client.statistics(created.id, job.id)]
            assert found == list(accumulate(repeat(job.hyperparameters["lr"], 6), initial=0.0))[1:]
