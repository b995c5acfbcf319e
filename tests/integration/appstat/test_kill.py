"""Tests of AppStat as a process: acknowledged data survives SIGKILL, and SIGTERM stops it cleanly."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hopyard._net.rpc import retry
from hopyard._net.server import address_file, read_address
from hopyard.errors import HopyardError, NotFound, Unavailable
from hopyard.v1 import appstat_pb2 as pb
from hopyard.v1 import appstat_pb2_grpc, common_pb2
from tests.access import channel_as
from tests.timing import HANG_SECONDS


@contextmanager
def appstat(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "hopyard_appstat", "--data", str(data)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def address_of(data: Path, process: subprocess.Popen[bytes]) -> str:
    async def look() -> str:
        assert process.poll() is None, "appstat has ended"
        try:
            return read_address(data, "appstat")
        except NotFound as error:
            raise Unavailable(str(error)) from error

    return await retry(look, deadline=HANG_SECONDS)


async def append_until_killed(
    stub: appstat_pb2_grpc.AppStatServiceAsyncStub, epoch: int, stream: str, acknowledged: dict[str, int]
) -> None:
    """Append records to `stream`, each with a statistic, until AppStat fails; store the last acknowledged position in the mapping."""
    position = acknowledged.get(stream, 0)
    while True:
        position += 1
        record = pb.JournalRecord(
            stream=stream, position=position, at=1.0, kind="k", payload=f"{stream}:{position}".encode() * 20
        )
        report = common_pb2.Report(position=position, metrics={"acc": position / 7})
        row = pb.Projection(statistic=pb.Statistic(experiment=stream, job="j", attempt=1, report=report))
        try:
            await stub.AppendJournal(pb.AppendJournalRequest(epoch=epoch, records=[record], projections=[row]))
        except HopyardError:
            return
        acknowledged[stream] = position


async def test_every_acknowledged_record_survives_kill_9(tmp_path: Path) -> None:
    acknowledged: dict[str, int] = {}
    streams = [f"e{number}" for number in range(8)]
    epochs: list[int] = []
    for wanted in (200, 800, 1500):
        with appstat(tmp_path) as process:
            async with channel_as("service", await address_of(tmp_path, process)) as opened:
                stub = appstat_pb2_grpc.AppStatServiceStub(opened)
                epochs.append((await stub.BeginEpoch(pb.BeginEpochRequest(holder="test"))).epoch)
                # A record that was committed but not acknowledged may follow the last acknowledged one; no acknowledged record
                # may be missing.
                listed = await stub.ListStreams(pb.ListStreamsRequest())
                lengths = {info.stream: info.length for info in listed.streams}
                for stream in streams:
                    assert acknowledged.get(stream, 0) <= lengths.get(stream, 0) <= acknowledged.get(stream, 0) + 1
                acknowledged = dict(lengths)
                work = [
                    asyncio.create_task(append_until_killed(stub, epochs[-1], stream, acknowledged))
                    for stream in streams
                ]
                while sum(acknowledged.values()) < wanted:
                    await asyncio.wait(work, timeout=0.01)
                    assert not any(task.done() for task in work)
                process.kill()
                await asyncio.gather(*work)
            process.wait()
        # Left by the killed process; a supervisor replaces it when it starts the service.
        address_file(tmp_path, "appstat").unlink()
    assert epochs == sorted(set(epochs))

    with appstat(tmp_path) as process:
        async with channel_as("service", await address_of(tmp_path, process)) as opened:
            stub = appstat_pb2_grpc.AppStatServiceStub(opened)
            for stream in streams:
                parts = [part async for part in stub.ReadJournal(pb.ReadJournalRequest(stream=stream))]
                records = [record for part in parts for record in part.records]
                assert len(records) >= acknowledged[stream]
                assert [record.position for record in records] == list(range(1, len(records) + 1))
                assert all(record.payload == f"{stream}:{record.position}".encode() * 20 for record in records)
                answer = await stub.QueryStatistics(pb.QueryStatisticsRequest(experiment=stream, page_size=10_000))
                assert [row.report.position for row in answer.statistics] == list(range(1, len(records) + 1))
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=HANG_SECONDS) == 0
    assert not address_file(tmp_path, "appstat").exists()
    assert not (tmp_path / "appstat.sqlite-wal").exists()


def test_wrong_use_is_said_in_one_line(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hopyard_appstat", "--data", str(tmp_path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)

    exposed = run("--host", "0.0.0.0")
    assert exposed.returncode == 1
    assert "refusing to listen on 0.0.0.0" in exposed.stderr
    wrong = run("--database", "mysql://u@h/d")
    assert wrong.returncode == 2
    assert "allowed are sqlite and postgresql" in wrong.stderr
    assert len(wrong.stderr.splitlines()) == 1
    assert run("--synchronous", "never").returncode == 2
