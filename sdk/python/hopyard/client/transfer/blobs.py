"""Uploads blobs to the store of AppStat, and downloads them from the store or from a node. The name of a blob is its SHA-256."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from hopyard.client.wire.connection import Connection
from hopyard.errors import DataLoss
from hopyard.v1 import appstat_pb2, node_agent_pb2

if TYPE_CHECKING:
    from hopyard.v1.appstat_pb2_grpc import AppStatServiceAsyncStub

M = TypeVar("M")

CHUNK_BYTES: Final = 1024 * 1024
_TRANSFER_SECONDS: Final = 3600.0

BUNDLE_OWNER: Final = "bundle"
"""Owner of the code bundles that clients upload. Clients never remove it, so bundles stay until garbage collection."""


async def has_bundle(connection: Connection, sha256: str) -> bool:
    """Return whether the store has an undamaged copy of a code bundle."""

    async def has(stub: AppStatServiceAsyncStub) -> bool:
        return sha256 in (await stub.HasBlobs(_ask(sha256), timeout=_TRANSFER_SECONDS)).sha256

    return await connection.with_appstat(has)


async def put_blob(connection: Connection, sha256: str, data: bytes) -> bool:
    """Upload a code bundle as a blob unless the store has it.

    Args:
        connection: The connection to the cluster.
        sha256: SHA-256 of `data`.
        data: The packed bundle.

    Returns:
        Whether the data was sent; False: the store had it.
    """

    async def put(stub: AppStatServiceAsyncStub) -> bool:
        if sha256 in (await stub.HasBlobs(_ask(sha256))).sha256:
            return False
        await stub.PutBlob(_requests(sha256, data), timeout=_TRANSFER_SECONDS)
        return True

    return await connection.with_appstat(put)


async def put_chunks(connection: Connection, sha256: str, owner: str, chunks: Callable[[], Iterable[bytes]]) -> None:
    """Upload a blob and register its owner, unless the store has the blob for this owner.

    Args:
        connection: The connection to the cluster.
        sha256: SHA-256 of the blob.
        owner: Name of the owner. The store keeps a blob as long as it has an owner.
        chunks: Returns the bytes from the beginning on each call (a retry calls it again), in chunks of at most 1 MiB.

    Raises:
        DataLoss: The bytes do not match the hash.
    """

    async def requests() -> AsyncIterator[appstat_pb2.PutBlobRequest]:
        yield appstat_pb2.PutBlobRequest(sha256=sha256, owner=owner)
        for chunk in chunks():
            yield appstat_pb2.PutBlobRequest(data=chunk)

    async def put(stub: AppStatServiceAsyncStub) -> None:
        there = await stub.HasBlobs(appstat_pb2.HasBlobsRequest(sha256=[sha256], owner=owner))
        if sha256 not in there.sha256:
            await stub.PutBlob(requests(), timeout=_TRANSFER_SECONDS)

    await connection.with_appstat(put)


async def fetch_stored(connection: Connection, sha256: str, file: Path) -> None:
    """Download the blob with the hash `sha256` from the store into `file`.

    Raises:
        NotFound: The store does not have it.
        DataLoss: The received bytes do not match the hash.
    """

    async def fetch(stub: AppStatServiceAsyncStub) -> None:
        stream = stub.GetBlob(appstat_pb2.GetBlobRequest(sha256=sha256), timeout=_TRANSFER_SECONDS)
        await _write(stream, lambda message: message.data, sha256, file)

    await connection.with_appstat(fetch)


async def fetch_from_node(connection: Connection, address: str, sha256: str, file: Path) -> None:
    """Download the packed snapshot with the hash `sha256` from a node's disk into `file`.

    Args:
        connection: The connection to the cluster.
        address: Address of the node agent.
        sha256: SHA-256 of the packed snapshot.
        file: The file to write.

    Raises:
        NotFound: The node does not have it.
        Unavailable: The node agent is not reachable.
        DataLoss: The received bytes do not match the hash.
    """
    stream = connection.node(address).FetchSnapshot(
        node_agent_pb2.FetchSnapshotRequest(sha256=sha256),
        timeout=_TRANSFER_SECONDS,
        metadata=await connection.ticket(address, "FetchSnapshot", sha256),
    )
    await _write(stream, lambda message: message.data, sha256, file)


async def _write(stream: AsyncIterable[M], data: Callable[[M], bytes], sha256: str, file: Path) -> None:
    digest = hashlib.sha256()
    # A blocking write of 1 MiB is short, and nothing else waits for this event loop; a thread for each chunk would be slower.
    with file.open("wb") as opened:
        async for message in stream:
            digest.update(data(message))
            opened.write(data(message))
    if digest.hexdigest() != sha256:
        raise DataLoss(
            f"the blob received for {sha256} has the hash {digest.hexdigest()}; try again, or try another copy"
        )


def _ask(sha256: str) -> appstat_pb2.HasBlobsRequest:
    return appstat_pb2.HasBlobsRequest(sha256=[sha256], owner=BUNDLE_OWNER)


async def _requests(sha256: str, data: bytes) -> AsyncIterator[appstat_pb2.PutBlobRequest]:
    yield appstat_pb2.PutBlobRequest(sha256=sha256, data=data[:CHUNK_BYTES], owner=BUNDLE_OWNER)
    for start in range(CHUNK_BYTES, len(data), CHUNK_BYTES):
        yield appstat_pb2.PutBlobRequest(data=data[start : start + CHUNK_BYTES])
