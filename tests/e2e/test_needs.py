"""Test that an experiment gets only slots that satisfy the needs of its jobs, and reports when there are none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from hopyard.client.types import Experiment, ExperimentState
from tests.e2e.harness import cluster
from tests.e2e.test_gangs import PATIENCE, gang_file, hopyard
from tests.nvml import fake_nvml


async def test_jobs_that_need_a_gpu_wait_for_one_and_say_so_beside_others_that_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = gang_file(tmp_path / "gpu", size=1, length=3)
    spec = yaml.safe_load(file.read_text()) | {"resources": {"per_job": {"gpus": 1}}}
    file.write_text(yaml.safe_dump(spec))
    async with cluster(tmp_path / "data", {"a": 1}) as (processes, client):
        needy = await client.create(file)
        other = await client.create(gang_file(tmp_path / "cpu", size=1, length=3))
        assert (await client.wait(other.id, timeout=PATIENCE)).state is ExperimentState.COMPLETED
        waits = await client.get(needy.id)
        assert waits.state is ExperimentState.RUNNING
        assert waits.reason.startswith("each job needs a slot with 1 CPU thread and 1 GPU (resources.per_job);")
        assert "there are 1 with" in waits.reason
        assert waits.reason in await hopyard(processes, "experiments", "--json")
        # A watch reports when slots appear.
        told: list[str] = []
        watching = client.watch(needy.id)

        async def listen() -> None:
            async for change in watching:
                if isinstance(change, Experiment):
                    told.append(change.reason)

        listener = asyncio.create_task(listen())
        (tmp_path / "nvml").mkdir()
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        for variable, value in fake_nvml(tmp_path / "nvml").items():
            monkeypatch.setenv(variable, value)
        await processes.start_agent("g", 2, "--gpus", "0,1")
        ended = await client.wait(needy.id, timeout=PATIENCE)
        assert ended.state is ExperimentState.COMPLETED, ended.reason
        async with asyncio.timeout(PATIENCE):
            await listener
        assert told[-1] == ended.reason
        story = await hopyard(processes, "events", needy.id)
        assert "slot g/0 on node g was granted" in story
        assert "slot a/0" not in story
