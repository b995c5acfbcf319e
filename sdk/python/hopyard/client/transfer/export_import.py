"""Exports experiments of a cluster to an archive file, and imports them from one. See `hopyard.client.transfer.archive`."""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hopyard import __version__
from hopyard._net.auth.permissions import IMPORT_OWNER
from hopyard._net.rpc import retry
from hopyard._net.rpc.values import metrics_from_proto
from hopyard.client.transfer.archive import SUFFIX, ArchiveReader, ArchiveWriter
from hopyard.client.transfer.blobs import BUNDLE_OWNER, CHUNK_BYTES, fetch_stored, put_chunks
from hopyard.client.transfer.downloads import fetch
from hopyard.client.types import Experiment, ExperimentState, Exported, ImportedExperiment, Snapshot
from hopyard.client.wire import converters
from hopyard.client.wire.connection import Connection
from hopyard.errors import Aborted, AlreadyExists, Conflict, DataLoss, HopyardError, NotFound, Unavailable
from hopyard.v1 import appstat_pb2, experiment_pb2

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient
    from hopyard.v1.appstat_pb2_grpc import AppStatServiceAsyncStub

JOURNAL: Final = "journal.jsonl"
STATISTICS: Final = "statistics.jsonl"
EXPERIMENTS: Final = "experiments.json"
BUNDLES: Final = "bundles/"
SNAPSHOTS: Final = "snapshots/"

_PAGE: Final = 10_000
_HASHES: Final = 1000
_TRIES: Final = 3
_IMPORT_SECONDS: Final = 3600.0


# ------------------------------------------------------------------------------------------------------------------ out


async def write(
    client: AsyncClient, connection: Connection, experiment: Experiment, path: Path | None, snapshots: bool
) -> Exported:
    """Export an experiment, with the other experiments of its group, to an archive; see `AsyncClient.export_experiment`.

    Args:
        client: The client of the cluster.
        connection: The connection of that client.
        experiment: The experiment, which must be paused or ended.
        path: The file to create; None: a file in the current directory, named after the stream.
        snapshots: Whether to include snapshots.

    Raises:
        Conflict: An experiment of the group runs, or changed during the export.
        AlreadyExists: The file already exists.
    """
    stream = experiment.group or experiment.id
    group = await _at_rest(client, stream)
    path = path if path is not None else Path(f"{stream}{SUFFIX}")
    await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
    with ArchiveWriter(path) as archive, tempfile.TemporaryDirectory(dir=path.parent, prefix=".export.") as scratch:
        stub = await connection.appstat()
        await retry(lambda: _need_written(stub, group), deadline=connection.patience)
        events = await _write_journal(stub, archive, stream)
        archive.add(EXPERIMENTS, [_json([_plain(one) for one in group])])
        statistics = await _write_statistics(stub, archive, [one.id for one in group])
        for bundle in dict.fromkeys(one.bundle for one in group if one.bundle):
            file = Path(scratch) / "bundle"
            await fetch_stored(connection, bundle, file)
            await asyncio.to_thread(archive.add, BUNDLES + bundle, _chunks(file))
        held = _distinct([s for one in group for job in await client.jobs(one) for s in job.snapshots])
        left = await _write_snapshots(client, connection, archive, held, Path(scratch)) if snapshots else held
        if [(one.id, one.state) for one in await _at_rest(client, stream)] != [(one.id, one.state) for one in group]:
            raise Conflict(f"experiment {stream} changed during the export; pause it, and export it again")
        about = {
            "hopyard": __version__,
            "written_at": time.time(),
            "stream": stream,
            "experiments": [{"id": one.id, "name": one.name, "state": one.state.value} for one in group],
            "events": events,
            "statistics": statistics,
            "left_behind": [{"job": s.job, "position": s.position, "sha256": s.sha256} for s in left],
        }
        archive.finish(about)
    size = await asyncio.to_thread(lambda: path.stat().st_size)
    ids = tuple(one.id for one in group)
    return Exported(path, ids, size, events, statistics, len(held) - len(left), tuple(left))


async def _at_rest(client: AsyncClient, stream: str) -> list[Experiment]:
    """Return the experiments of the stream with the id `stream`, oldest first.

    Raises:
        Conflict: One of them is neither paused nor ended.
    """
    group = [one for one in reversed(await client.experiments()) if (one.group or one.id) == stream]
    for one in group:
        if not (one.state.ended or one.state is ExperimentState.PAUSED):
            others = f" (a group of {len(group)}, which is exported as one)" if len(group) > 1 else ""
            raise Conflict(
                f"experiment {one.id}{others} is {one.state.value}; only paused or ended experiments can be exported: "
                f"hopyard pause {one.id}"
            )
    return group


