"""Downloads a snapshot: selects it, fetches it from the store or a node, verifies its hash, and unpacks it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from hopyard._runtime import snapshot_file
from hopyard._runtime.criu import PROVIDER
from hopyard.client.transfer.blobs import fetch_from_node, fetch_stored
from hopyard.client.types import Download, Job, JobState, Node, Snapshot
from hopyard.client.wire.connection import Connection
from hopyard.errors import AlreadyExists, DataLoss, NotFound, Unavailable, Unsupported

Which = Literal["best", "newest"]


def choose(job: Job, which: Which) -> Snapshot:
    """Select the snapshot to download.

    Args:
        job: The job.
        which: "best": the snapshot at the job's best position, or the newest if there is none; "newest": the snapshot
            at the highest position.

    Raises:
        NotFound: The job has no snapshot.
    """
    if not job.snapshots:
        raise NotFound(f"job {job.id} has no snapshot ({job.state.value} at position {job.position}); {_why(job)}")
    newest = max(job.snapshots, key=lambda one: one.position)
    if which == "newest":
        return newest
    return next((one for one in job.snapshots if one.position == job.best_position), newest)


def _why(job: Job) -> str:
    """Return why a job may have no snapshot, derived from its state: a clause for an error message."""
    whose = "snapshots of a script come from hopyard.report(checkpoint=...), and a log program has none"
    if job.state is JobState.COMPLETED:
        return f"it trained to its end without one: {whose}"
    if job.state in (JobState.TERMINATED, JobState.FAILED):
        return f"a job that is {job.state.value} keeps none, unless it is the experiment's best one; {whose}"
    return f"it saves one when it is suspended, when it ends, and every snapshot.every units; {whose}"


async def download(
    connection: Connection, job: Job, snapshot: Snapshot, nodes: Sequence[Node], target: Path
) -> Download:
    """Fetch a snapshot from the store or from a node, verify its hash, and unpack it.

    Args:
        connection: The connection to the cluster.
        job: The job of the snapshot.
        snapshot: The snapshot.
        nodes: The nodes of the cluster.
        target: The folder to create.

    Returns:
        The folder and the snapshot's job, position and hash. The fields about the metric are not set.

    Raises:
        Unsupported: The snapshot contains processes, which only a node can restore.
        AlreadyExists: `target` already exists.
        NotFound: Neither the store nor a node has it.
        Unavailable: The store, or the last node that may have it, is not reachable.
        DataLoss: The bytes do not match the hash.
    """
    if snapshot.provider == PROVIDER:
        raise Unsupported(
            f"the snapshot of job {job.id} at position {snapshot.position} contains its processes (provider {PROVIDER}), which only a "
            "node can restore; to download results, pass a file to hopyard.report(checkpoint=...)"
        )
    await asyncio.to_thread(_make_room, target)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
        packed = Path(scratch) / "packed"
        try:
            await fetch(connection, snapshot, nodes, packed)
        except (NotFound, DataLoss) as error:
            raise type(error)(f"the snapshot of job {job.id} at position {snapshot.position}: {error}") from error
        try:
            await asyncio.to_thread(snapshot_file.unpack, packed, target, snapshot.sha256)
        except snapshot_file.SnapshotFileError as error:
            raise DataLoss(f"snapshot {snapshot.sha256} of job {job.id}: {error}") from error
    return Download(target, job.id, snapshot.position, snapshot.sha256)


def _make_room(target: Path) -> None:
    if target.exists():
        raise AlreadyExists(f"{target} exists already; choose another folder")
    target.parent.mkdir(parents=True, exist_ok=True)


async def fetch(connection: Connection, snapshot: Snapshot, nodes: Sequence[Node], file: Path) -> None:
    """Write the packed bytes of a snapshot to `file`: from the store, else from one of `nodes` that has it.

    Raises:
        Unavailable: The store is not reachable. Or its copy is missing or damaged, and the node tried last is not reachable.
        NotFound: The store does not have the snapshot, and no node should have it or the node tried last does not have it.
        DataLoss: The bytes from the node tried last do not match the hash, or those from the store if no node should have it.
    """
    missed: NotFound | Unavailable | DataLoss
    try:
        return await fetch_stored(connection, snapshot.sha256, file)
    except (NotFound, DataLoss) as error:
        missed = error
    # A snapshot that is not uploaded yet exists only on nodes.
    for node in [node for node in nodes if node.id in snapshot.nodes]:
        try:
            return await fetch_from_node(connection, node.address, snapshot.sha256, file)
        except (NotFound, Unavailable, DataLoss) as error:
            missed = error
    raise missed
