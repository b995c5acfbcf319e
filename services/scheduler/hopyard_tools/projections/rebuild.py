"""Writes the rows of AppStat again from the journal, in the data directory of a cluster that does not run."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hopyard._common.plugins import load_plugin
from hopyard._net.auth import CallerKind, find_token
from hopyard._net.rpc import channel
from hopyard._net.server.embedded import SERVICES
from hopyard.client.local_cluster.data_dir_lock import DataLock, has_data
from hopyard.errors import Conflict, DataLoss, HopyardError, NotFound
from hopyard.v1 import appstat_pb2
from hopyard.v1.appstat_pb2_grpc import AppStatServiceStub
from hopyard_tools.projections.stream_check import StreamCheck, check_all, check_stream

if TYPE_CHECKING:
    from hopyard.v1.appstat_pb2_grpc import AppStatServiceAsyncStub

_PART_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Rebuild:
    """What a rebuild changes.

    Attributes:
        changed: The streams whose rows differ from the journal, with the differences, but without the rows.
        equal: Ids of the streams whose rows do not differ.
        damaged: The streams whose journal cannot be read. They are not rebuilt.
        written: Whether the rows were written.
    """

    changed: tuple[StreamCheck, ...]
    equal: tuple[str, ...]
    damaged: tuple[StreamCheck, ...]
    written: bool = False


async def rebuild_rows(data: Path, names: Sequence[str], agree: Callable[[Rebuild], bool]) -> Rebuild:
    """Compare the rows of streams with the journal, and write those of streams with differences again, in one transaction.

    The data directory is locked meanwhile, and a new epoch begins before rows are written, so that a scheduler elsewhere ends.

    Args:
        data: The data directory.
        names: Ids or names of experiments; empty: all experiments. An experiment of a group stands for its group.
        agree: Called with what would change, if anything would. Nothing is written if it returns False.

    Raises:
        Conflict: A cluster runs in the directory. The message names its process.
        NotFound: No cluster has run in the directory, or there is no such experiment.
        DataLoss: The database is damaged.
    """
    if not has_data(data):
        raise NotFound(f"{data}: no cluster has run here, so there is nothing to rebuild; name another with --data")
    try:
        lock = DataLock.acquire(data, "hopyard doctor --rebuild")
    except Conflict as error:
        raise Conflict(f"{error}; --rebuild needs a cluster that does not run") from error
    try:
        async with _appstat(data) as stub:
            # The rows of all streams may need much memory: they are made again when they are written.
            checks = [one.without_rows() async for one in check_all(stub)]
            for name in names:
                if not any(one.is_named(name) for one in checks):
                    known = (
                        ", ".join(sorted(one for each in checks for one in each.experiments or (each.stream,)))
                        or "none"
                    )
                    raise NotFound(f"there is no experiment {name!r}; there are: {known}")
            wanted = [one for one in checks if not names or any(one.is_named(name) for name in names)]
            plan = Rebuild(
                tuple(one for one in wanted if one.differences),
                tuple(one.stream for one in wanted if not (one.differences or one.damage)),
                tuple(one for one in wanted if one.damage),
            )
            if not plan.changed or not agree(plan):
                return plan
            holder = f"hopyard doctor --rebuild on {socket.gethostname()}:{os.getpid()}"
            begun = await stub.BeginEpoch(appstat_pb2.BeginEpochRequest(holder=holder))
            await _replace(stub, begun.epoch, plan.changed)
            return Rebuild(plan.changed, plan.equal, plan.damaged, written=True)
    finally:
        lock.release()


@asynccontextmanager
async def _appstat(data: Path) -> AsyncIterator[AppStatServiceAsyncStub]:
    """Run AppStat in this process while the context is open, and yield a client of it that may write."""
    make: Any = load_plugin(SERVICES, "appstat")
    service = make(data=data)
    address = await service.start()
    try:
        async with channel(address, token=partial(find_token, CallerKind.SERVICE, address, data)) as opened:
            yield AppStatServiceStub(opened)
    finally:
        await service.stop()


async def _replace(stub: AppStatServiceAsyncStub, epoch: int, checks: Sequence[StreamCheck]) -> None:
    """Replace the rows of streams with those that follow from their journals, in one transaction.

    The rows of one stream at a time are in memory. If a stream has changed since its check, AppStat refuses the request.
    """
    failures: list[HopyardError] = []

    async def messages() -> AsyncIterator[appstat_pb2.ReplaceProjectionsRequest]:
        try:
            async for message in _messages(stub, epoch, checks):
                yield message
        except HopyardError as error:  # AppStat writes nothing, because the request is not complete.
            failures.append(error)

    try:
        await stub.ReplaceProjections(messages())
    except HopyardError as error:
        raise (failures or [error])[0] from None


async def _messages(
    stub: AppStatServiceAsyncStub, epoch: int, checks: Sequence[StreamCheck]
) -> AsyncIterator[appstat_pb2.ReplaceProjectionsRequest]:
    """Yield the request that replaces the rows of streams, in parts."""
    part = appstat_pb2.ReplaceProjectionsRequest(epoch=epoch)
    for one in checks:
        part.streams.add(stream=one.stream, length=one.length, experiments=one.experiments)
    size = 0
    for checked in checks:
        one = await check_stream(stub, checked.stream)
        if one.damage:
            raise DataLoss(one.damage)
        for key, row in one.rows.items():
            other = one.found.get(key)
            foreign = other is not None and key[0] == "scaling" and other.scaling.experiment not in one.experiments
            if foreign and other is not None and other.scaling.at >= row.scaling.at:
                continue  # Another experiment has measured it since.
            part.projections.append(row)
            size += row.ByteSize()
            if size > _PART_BYTES:
                yield part
                part, size = appstat_pb2.ReplaceProjectionsRequest(), 0
    part.complete = True
    yield part
