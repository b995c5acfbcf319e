"""Tests of AppStat over real gRPC, with a real SQLite file and a real folder of blobs."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard._net.server import read_address
from hopyard.errors import Aborted, Conflict, DataLoss, InvalidInput, NotFound, StaleEpoch, Unavailable
from hopyard.v1 import appstat_pb2 as pb
from hopyard.v1 import appstat_pb2_grpc, common_pb2
from hopyard.v1.experiment_pb2 import EXPERIMENT_STATE_RUNNING, Experiment, Job
from hopyard_appstat.database.writer import Writer
from hopyard_appstat.service import AppStatService
from tests.access import channel_as
from tests.damage import flip
from tests.timing import HANG_SECONDS

DATA = bytes(range(256)) * 10_000
SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[AppStatService]:
    started = AppStatService(tmp_path / "data", max_blob_bytes=10_000_000)
    await started.start()
    yield started
    await started.stop(0)


@pytest.fixture
async def stub(service: AppStatService) -> AsyncIterator[appstat_pb2_grpc.AppStatServiceAsyncStub]:
    async with channel_as("service", service.address) as opened:
        yield appstat_pb2_grpc.AppStatServiceStub(opened)


def record(position: int, stream: str = "e1") -> pb.JournalRecord:
    return pb.JournalRecord(stream=stream, position=position, at=1.0, kind="Kind", payload=b"{}")


def point(position: int, job: str = "j1", value: float = 0.5) -> pb.Projection:
    report = common_pb2.Report(position=position, metrics={"acc": value}, seconds=1.0, at=2.0)
    return pb.Projection(statistic=pb.Statistic(experiment="e1", job=job, attempt=1, report=report))


async def begin(stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> int:
    return (await stub.BeginEpoch(pb.BeginEpochRequest(holder="test"))).epoch


def with_checksum(found: pb.JournalRecord, checksum: str) -> pb.JournalRecord:
    found.checksum = checksum
    return found


async def test_journal_and_projections_through_the_wire(stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> None:
    epoch = await begin(stub)
    experiment = Experiment(id="e1", name="digits", state=EXPERIMENT_STATE_RUNNING, created_at=3.0, spec_json="{}")
    job = Job(experiment="e1", id="j1", ordinal=1, state=common_pb2.JOB_STATE_PENDING, best_value=float("inf"))
    first = point(1)
    first.statistic.report.in_force.CopyFrom(hyperparameters_to_proto({"lr": 0.1, "n": 3}))
    projections = [pb.Projection(experiment=experiment), pb.Projection(job=job), first, point(2, value=float("nan"))]
    request = pb.AppendJournalRequest(epoch=epoch, records=[record(1), record(2)], projections=projections)
    await stub.AppendJournal(request)
    await stub.AppendJournal(request)

    parts = [part async for part in stub.ReadJournal(pb.ReadJournalRequest(stream="e1"))]
    read = [r for part in parts for r in part.records]
    assert read == [with_checksum(record(number), read[number - 1].checksum) for number in (1, 2)]
    assert len({one.checksum for one in read}) == 2
    running = await stub.QueryExperiments(pb.QueryExperimentsRequest(state=EXPERIMENT_STATE_RUNNING))
    assert list(running.experiments) == [experiment]
    assert list((await stub.QueryJobs(pb.QueryJobsRequest(experiment="e1"))).jobs) == [job]
    answer = await stub.QueryStatistics(pb.QueryStatisticsRequest(experiment="e1", page_size=1))
    assert list(answer.statistics) == [first.statistic]
    token = answer.next_page_token
    answer = await stub.QueryStatistics(pb.QueryStatisticsRequest(experiment="e1", page_size=1, page_token=token))
    assert str(answer.statistics[0]) == str(point(2, value=float("nan")).statistic)
    assert answer.next_page_token == ""
    streams = await stub.ListStreams(pb.ListStreamsRequest())
    assert list(streams.streams) == [pb.StreamInfo(stream="e1", length=2)]


async def test_measured_profiles_through_the_wire(stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> None:
    measured = [
        pb.Scaling(training="t", hardware="EPYC", slots=n, seconds=8.0 / n, experiment="e1", job="1", at=2.0)
        for n in (1, 2)
    ]
    projections = [pb.Projection(scaling=one) for one in measured]
    epoch = await begin(stub)
    await stub.AppendJournal(pb.AppendJournalRequest(epoch=epoch, records=[record(1)], projections=projections))
    assert list((await stub.QueryScaling(pb.QueryScalingRequest(training="t"))).scaling) == measured


async def test_two_schedulers_cannot_both_write(stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> None:
    first, second = await begin(stub), await begin(stub)
    await stub.AppendJournal(pb.AppendJournalRequest(epoch=second, records=[record(1)]))
    with pytest.raises(StaleEpoch, match="must stop writing"):
        await stub.AppendJournal(pb.AppendJournalRequest(epoch=first, records=[record(2)]))
    with pytest.raises(Aborted, match="stands at 1"):
        await stub.AppendJournal(pb.AppendJournalRequest(epoch=second, records=[record(3)]))
    with pytest.raises(InvalidInput, match=r"projections\[0\]: found no row"):
        await stub.AppendJournal(pb.AppendJournalRequest(epoch=second, projections=[pb.Projection()]))
    bad = point(-1)
    with pytest.raises(InvalidInput, match=r"projections\[0\]\.statistic\.report\.position: found -1"):
        await stub.AppendJournal(pb.AppendJournalRequest(epoch=second, projections=[bad]))


async def test_concurrent_appends_share_commits(
    service: AppStatService, stub: appstat_pb2_grpc.AppStatServiceAsyncStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = await begin(stub)
    before = service.commits
    all_here, here = threading.Event(), 0
    do, commit = Writer.do, Writer._commit

    async def counted(writer: Writer, operation: Any) -> Any:
        nonlocal here
        here += 1
        if here == 300:
            all_here.set()
        return await do(writer, operation)

    def held(writer: Writer, operations: list[Any]) -> Any:
        """Commit only once all appends are waiting, like a slow disk."""
        assert all_here.wait(HANG_SECONDS)
        return commit(writer, operations)

    monkeypatch.setattr(Writer, "do", counted)
    monkeypatch.setattr(Writer, "_commit", held)

    async def append(number: int) -> None:
        await stub.AppendJournal(pb.AppendJournalRequest(epoch=epoch, records=[record(1, f"s{number}")]))

    await asyncio.gather(*map(append, range(300)))
    assert service.commits - before < 10


async def test_watchers_see_commits_and_learn_of_the_stop(
    service: AppStatService, stub: appstat_pb2_grpc.AppStatServiceAsyncStub
) -> None:
    epoch = await begin(stub)
    await stub.AppendJournal(pb.AppendJournalRequest(epoch=epoch, projections=[point(1)]))
    watch = stub.WatchStatistics(pb.WatchStatisticsRequest(experiment="e1"))
    replay = stub.WatchStatistics(pb.WatchStatisticsRequest(experiment="e1", job="j1", replay=True))
    assert await watch.read() == pb.WatchStatisticsResponse()
    assert await replay.read() == pb.WatchStatisticsResponse()
    assert await replay.read() == pb.WatchStatisticsResponse(statistics=[point(1).statistic])
    await stub.AppendJournal(pb.AppendJournalRequest(epoch=epoch, projections=[point(2), point(5, job="j2")]))
    both = [point(2).statistic, point(5, job="j2").statistic]
    assert await watch.read() == pb.WatchStatisticsResponse(statistics=both)
    assert await replay.read() == pb.WatchStatisticsResponse(statistics=both[:1])
    stop = asyncio.create_task(service.stop(grace=30))
    with pytest.raises(Unavailable, match="stopping"):
        await watch.read()
    with pytest.raises(Unavailable, match="stopping"):
        await replay.read()
    await stop


async def put(
    stub: appstat_pb2_grpc.AppStatServiceAsyncStub,
    data: bytes = DATA,
    sha256: str = SHA,
    step: int = 1 << 20,
    owner: str = "",
) -> int:
    async def requests() -> AsyncIterator[pb.PutBlobRequest]:
        yield pb.PutBlobRequest(sha256=sha256, data=data[:step], owner=owner)
        for start in range(step, len(data), step):
            yield pb.PutBlobRequest(data=data[start : start + step])

    return (await stub.PutBlob(requests())).size_bytes


async def get(stub: appstat_pb2_grpc.AppStatServiceAsyncStub, sha256: str = SHA) -> bytes:
    return b"".join([part.data async for part in stub.GetBlob(pb.GetBlobRequest(sha256=sha256))])


async def test_blobs_through_the_wire(stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> None:
    other = "0" * 64
    with pytest.raises(NotFound):
        await get(stub)
    with pytest.raises(DataLoss):
        await put(stub, DATA[:-1])
    assert list((await stub.HasBlobs(pb.HasBlobsRequest(sha256=[SHA, other]))).sha256) == []
    assert await put(stub) == len(DATA)
    assert await put(stub) == len(DATA)
    assert list((await stub.HasBlobs(pb.HasBlobsRequest(sha256=[SHA, other]))).sha256) == [SHA]
    assert await get(stub) == DATA
    await stub.DeleteBlobs(pb.DeleteBlobsRequest(sha256=[SHA, other]))
    assert list((await stub.HasBlobs(pb.HasBlobsRequest(sha256=[SHA]))).sha256) == []


async def test_a_blob_lives_as_long_as_somebody_needs_it(stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> None:
    await put(stub, owner="one")
    assert list((await stub.HasBlobs(pb.HasBlobsRequest(sha256=[SHA], owner="two"))).sha256) == [SHA]
    await stub.DeleteBlobs(pb.DeleteBlobsRequest(sha256=[SHA], owner="one"))
    await stub.DeleteBlobs(pb.DeleteBlobsRequest(sha256=[SHA], owner="stranger"))
    assert await get(stub) == DATA
    await stub.DeleteBlobs(pb.DeleteBlobsRequest(sha256=[SHA], owner="two"))
    assert list((await stub.HasBlobs(pb.HasBlobsRequest(sha256=[SHA]))).sha256) == []


async def test_blobs_that_are_wrong_are_refused(stub: appstat_pb2_grpc.AppStatServiceAsyncStub, tmp_path: Path) -> None:
    trick = "../../" + SHA[6:]
    with pytest.raises(InvalidInput, match="64 digits"):
        await put(stub, sha256=trick)
    with pytest.raises(InvalidInput, match="64 digits"):
        await get(stub, trick)
    with pytest.raises(InvalidInput, match="64 digits"):
        await stub.HasBlobs(pb.HasBlobsRequest(sha256=[trick]))
    with pytest.raises(InvalidInput, match="64 digits"):
        await stub.DeleteBlobs(pb.DeleteBlobsRequest(sha256=[trick]))
    with pytest.raises(InvalidInput, match="allowed are 1048576"):
        await put(stub, step=(1 << 20) + 1)
    with pytest.raises(InvalidInput, match="allowed are 1000"):
        await stub.HasBlobs(pb.HasBlobsRequest(sha256=[SHA] * 1001))
    with pytest.raises(InvalidInput, match="found no message"):
        await stub.PutBlob(nothing())
    assert list((tmp_path / "data" / "incoming").iterdir()) == []


async def nothing() -> AsyncIterator[pb.PutBlobRequest]:
    for number in range(0):
        yield pb.PutBlobRequest(sha256=str(number))


async def test_a_flipped_bit_is_data_loss(stub: appstat_pb2_grpc.AppStatServiceAsyncStub, tmp_path: Path) -> None:
    await put(stub)
    file = tmp_path / "data" / "store" / SHA[:2] / SHA
    flip(file)
    with pytest.raises(DataLoss, match="damaged"):
        await get(stub)
    await put(stub)
    assert await get(stub) == DATA


async def test_a_data_folder_has_one_appstat_and_is_reopened(service: AppStatService, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert read_address(data, "appstat") == service.address
    second = AppStatService(data)
    with pytest.raises(Conflict, match=rf"another appstat \(process {os.getpid()}\) uses this data folder"):
        await second.start()
    assert read_address(data, "appstat") == service.address
    async with channel_as("service", service.address) as opened:
        stub = appstat_pb2_grpc.AppStatServiceStub(opened)
        epoch = await begin(stub)
        await stub.AppendJournal(pb.AppendJournalRequest(epoch=epoch, records=[record(1)]))
    await service.stop()
    assert not (data / "appstat.address").exists()
    again = AppStatService(data)
    async with channel_as("service", await again.start()) as opened:
        stub = appstat_pb2_grpc.AppStatServiceStub(opened)
        assert await begin(stub) == epoch + 1
        streams = await stub.ListStreams(pb.ListStreamsRequest())
        assert list(streams.streams) == [pb.StreamInfo(stream="e1", length=1)]
    await again.stop()


async def test_an_import_through_the_wire_is_whole_or_not_at_all(
    stub: appstat_pb2_grpc.AppStatServiceAsyncStub, service: AppStatService, tmp_path: Path
) -> None:
    epoch = await begin(stub)

    async def imported(*messages: pb.ImportJournalRequest, cut: bool = False) -> None:
        call = stub.ImportJournal()
        for message in messages:
            await call.write(message)
        if cut:
            call.cancel()
        else:
            await call.done_writing()
            await call

    first = pb.ImportJournalRequest(epoch=epoch, records=[record(1), record(2)], projections=[point(1)])
    second = pb.ImportJournalRequest(records=[record(3)], projections=[point(2)])
    last = pb.ImportJournalRequest(complete=True)
    await imported(first, second, cut=True)
    with pytest.raises(InvalidInput, match="does not say that it is complete"):
        await imported(first, second)
    with pytest.raises(InvalidInput, match=r"projections\[0\]: found no row"):
        await imported(first, pb.ImportJournalRequest(projections=[pb.Projection()]), last)
    assert not (await stub.ListStreams(pb.ListStreamsRequest())).streams
    commits = service.commits
    for _ in range(2):
        await imported(first, second, last)
    assert service.commits == commits + 2
    assert [s.length for s in (await stub.ListStreams(pb.ListStreamsRequest())).streams] == [3]
    found = await stub.QueryStatistics(pb.QueryStatisticsRequest(experiment="e1"))
    assert [s.report.position for s in found.statistics] == [1, 2]
    await stub.AppendJournal(pb.AppendJournalRequest(epoch=epoch, records=[record(4)]))
    with pytest.raises(Conflict, match="was never begun"):
        await imported(pb.ImportJournalRequest(epoch=epoch + 1, records=[record(1, "e2")]), last)