async def _need_written(stub: AppStatServiceAsyncStub, group: Sequence[Experiment]) -> None:
    """Raise Unavailable unless AppStat has each experiment of `group` in its current state.

    The scheduler may have a newer state than the journal for a moment; the caller retries.
    """
    missing = {(one.id, converters.EXPERIMENT_STATES.to_proto(one.state)) for one in group}
    for state in sorted({state for _, state in missing}):
        request = appstat_pb2.QueryExperimentsRequest(state=state, page_size=_PAGE)
        while True:
            page = await stub.QueryExperiments(request)
            missing.difference_update((row.id, row.state) for row in page.experiments)
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
    if missing:
        name, state = min(missing)
        wanted = converters.EXPERIMENT_STATES.from_proto(state).value
        raise Unavailable(f"the journal does not yet record that {name} is {wanted}; try the export again later")


async def _write_journal(stub: AppStatServiceAsyncStub, archive: ArchiveWriter, stream: str) -> int:
    count = 0
    with archive.member(JOURNAL) as member:
        async for response in stub.ReadJournal(appstat_pb2.ReadJournalRequest(stream=stream)):
            for record in response.records:
                head = {"position": record.position, "at": record.at, "version": record.version, "kind": record.kind}
                # Not strict JSON: numbers in payloads may be NaN.
                line = json.dumps({**head, "payload": json.loads(record.payload)}, separators=(",", ":"))
                member.write(line.encode() + b"\n")
                count += 1
    return count


async def _write_statistics(stub: AppStatServiceAsyncStub, archive: ArchiveWriter, experiments: Sequence[str]) -> int:
    count = 0
    with archive.member(STATISTICS) as member:
        for experiment in experiments:
            request = appstat_pb2.QueryStatisticsRequest(experiment=experiment, page_size=_PAGE)
            while True:
                page = await stub.QueryStatistics(request)
                for one in page.statistics:
                    member.write(_json(_statistic(one)) + b"\n")
                count += len(page.statistics)
                if not page.next_page_token:
                    break
                request.page_token = page.next_page_token
    return count


def _statistic(one: appstat_pb2.Statistic) -> dict[str, Any]:
    report = one.report
    return {
        "experiment": one.experiment,
        "job": one.job,
        "attempt": one.attempt,
        "position": report.position,
        "part": report.part,
        "metrics": metrics_from_proto(report.metrics),
        "seconds": report.seconds,
        "examples": report.examples,
        "at": report.at,
    }


async def _write_snapshots(
    client: AsyncClient, connection: Connection, archive: ArchiveWriter, held: Sequence[Snapshot], scratch: Path
) -> list[Snapshot]:
    """Write the snapshots `held` to the archive, and return those that cannot be fetched. `scratch` is a temporary folder."""
    nodes = await client.nodes() if held else []
    left = []
    for snapshot in held:
        file = scratch / "snapshot"
        try:
            await fetch(connection, snapshot, nodes, file)
        except (NotFound, Unavailable, DataLoss):
            left.append(snapshot)
            continue
        await asyncio.to_thread(archive.add, SNAPSHOTS + snapshot.sha256, _chunks(file))
    return left


