"""Tests of the snapshots that are needed, while experiments are read and change."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hopyard._common.bounded_json import MAX_COUNT
from hopyard.policy.vocabulary import StreamId
from hopyard.v1 import appstat_pb2, common_pb2, experiment_pb2
from hopyard.v1 import resource_manager_pb2 as pb
from hopyard_engine.core import Core
from hopyard_engine.core.events import StreamCreated
from hopyard_scheduler.storage.garbage_collection import (
    PARTIALS,
    UNKNOWN,
    GarbageCollector,
    GarbageReport,
)
from hopyard_scheduler.storage.inventories import Inventories
from hopyard_scheduler.storage.snapshot_needs import SnapshotNeeds
from tests.unit.core.rig import settings

pytestmark = pytest.mark.quick


class Door:
    """Two finished experiments with one snapshot each; x leaves the core while the jobs of y are read."""

    def __init__(self, core: Core) -> None:
        self.core = core

    async def show_all(self) -> list[experiment_pb2.Experiment]:
        return [experiment_pb2.Experiment(id=name, group=name) for name in ("x", "y")]

    async def jobs(self, name: str) -> list[experiment_pb2.Job]:
        if name == "y":
            self.core.forget(StreamId("x"))
        return [experiment_pb2.Job(experiment=name, id="1", snapshots=[common_pb2.Snapshot(sha256=f"of {name}")])]


async def test_an_experiment_that_leaves_the_core_while_another_is_read_is_read_too() -> None:
    core = Core()
    core.handle(StreamCreated(1.0, StreamId("x"), settings(), {"bundle": ""}))
    needs = SnapshotNeeds(cast("Any", SimpleNamespace(core=core)), cast("Any", Door(core)))
    await needs.list_experiments()
    await needs.read(["x", "y"])
    assert needs.has("x", "of x")
    assert needs.held("of x")
    assert needs.has("y", "of y")
    assert not needs.has("x", "of nobody")


class Keeping:
    """A finished experiment with two jobs. Two snapshots serve only other experiments (`for_others`); `both` and `end` are results."""

    async def show_all(self) -> list[experiment_pb2.Experiment]:
        return [experiment_pb2.Experiment(id="x", group="x")]

    async def jobs(self, name: str) -> list[experiment_pb2.Job]:
        def saved(sha256: str, seconds: float | None = None) -> common_pb2.Snapshot:
            return common_pb2.Snapshot(sha256=sha256, for_others=seconds is not None, seconds_again=seconds or 0.0)

        one = [saved("branch", 4.0), saved("same", 9.0), saved("both", 2.0), saved("end")]
        return [
            experiment_pb2.Job(experiment=name, id="1", snapshots=one),
            experiment_pb2.Job(experiment=name, id="2", snapshots=[saved("same", 5.0), saved("both")]),
        ]


async def test_what_is_kept_for_others_alone_has_a_price_and_is_needed_only_while_it_is_wanted() -> None:
    commands, live = cast("Any", Keeping()), cast("Any", SimpleNamespace(core=Core()))
    for wanted in (True, False):
        needs = SnapshotNeeds(live, commands, for_others=wanted)
        await needs.list_experiments()
        await needs.read(["x"])
        assert await needs.price("x") == {"branch": 4.0, "same": 5.0}
        assert await needs.price("nobody") == {}
        assert {s for s in ("branch", "same") if needs.has("x", s)} == ({"branch", "same"} if wanted else set())
        assert needs.has("x", "both")
        assert needs.has("x", "end")
        assert needs.releases_reusable("x") is not wanted


class Empty:
    """A store without blobs, its quota, and no experiments."""

    async def show_all(self) -> list[experiment_pb2.Experiment]:
        return []

    async def ListBlobs(self, request: appstat_pb2.ListBlobsRequest) -> appstat_pb2.ListBlobsResponse:
        return appstat_pb2.ListBlobsResponse()

    async def SweepBlobs(
        self, request: appstat_pb2.SweepBlobsRequest, **limits: float
    ) -> appstat_pb2.SweepBlobsResponse:
        return appstat_pb2.SweepBlobsResponse()

    async def use(self) -> None:
        """Return no use: the store has none."""


class Lister:
    """The session of a node that answers the request for its inventory with `inventory`."""

    node = "n"

    def __init__(self, inventory: pb.SnapshotInventory) -> None:
        self.inventory = inventory
        self.inventories = Inventories()

    def connected(self) -> list[Lister]:
        return [self]

    def send(self, message: pb.AgentSessionResponse) -> None:
        self.inventory.ticket = message.list_snapshots.ticket
        self.inventories.arrived(self.inventory)


async def collected(inventory: pb.SnapshotInventory) -> GarbageReport:
    """Return what a dry run reports if a node has this inventory."""
    empty, node = cast("Any", Empty()), Lister(inventory)
    runtime = cast("Any", SimpleNamespace(core=Core(), turn=asyncio.Lock()))
    collector = GarbageCollector(runtime, cast("Any", node), empty, empty, node.inventories, empty)
    return await collector.collect(dry_run=True)


def files(size: int, count: int = 2) -> list[pb.SnapshotFile]:
    return [pb.SnapshotFile(sha256=f"{number:064x}", size_bytes=size) for number in range(count)]


async def test_the_inventory_of_a_node_is_reported() -> None:
    report = await collected(pb.SnapshotInventory(files=files(MAX_COUNT), partials=1, partial_bytes=5))
    assert report.found == {(PARTIALS, "n"): (1, 5), (UNKNOWN, "n"): (2, 2 * MAX_COUNT)}


@pytest.mark.parametrize(
    ("inventory", "found"),
    [
        (pb.SnapshotInventory(files=files(2**63 - 1)), 2**63 - 1),
        (pb.SnapshotInventory(files=files(-1)), -1),
        (pb.SnapshotInventory(partials=-3), -3),
        (pb.SnapshotInventory(partials=1, partial_bytes=MAX_COUNT + 1), MAX_COUNT + 1),
        (pb.SnapshotInventory(files=files(MAX_COUNT, 2**17)), 2**63),
    ],
    ids=["large", "negative", "negative count", "large partials", "large sum"],
)
async def test_an_inventory_with_impossible_numbers_is_ignored(
    inventory: pb.SnapshotInventory, found: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        report = await collected(inventory)
    assert not report.found
    assert report.notes == [f"node n says that {found} bytes or files lie on its disk, so its list is ignored"]
    assert [record.getMessage().startswith(report.notes[0]) for record in caplog.records] == [True]
