"""Tests of the generator service (hpgen) as a process: it writes its address, and stops cleanly."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hopyard._net.server import read_address
from hopyard.errors import NotFound
from hopyard.v1 import hpgen_pb2, hpgen_pb2_grpc
from tests.access import channel_as
from tests.timing import HANG_SECONDS

RUN = "import typer; from hopyard_hpgen.command import command; typer.run(command)"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_serves_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals, code: int) -> None:
    arguments = [sys.executable, "-c", RUN, "--data", str(tmp_path)]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        try:
            asyncio.run(call(address(tmp_path, process)))
            process.send_signal(number)
            _, log = process.communicate(timeout=HANG_SECONDS)
        finally:
            process.kill()
    assert process.returncode == code, log
    assert "hpgen listens on unix:" in log
    assert not (tmp_path / "hpgen.address").exists()


async def call(address: str) -> None:
    async with channel_as("service", address) as line:
        stub = hpgen_pb2_grpc.HyperparameterGeneratorServiceStub(line)
        with pytest.raises(NotFound):
            await stub.CreateJob(hpgen_pb2.CreateJobRequest(experiment="e", job="a"))


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", RUN, "--host", "0.0.0.0", "--port", "0"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)
    assert done.returncode == 1
    assert "refusing to listen on 0.0.0.0" in done.stderr
    assert "Traceback" not in done.stderr


def address(data: Path, process: subprocess.Popen[str]) -> str:
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            return read_address(data, "hpgen")
        except NotFound:
            time.sleep(0.05)
    raise AssertionError(f"hpgen did not start: {process.communicate(timeout=5)}")