def _distinct(snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    """Return one snapshot for each distinct content (SHA-256), preferably one that the store has."""
    found: dict[str, Snapshot] = {}
    for one in sorted(snapshots, key=lambda one: not one.stored):
        found.setdefault(one.sha256, one)
    return list(found.values())


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while chunk := opened.read(CHUNK_BYTES):
            yield chunk


def _plain(experiment: Experiment) -> dict[str, Any]:
    return {
        "id": experiment.id,
        "name": experiment.name,
        "state": experiment.state.value,
        "reason": experiment.reason,
        "reason_code": experiment.reason_code.value if experiment.reason_code is not None else None,
        "created_at": experiment.created_at,
        "ended_at": experiment.ended_at,
        "spec": experiment.spec,
        "bundle": experiment.bundle,
        "best_job": experiment.best_job,
        "best_value": experiment.best_value,
        "best_position": experiment.best_position,
    }


def _json(value: object) -> bytes:
    """Return a value as strict JSON in UTF-8. Numbers that are not finite become the strings "NaN", "Infinity", "-Infinity"."""
    return json.dumps(_finite(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


# ------------------------------------------------------------------------------------------------------------------- in


async def read(client: AsyncClient, connection: Connection, path: Path, name: str | None) -> ImportedExperiment:
    """Import the experiments in the archive `path`; see `AsyncClient.import_experiment`.

    Args:
        client: The client of the cluster.
        connection: The connection of that client.
        path: The archive.
        name: The id of the imported experiment; None: its original id. The experiments of a group keep their ids.

    Returns:
        The experiment, or the first one of the group, and the number of its snapshots in the store.

    Raises:
        NotFound: There is no such file.
        InvalidInput: The file is not an export, has another format version, or contains a group although `name` is given.
        DataLoss: The file is truncated or modified.
        AlreadyExists: An id of the import exists in the cluster.
    """
    # Opened without a thread: if the caller were cancelled meanwhile, nobody would close the file.
    with ArchiveReader(path) as archive:
        await asyncio.to_thread(archive.verify)
        journal = archive.manifest.members.get(JOURNAL)
        if journal is None:
            raise DataLoss(f"{path}: it is truncated or was altered: it has no {JOURNAL}; copy or export it again")
        await _need_free(client, archive, name)
        request = experiment_pb2.ImportExperimentRequest(
            journal=journal.sha256, id=name or "", request_id=uuid.uuid4().hex
        )
        # Owner of the blobs until the experiment exists. After a crash, garbage collection removes it.
        owner = f"{IMPORT_OWNER}{request.request_id}"
        try:
            await _put_all(connection, archive, owner)
            answer = await connection.call(
                lambda: connection.experiments.ImportExperiment(request, timeout=_IMPORT_SECONDS)
            )
        finally:
            await _disown(connection, archive, owner)
    return ImportedExperiment(converters.experiment(answer.experiment), answer.snapshots)


async def _need_free(client: AsyncClient, archive: ArchiveReader, name: str | None) -> None:
    """Raise AlreadyExists if the cluster has an experiment with an id of the import: `name`, else the ids in the archive.

    This check comes before the upload, since the scheduler checks the ids only after it.
    """
    given = archive.manifest.about.get("experiments", [])
    wanted = [name] if name is not None else [str(one.get("id")) for one in given if isinstance(one, dict)]
    taken = {one.id for one in await client.experiments()}
    for one in wanted:
        if one in taken:
            raise AlreadyExists(
                f"experiment {one} exists already; import it under another id: hopyard import FILE --as ID"
            )


async def _put_all(connection: Connection, archive: ArchiveReader, owner: str) -> None:
    """Upload journal, bundles and snapshots of the archive to the store, and register `owner` for them.

    Garbage collection may delete blobs before the upload is complete. Missing blobs are then uploaded again.

    Raises:
        Aborted: Blobs were still missing after the last try.
    """
    blobs = _blobs(archive)
    for _ in range(_TRIES):
        for sha256, member in blobs.items():
            if member == JOURNAL:
                await put_chunks(connection, sha256, owner, lambda: archive.packed(JOURNAL))
            else:
                whose = BUNDLE_OWNER if member.startswith(BUNDLES) else owner
                await put_chunks(connection, sha256, whose, lambda member=member: archive.unpacked(member))  # type: ignore[misc]
        if await _all_there(connection, list(blobs), owner):
            return
    raise Aborted("garbage collection deletes the uploaded data immediately; import again when it is not running")


def _blobs(archive: ArchiveReader) -> dict[str, str]:
    """Return the names of the members to upload by the SHA-256 of the bytes that are uploaded."""
    blobs = {archive.manifest.members[JOURNAL].sha256: JOURNAL}
    for member in archive.manifest.members:
        for folder in (BUNDLES, SNAPSHOTS):
            if member.startswith(folder):
                blobs[member.removeprefix(folder)] = member
    return blobs


async def _all_there(connection: Connection, hashes: Sequence[str], owner: str) -> bool:
    for start in range(0, len(hashes), _HASHES):
        request = appstat_pb2.HasBlobsRequest(sha256=hashes[start : start + _HASHES], owner=owner)
        there = await connection.with_appstat(
            lambda stub, request=request: stub.HasBlobs(request, timeout=_IMPORT_SECONDS)  # type: ignore[misc]
        )
        if len(there.sha256) != len(request.sha256):
            return False
    return True


async def _disown(connection: Connection, archive: ArchiveReader, owner: str) -> None:
    """Remove `owner` from the uploaded blobs. Errors are ignored: garbage collection removes owners of aborted imports."""
    hashes = list(_blobs(archive))
    with suppress(HopyardError):
        for start in range(0, len(hashes), _HASHES):
            request = appstat_pb2.ReleaseBlobsRequest(sha256=hashes[start : start + _HASHES], owner=owner)
            await connection.with_appstat(lambda stub, request=request: stub.ReleaseBlobs(request))  # type: ignore[misc]
