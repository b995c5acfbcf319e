"""Tests of a snapshot's fetch during the start of its process: `beside` ends with its block, and the process receives the result."""

from __future__ import annotations

import asyncio

import pytest

from hopyard.errors import NotFound, Unavailable
from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import application_pb2, resource_manager_pb2
from hopyard_nodeagent.runs.run import NodeRun
from hopyard_nodeagent.snapshots.fetch import SnapshotMissing, announced, beside
from hopyard_nodeagent.snapshots.transfers import Fetched

pytestmark = pytest.mark.quick


class Told(NodeRun):
    """A run that records the commands to its process in `told`."""

    def __init__(self) -> None:
        super().__init__(RunKey(StreamId("e"), "j", 1, 0), resource_manager_pb2.StartRun(), "n", clock=lambda: 0.0)
        self.told: list[application_pb2.AttachResponse] = []

    def tell(self, command: application_pb2.AttachResponse) -> None:
        self.told.append(command)


async def test_what_is_not_over_when_the_inside_ends_is_cancelled_and_waited_for() -> None:
    ended = []

    async def lasts() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    async def inside() -> None:
        async with beside(lasts()):
            await asyncio.sleep(0)
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        await inside()
    assert ended


@pytest.mark.parametrize(
    ("error", "rises"),
    [
        (NotFound("nobody has it"), SnapshotMissing),
        (Unavailable("it breaks"), Unavailable),
        (RuntimeError(), RuntimeError),  # a defect, without a message
    ],
)
async def test_the_process_hears_why_its_snapshot_does_not_come(error: Exception, rises: type[Exception]) -> None:
    async def fails() -> Fetched:
        raise error

    run = Told()
    async with beside(fails()) as fetching:
        with pytest.raises(rises):
            await announced(run, fetching)
    assert [one.snapshot_arrival.error for one in run.told] == [str(error) or "RuntimeError()"]


@pytest.mark.parametrize("size", [0, 7])
async def test_what_came_over_the_network_was_verified_there(size: int) -> None:
    async def comes() -> Fetched:
        return Fetched(size)

    run = Told()
    async with beside(comes()) as fetching:
        await announced(run, fetching)
    assert run.fetched.size == size
    assert [one.snapshot_arrival for one in run.told] == [application_pb2.SnapshotArrival(verified=size > 0)]
