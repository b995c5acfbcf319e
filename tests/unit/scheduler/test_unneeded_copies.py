"""Tests of which copies of snapshots on nodes are deleted: those on record at once, others after a grace."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hopyard.errors import DataLoss, Unavailable
from hopyard.policy.vocabulary import ExperimentId, StreamId
from hopyard.v1 import appstat_pb2, common_pb2, experiment_pb2
from hopyard.v1 import resource_manager_pb2 as pb
from hopyard_engine.core import Core
from hopyard_engine.core.events import StreamCreated, StreamDeleted
from hopyard_scheduler.storage.inventories import Inventories
from hopyard_scheduler.storage.unneeded_copies import UnneededCopies
from tests.unit.core.rig import settings

pytestmark = pytest.mark.quick

A, B, C, NEEDED = (letter * 64 for letter in "abcd")
GRACE = 7 * 86400.0


class Node:
    """The session of a node with these snapshots. It answers requests for inventories, and records the orders to delete."""

    node = "n"

    def __init__(self, files: Sequence[pb.SnapshotFile]) -> None:
        self.files = list(files)
        self.inventories = Inventories()
        self.deleted: list[str] = []

    def connected(self) -> list[Node]:
        return [self]

    def of(self, node: str) -> Node | None:
        return self if node == self.node else None

    def send(self, message: pb.AgentSessionResponse) -> None:
        if message.HasField("forget_snapshots"):
            self.deleted += message.forget_snapshots.sha256
            return
        wanted = message.list_snapshots
        files = [one for one in self.files if not wanted.sha256 or one.sha256 in wanted.sha256]
        self.inventories.arrived(pb.SnapshotInventory(ticket=wanted.ticket, files=files))


class Nodes:
    """The sessions of several nodes, which share one register of inventories."""

    def __init__(self, **files: Sequence[pb.SnapshotFile]) -> None:
        self.sessions = [Node(some) for some in files.values()]
        self.inventories = self.sessions[0].inventories
        for name, node in zip(files, self.sessions, strict=True):
            node.node, node.inventories = name, self.inventories

    def connected(self) -> list[Node]:
        return self.sessions

    def of(self, name: str) -> Node | None:
        return next((node for node in self.sessions if node.node == name), None)


class Tasks:
    """Keeps the background tasks that were started."""

    def __init__(self) -> None:
        self.started: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.started.append(asyncio.create_task(work, name=name))

    async def ended(self) -> None:
        """Wait until all have ended; raise the error of one that failed."""
        await asyncio.gather(*self.started)


class Database:
    """A finished experiment `over`, which needs one snapshot, and journals, which mention snapshots.

    Attributes:
        reads: The number of times that the jobs of `over` were read.
        refused: The error of reads of jobs from now on; None: they succeed.
    """

    def __init__(self, **journals: Sequence[str] | Exception) -> None:
        self.journals = journals
        self.reads = 0
        self.refused: Exception | None = None

    async def show_all(self) -> list[experiment_pb2.Experiment]:
        return [experiment_pb2.Experiment(id="over"), experiment_pb2.Experiment(id="live")]

    async def jobs(self, name: str) -> list[experiment_pb2.Job]:
        if self.refused is not None:
            raise self.refused
        if name == "live":
            return []
        self.reads += 1
        return [experiment_pb2.Job(experiment=name, id="1", snapshots=[common_pb2.Snapshot(sha256=NEEDED)])]

    async def ReadJournal(
        self, request: appstat_pb2.ReadJournalRequest
    ) -> AsyncIterator[appstat_pb2.ReadJournalResponse]:
        found = self.journals.get(request.stream, ())
        if isinstance(found, Exception):
            raise found
        for sha256 in found:
            payload = f'{{"body":{{"snapshot":{{"sha256":"{sha256}"}},"is":"SnapshotTaken"}}}}'.encode()
            yield appstat_pb2.ReadJournalResponse(records=[appstat_pb2.JournalRecord(payload=payload)])


def file(sha256: str, *experiments: str, unused: float = 60.0) -> pb.SnapshotFile:
    return pb.SnapshotFile(sha256=sha256, size_bytes=10, experiments=experiments, unused_seconds=unused)


def copies_of(
    nodes: Node | Nodes, database: Database, core: Core | None = None, tasks: Tasks | None = None
) -> UnneededCopies:
    runtime = cast("Any", SimpleNamespace(core=core or Core(), turn=asyncio.Lock()))
    base, sessions = cast("Any", database), cast("Any", nodes)
    return UnneededCopies(runtime, sessions, base, base, nodes.inventories, cast("Any", tasks), GRACE)


async def examined(node: Node, database: Database, core: Core | None = None) -> list[str]:
    """Return the snapshots that are deleted in an examination of a node."""
    await copies_of(node, database, core).examine_all()
    return node.deleted


async def test_what_the_journal_of_its_experiment_mentions_is_deleted_at_once() -> None:
    node = Node([file(A, "over"), file(B, "over"), file(NEEDED, "over")])
    assert await examined(node, Database(over=[A, NEEDED])) == [A]


async def test_what_is_newer_than_the_database_or_of_an_unknown_experiment_or_without_a_record_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = [file(A, "over"), file(B, "newer"), file(C)]
    node = Node(files)
    with caplog.at_level(logging.WARNING):
        assert await examined(node, Database(over=["e" * 64])) == []
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(
        "node n has 3 snapshots (30 bytes) that no experiment needs and of which this cluster has no record"
    )


async def test_it_is_deleted_when_it_was_not_used_for_the_grace() -> None:
    files = [file(A, "over", unused=GRACE), file(B, "newer", unused=GRACE + 1), file(C, unused=GRACE - 1)]
    assert await examined(Node(files), Database()) == [A, B]


async def test_what_is_needed_stays_however_long_it_was_not_used() -> None:
    core = live()
    core.streams[StreamId("live")].snapshots.holds = lambda sha256: sha256 == A  # type: ignore[method-assign]
    files = [file(A, "live", unused=10 * GRACE), file(NEEDED, unused=10 * GRACE)]
    assert await examined(Node(files), Database(live=[A]), core) == []


async def test_all_experiments_that_the_node_names_must_know_it() -> None:
    files = [file(A, "over", "newer"), file(B, "over", "other")]
    assert await examined(Node(files), Database(over=[A, B], other=[B])) == [B]


async def test_what_a_deleted_experiment_had_is_deleted_at_once() -> None:
    core = Core()
    core.handle(StreamDeleted(1.0, StreamId("gone"), (ExperimentId("gone"),), (), "request"))
    assert await examined(Node([file(A, "gone"), file(B, "gone", "newer")]), Database(), core) == [A]


async def test_a_damaged_journal_is_no_record() -> None:
    assert await examined(Node([file(A, "over")]), Database(over=DataLoss("record 7"))) == []


def live() -> Core:
    core = Core()
    core.handle(StreamCreated(1.0, StreamId("live"), settings(), {"bundle": ""}))
    return core


async def test_an_error_of_the_database_during_the_deletion_of_released_copies_ends_no_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core, database, tasks, node = live(), Database(), Tasks(), Node([])
    copies = copies_of(node, database, core, tasks)

    def session_of(name: str) -> Node:
        core.streams.clear()  # The experiment leaves the core, and AppStat ends, after the needs were read.
        database.refused = Unavailable("no")
        return node

    node.of = session_of  # type: ignore[method-assign,assignment]
    copies.released("n", A)
    await tasks.ended()
    assert node.deleted == []
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.endswith("because AppStat cannot be read: no")


async def test_finished_experiments_are_read_once_for_all_nodes_and_again_before_a_deletion() -> None:
    nodes, database = Nodes(n=[file(NEEDED, "over")], m=[file(NEEDED, "over")], o=[file(C)]), Database()
    await copies_of(nodes, database).examine_all()
    assert database.reads == 1
    nodes, database = Nodes(n=[file(A, "over")], m=[file(A, "over")], o=[file(NEEDED)]), Database(over=[A])
    await copies_of(nodes, database).examine_all()
    assert [node.deleted for node in nodes.sessions] == [[A], [A], []]
    assert database.reads == 2


async def test_what_an_experiment_began_to_need_during_the_examination_stays() -> None:
    database, node = Database(over=[A]), Node([file(A, "over")])
    jobs = database.jobs

    async def jobs_with_more(name: str) -> list[experiment_pb2.Job]:
        found = await jobs(name)
        if name == "over" and database.reads > 1:
            found[0].snapshots.add(sha256=A)
        return found

    database.jobs = jobs_with_more  # type: ignore[method-assign]
    assert await examined(node, database) == []


async def test_a_snapshot_without_a_record_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    tasks, node = Tasks(), Node([file(A), file(B)])
    copies = copies_of(node, Database(), tasks=tasks)
    await copies.examine_all()
    copies.found("n", B)
    await tasks.ended()
    await copies.examine_all()
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == ["node n has 2 snapshots"]
    node.files = [file(B)]
    await copies.examine_all()
    node.files = [file(A), file(B)]  # It was away, so it is named again.
    await copies.examine_all()
    assert [record.getMessage().split(" (")[0] for record in caplog.records][1:] == ["node n has 1 snapshots"]


async def test_nothing_is_deleted_while_the_database_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    assert await examined(Node([file(A, "over", unused=10 * GRACE)]), Database(over=Unavailable("no"))) == []
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.endswith("because AppStat cannot be read: no")
