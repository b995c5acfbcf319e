"""A cluster is killed: commands show its experiments as INTERRUPTED, and `hopyard resume NAME` continues this one only."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from hopyard.client import AsyncClient
from hopyard.client.local_cluster.embedded import EmbeddedCluster
from hopyard.client.types import Experiment, ExperimentState, Job, JobState
from tests.e2e.harness import softmax_file
from tests.timing import HANG_SECONDS

STOP = {"jobs": 2, "max_iterations": 4}


def hopyard(data: Path, *arguments: str) -> tuple[Any, str]:
    """The JSON document and the messages of a command on a data directory."""
    command = [sys.executable, "-m", "hopyard.cli.main", *arguments, "--json", "--data", str(data)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def states(data: Path) -> dict[str, str]:
    return {one["name"]: one["state"] for one in hopyard(data, "experiments")[0]}


async def begin(data: Path, folder: Path, opening: Path) -> None:
    """Run two experiments, whose jobs stop at position 2, beside a paused one, and kill the cluster."""
    os.environ |= {"SOFTMAX_PACE": "0.5", "SOFTMAX_ENOUGH": str(opening), "SOFTMAX_HELD": "1:2"}
    cluster = EmbeddedCluster(data, slots=0)
    try:
        async with asyncio.timeout(HANG_SECONDS), AsyncClient(await cluster.start()) as client:
            files = {name: softmax_file(folder / name, name=name, stop=STOP) for name in ("one", "two", "three")}
            one, two, three = [await client.create(file) for file in files.values()]
            await client.pause(three)
            await client.wait(three, until={ExperimentState.PAUSED})
            await cluster.start_agent(2)
            for experiment in (one, two):
                await running(client, experiment)
            cluster.kill()
    finally:
        await cluster.stop()


async def running(client: AsyncClient, experiment: Experiment) -> None:
    async with aclosing(client.watch(experiment)) as changes:
        async for change in changes:
            if isinstance(change, Job) and change.state is JobState.RUNNING:
                return


@pytest.mark.timeout(600)
def test_only_the_named_experiment_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SOFTMAX_PACE", "SOFTMAX_ENOUGH", "SOFTMAX_HELD"):
        monkeypatch.setenv(name, "")  # restored after the test
    data, opening = tmp_path / "data", tmp_path / "enough"
    asyncio.run(begin(data, tmp_path, opening))
    assert states(data) == {"one": "INTERRUPTED", "two": "INTERRUPTED", "three": "PAUSED"}
    jobs, _ = hopyard(data, "jobs", "one")
    assert not {job["state"] for job in jobs} & {"RUNNING", "STARTING", "SUSPENDING"}

    opening.touch()
    result, messages = hopyard(data, "resume", "two", "--slots", "2")
    assert result["experiment"]["state"] == "COMPLETED"
    assert "only two (" in messages
    assert "paused: one (" in messages
    assert states(data) == {"one": "PAUSED", "two": "COMPLETED", "three": "PAUSED"}
    assert all(job["position"] <= 2 for job in hopyard(data, "jobs", "one")[0])
