"""Fixtures: a whole cluster in the test's event loop, in which only the runners are separate processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.v1 import (
    experiment_pb2_grpc,
    job_manager_pb2_grpc,
    resource_manager_pb2,
    resource_manager_pb2_grpc,
)
from hopyard_appstat.service import AppStatService
from hopyard_hpgen.service import HpgenService
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.settings import AgentSettings, SlotSettings
from hopyard_scheduler.service import SchedulerService
from tests.access import channel_as
from tests.timing import HANG_SECONDS, scaled

TRAINER = '''
import json, os, time
from hopyard.trainer import Trainer


class Counter(Trainer):
    """Counts; its accuracy is a function of its position and of x. From the position `free` on it is slow, until its gate is opened."""

    def setup(self, hp, changed):
        self.x = hp["x"]
        self.pace = hp.get("pace", 0.0)
        self.gate = hp.get("gate")

    def train(self):
        time.sleep(self.pace)
        if self.gate is not None and self.position >= self.gate["free"]:
            end = time.monotonic() + self.gate["slow"]
            while time.monotonic() < end and not os.path.exists(self.gate["file"]):
                time.sleep(0.02)
        return {"accuracy": self.x * (self.position + 1)}

    def save(self, folder):
        (folder / "state.json").write_text(json.dumps({"x": self.x}))

    def load(self, folder):
        json.loads((folder / "state.json").read_text())
'''

EXPERIMENT = """
name: counting
trainer: train.py:Counter
metric: {{name: accuracy, mode: max}}
space: {{x: {{uniform: [0.0, 1.0]}}, pace: {pace}{gate}}}
stop: {{jobs: {jobs}, max_iterations: {length}}}
{more}
"""


@dataclass
class Stubs:
    """Stubs of the scheduler's services."""

    experiments: experiment_pb2_grpc.ExperimentServiceAsyncStub
    jobs: job_manager_pb2_grpc.JobManagerServiceAsyncStub
    slots: resource_manager_pb2_grpc.ResourceManagerServiceAsyncStub


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[str]:
    """Context manager of a scheduler with one node of two slots; yields its address."""
    appstat = AppStatService(data=folder / "appstat")
    hpgen = HpgenService()
    scheduler = SchedulerService(appstat=await appstat.start(), hpgen=await hpgen.start())
    found = await scheduler.start()
    slots = (SlotSettings(id="n/0", cpus=1), SlotSettings(id="n/1", cpus=1))
    agent = NodeAgent(AgentSettings(node="n", scheduler=found, data=folder / "agent", slots=slots))
    await agent.start()
    try:
        await _joined(found)
        yield found
    finally:
        await agent.stop()
        await scheduler.stop(1)
        await hpgen.stop(1)
        await appstat.stop(1)


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    """The address of a scheduler with one node of two slots."""
    async with running(tmp_path) as found:
        yield found


async def _joined(scheduler: str) -> None:
    async with channel_as("user", scheduler) as opened, asyncio.timeout(HANG_SECONDS):
        stub: resource_manager_pb2_grpc.ResourceManagerServiceAsyncStub
        stub = resource_manager_pb2_grpc.ResourceManagerServiceStub(opened)
        while not (await stub.ListNodes(resource_manager_pb2.ListNodesRequest())).nodes:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


@pytest.fixture
async def client(address: str) -> AsyncIterator[AsyncClient]:
    """A client of the scheduler at `address`."""
    async with AsyncClient(server=address) as found:
        yield found


@pytest.fixture
async def stubs(address: str) -> AsyncIterator[Stubs]:
    """Stubs of the services of the scheduler at `address`."""
    async with channel_as("user", address) as opened:
        yield Stubs(
            experiment_pb2_grpc.ExperimentServiceStub(opened),
            job_manager_pb2_grpc.JobManagerServiceStub(opened),
            resource_manager_pb2_grpc.ResourceManagerServiceStub(opened),
        )


def experiment(
    folder: Path,
    *,
    jobs: int = 3,
    length: int = 4,
    pace: float = 0.0,
    more: str = "",
    free: int | None = None,
    slow: float = 1.0,
) -> Path:
    """Write an experiment file and its trainer into `folder`, and return the file.

    From position `free` on, each iteration takes `slow` seconds, scaled to the speed of the host, until the test calls `let_go`.
    Until then a test can observe and change the running experiment.
    """
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(TRAINER)
    file = folder / "experiment.yaml"
    constant = json.dumps({"file": str(folder / "gate"), "free": free, "slow": scaled(slow)})
    gate = "" if free is None else f", gate: {{constant: {constant}}}"
    file.write_text(EXPERIMENT.format(jobs=jobs, length=length, pace=pace, more=more, gate=gate))
    return file


def let_go(file: Path) -> None:
    """Let the experiment train at full speed from now on."""
    (file.parent / "gate").touch()
