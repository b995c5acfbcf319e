"""On a computer with GPUs each is a slot, and a training process sees those of its slot."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from hopyard.client import AsyncClient
from hopyard.client.local_cluster.embedded import agent_service
from hopyard.client.local_cluster.processes import ServiceProcess
from hopyard.client.types import ExperimentState
from tests.e2e.harness import REPOSITORY, Processes, cluster
from tests.e2e.test_gangs import hopyard
from tests.e2e.up import IS_UP, Up
from tests.nvml import fake_nvml
from tests.timing import HANG_SECONDS

TRAIN = """
import os, sys, time
from pathlib import Path
import hopyard

seen, jobs = Path(sys.argv[1]), int(sys.argv[2])
(seen / os.environ["HOPYARD_JOB"]).write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "not set"))
while len(list(seen.iterdir())) < jobs:  # all jobs train at the same time, each on its own slot
    time.sleep(0.05)
hopyard.report(accuracy=0.5)
"""


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Two GPUs for the processes of a test."""
    (tmp_path / "nvml").mkdir()
    variables = fake_nvml(tmp_path / "nvml", FAKE_USE=str(tmp_path / "use"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


def experiment(folder: Path, jobs: int, **changes: Any) -> tuple[Path, Path]:
    """An experiment whose jobs write what they see of the GPUs into files, and the folder of these files."""
    seen = folder / "seen"
    seen.mkdir(parents=True)
    code = folder / "code"
    code.mkdir()
    (code / "train.py").write_text(TRAIN)
    spec: Mapping[str, Any] = {
        "name": "gpus",
        "command": ["python", "train.py", str(seen), str(jobs)],
        "metric": {"name": "accuracy", "mode": "max"},
        "space": {"lr": {"uniform": [0.0, 1.0]}},
        "stop": {"jobs": jobs, "max_iterations": 1},
        "snapshot": {"provider": "framework"},
        **changes,
    }
    file = code / "experiment.yaml"
    file.write_text(yaml.safe_dump(spec))
    return file, seen


def visible(seen: Path) -> list[str]:
    return sorted(file.read_text() for file in seen.iterdir())


async def agent(processes: Processes, node: str, *options: str) -> None:
    service = agent_service(processes.data / node, processes.scheduler, None, node, pass_env=["*"])
    process = processes.running[node] = ServiceProcess(service, processes.data / "logs")
    await process.start(options)
    await process.ready(HANG_SECONDS)


async def shown(processes: Processes, node: str, use: Mapping[str, float | None]) -> dict[str, Any]:
    """`hopyard nodes --json` of a node, when the use of its GPUs is as given."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            for one in json.loads(await hopyard(processes, "nodes", "--json")):
                if one["id"] == node and {gpu["uuid"]: gpu["utilization"] for gpu in one["gpus"]} == use:
                    found: dict[str, Any] = one
                    return found
            await asyncio.sleep(0.1)


@pytest.mark.usefixtures("gpus")
async def test_each_gpu_is_a_slot_whose_processes_see_only_it(tmp_path: Path) -> None:
    async with cluster(tmp_path / "data", {}) as (processes, client):
        await agent(processes, "g")
        await agent(processes, "c", "--gpus", "none")
        node = await shown(processes, "g", {"GPU-aaaa-1": 0.37, "GPU-bbbb-2": 0.05})
        assert [(slot["id"], slot["gpus"]) for slot in node["slots"]] == [("g/0", [0]), ("g/1", [1])]
        assert node["slots"][0]["hardware"].endswith("1 x NVIDIA A100")
        assert node["gpus"][0] == {
            "uuid": "GPU-aaaa-1",
            "index": 0,
            "model": "NVIDIA A100",
            "memory_bytes": 40 << 30,
            "memory_used_bytes": 1 << 30,
            "utilization": 0.37,
            "slots": ["g/0"],
        }
        assert "NVIDIA A100" in await hopyard(processes, "nodes")
        other = await shown(processes, "c", {})
        assert [(slot["id"], slot["gpus"]) for slot in other["slots"]] == [("c/0", [])]
        # The slot without GPUs takes part, and its process sees none.
        file, seen = experiment(tmp_path / "experiment", 3)
        ended = await client.wait((await client.create(file)).id, timeout=HANG_SECONDS)
        assert ended.state is ExperimentState.COMPLETED, ended.reason
        assert visible(seen) == ["", "GPU-aaaa-1", "GPU-bbbb-2"]
        # Heartbeats bring the use of the GPUs up to date.
        (tmp_path / "use").write_text("GPU-aaaa-1 2048 99\n")
        node = await shown(processes, "g", {"GPU-aaaa-1": 0.99, "GPU-bbbb-2": 0.05})
        assert node["gpus"][0]["memory_used_bytes"] == 2 << 30


async def run(*arguments: str) -> tuple[int, str]:
    """Exit code and messages of a command."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hopyard.cli.main", *arguments),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    _, said = await process.communicate()
    return process.returncode or 0, said.decode()


@pytest.mark.usefixtures("gpus")
async def test_run_trains_on_the_gpus_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, seen = experiment(tmp_path / "first", 2)
    code, said = await run("run", str(file), "--data", str(tmp_path / "data"))
    assert code == 0, said
    assert "2 x NVIDIA A100: 2 slots with 1 GPU each (--gpus none trains on CPUs)" in said
    assert visible(seen) == ["GPU-aaaa-1", "GPU-bbbb-2"]

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    file, seen = experiment(tmp_path / "second", 2)
    code, said = await run("run", str(file), "--data", str(tmp_path / "data"), "--slots-per-gpu", "2")
    assert code == 0, said
    assert "warning: 2 slots share each GPU: its memory is shared too and not limited" in said
    assert visible(seen) == ["GPU-bbbb-2", "GPU-bbbb-2"]

    file, _ = experiment(tmp_path / "third", 1, resources={"per_job": {"gpus": 2}})
    code, said = await run("run", str(file), "--data", str(tmp_path / "data"))
    assert code != 0
    assert "resources.per_job.gpus is 2, and there is 1 GPU to use (1 x NVIDIA A100)" in said
    assert "Traceback" not in said


@pytest.mark.usefixtures("gpus")
async def test_a_local_client_has_one_slot_per_gpu(tmp_path: Path) -> None:
    async with AsyncClient.local(tmp_path / "data") as client:
        async with asyncio.timeout(HANG_SECONDS):
            while not (nodes := await client.nodes()):  # noqa: ASYNC110 - the agent joins
                await asyncio.sleep(0.05)
        assert [(slot.id, slot.gpus) for slot in nodes[0].slots] == [("local/0", (0,)), ("local/1", (1,))]
        assert [(gpu.uuid, gpu.slots) for gpu in nodes[0].gpus] == [
            ("GPU-aaaa-1", ("local/0",)),
            ("GPU-bbbb-2", ("local/1",)),
        ]


@pytest.mark.usefixtures("gpus")
async def test_the_agents_of_up_divide_the_gpus(tmp_path: Path) -> None:
    up = await asyncio.to_thread(Up, tmp_path / "data")  # two agents with one slot each
    try:
        await asyncio.to_thread(up.wait_for, IS_UP)
        assert any("1 x NVIDIA A100: 1 slot with 1 GPU on each agent" in line for line in up.said)
        async with AsyncClient(server=up.server) as client, asyncio.timeout(HANG_SECONDS):
            while len(nodes := await client.nodes()) < 2:  # noqa: ASYNC110 - the agents join
                await asyncio.sleep(0.05)
            assert {node.id: [gpu.uuid for gpu in node.gpus] for node in nodes} == {
                "node1": ["GPU-aaaa-1"],
                "node2": ["GPU-bbbb-2"],
            }
    finally:
        await asyncio.to_thread(up.stop)
