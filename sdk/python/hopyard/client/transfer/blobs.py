"""Bytes by their hash: into AppStat's store and out of it, or from a node that holds a snapshot."""

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
"""Who needs the code bundles that clients put: they stay."""


async def put_blob(connection: Connection, sha256: str, data: bytes) -> bool:
    """Put a code bundle into the store unless it is there.

    Returns:
        Whether they had to be sent.
    """

    async def put(stub: AppStatServiceAsyncStub) -> bool:
        there = await stub.HasBlobs(appstat_pb2.HasBlobsRequest(sha256=[sha256], owner=BUNDLE_OWNER))
        if sha256 in there.sha256:
            return False
        await stub.PutBlob(_requests(sha256, data), timeout=_TRANSFER_SECONDS)
        return True

    return await connection.with_appstat(put)


async def put_chunks(connection: Connection, sha256: str, owner: str, chunks: Callable[[], Iterable[bytes]]) -> None:
    """Put a blob for an owner unless it is there.

    Args:
        connection: Where to.
        sha256: Its hash.
        owner: Who needs it.
        chunks: Its bytes from the beginning, each time it is called; a chunk is at most 1 MiB.

    Raises:
        DataLoss: The bytes do not have that hash.
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
    """Write the blob under `sha256` to `file`.

    Raises:
        NotFound: The store does not hold it.
        DataLoss: What came does not have that hash.
    """

    async def fetch(stub: AppStatServiceAsyncStub) -> None:
        stream = stub.GetBlob(appstat_pb2.GetBlobRequest(sha256=sha256), timeout=_TRANSFER_SECONDS)
        await _write(stream, lambda message: message.data, sha256, file)

    await connection.with_appstat(fetch)


async def fetch_from_node(connection: Connection, address: str, sha256: str, file: Path) -> None:
    """Write the snapshot `sha256` that a node holds on its disk to `file`; raises like `fetch_stored`."""
    stream = connection.node(address).FetchSnapshot(
        node_agent_pb2.FetchSnapshotRequest(sha256=sha256), timeout=_TRANSFER_SECONDS
    )
    await _write(stream, lambda message: message.data, sha256, file)


async def _write(stream: AsyncIterable[M], data: Callable[[M], bytes], sha256: str, file: Path) -> None:
    digest = hashlib.sha256()
    # Chunks are at most 1 MiB and a client has nothing else to do meanwhile: a thread a chunk would only cost time.
    with file.open("wb") as opened:
        async for message in stream:
            digest.update(data(message))
            opened.write(data(message))
    if digest.hexdigest() != sha256:
        raise DataLoss(f"what came for {sha256} has the hash {digest.hexdigest()}; try again, or another copy")


async def _requests(sha256: str, data: bytes) -> AsyncIterator[appstat_pb2.PutBlobRequest]:
    yield appstat_pb2.PutBlobRequest(sha256=sha256, data=data[:CHUNK_BYTES], owner=BUNDLE_OWNER)
    for start in range(CHUNK_BYTES, len(data), CHUNK_BYTES):
        yield appstat_pb2.PutBlobRequest(data=data[start : start + CHUNK_BYTES])
