"""Tests of dump and restore of real processes: with a simulated GPU driver, and with programs that cannot be dumped."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from hopyard._runtime.criu import DumpFailedError, DumpRefusedError, RestoreFailedError, gpu, procfs
from hopyard._runtime.criu.binary import look
from hopyard._runtime.criu.image_storage import ImageFolders
from hopyard._runtime.criu.process_group import MOUNT, DumpableJob
from tests.conftest import require_criu
from tests.timing import HANG_SECONDS
from tests.unit.criu.test_gpu import Recorder

COUNT = """
import sys, time
for i in range(100000):
    print(i, flush=True)
    time.sleep(0.01)
"""

Make = Callable[..., DumpableJob]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """A factory of dumpable jobs; closes them at the end and checks that no process is left."""
    criu = look(require_criu())
    made: list[DumpableJob] = []

    def one(driver: gpu.Driver | None = None, rooms: ImageFolders | None = None) -> DumpableJob:
        folder = tmp_path / f"job.{uuid.uuid4().hex}"
        made.append(DumpableJob(criu, folder, rooms or ImageFolders(None, 0, tmp_path), driver))
        return made[-1]

    yield one
    for job in made:
        job.close()
        assert not [pid for pid in procfs.mounted(MOUNT, job.folder.name) if procfs.running(pid)]


def begin(job: DumpableJob, code: str, *arguments: str) -> None:
    job.folder.mkdir()
    (job.folder / "run.py").write_text(textwrap.dedent(code))
    job.start([sys.executable, "run.py", *arguments], MOUNT, os.environ)


def printed(job: DumpableJob, least: int) -> list[str]:
    """Wait until the job has printed at least `least` lines, and return all lines."""
    until = time.monotonic() + HANG_SECONDS
    while len(lines := (job.folder / "output").read_text().splitlines()) < least:
        assert time.monotonic() < until, f"it printed only {lines}"
        assert job.poll() is None, lines
        time.sleep(0.01)
    return lines


def test_gpus_are_let_go_before_a_dump_and_taken_again_when_the_processes_go_on(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Recorder()
    first = make(driver)
    begin(first, COUNT)
    printed(first, 2)
    monkeypatch.setattr(gpu, "users", list)
    pid = first.pid()
    info = first.dump(tmp_path / "packed", {"kept": 1}, stopped=False, pending={})
    assert driver.calls == [f"lock {pid}", f"checkpoint {pid}"]
    still = len(printed(first, 1))
    first.proceed()
    assert driver.calls[2:] == [f"restore {pid}", f"unlock {pid}"]
    printed(first, still + 1)
    driver.calls.clear()
    second = make(driver)
    assert second.restore(tmp_path / "packed", info.sha256) == ({"kept": 1}, False)
    assert driver.calls == [f"restore {second.pid()}", f"unlock {second.pid()}"]
    printed(second, still + 1)


def test_a_gpu_that_is_not_let_go_leaves_the_job_running(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make(Recorder())
    begin(job, COUNT)
    printed(job, 2)
    monkeypatch.setattr(gpu, "users", list)
    job._driver = Recorder(f"checkpoint {job.pid()}")
    with pytest.raises(DumpFailedError, match="cannot release its GPU"):
        job.dump(tmp_path / "packed", {}, stopped=False, pending={})
    printed(job, len(printed(job, 1)) + 2)


def test_a_tree_with_io_uring_is_refused_and_goes_on(make: Make, tmp_path: Path) -> None:
    if ctypes.CDLL(None, use_errno=True).syscall(425, 1, ctypes.create_string_buffer(120)) < 0:
        pytest.skip(f"this kernel gives no io_uring: {os.strerror(ctypes.get_errno())}")
    job = make()
    ring = "import ctypes\nassert ctypes.CDLL(None).syscall(425, 1, ctypes.create_string_buffer(120)) >= 0\n"
    begin(job, ring + COUNT)
    printed(job, 2)
    with pytest.raises(DumpRefusedError, match="uses io_uring, as torchrun"):
        job.dump(tmp_path / "packed", {}, stopped=False, pending={})
    printed(job, len(printed(job, 1)) + 2)


def test_a_program_that_ends_keeps_its_exit_code_through_a_snapshot(make: Make, tmp_path: Path) -> None:
    for code in (0, 3):
        job = make()
        begin(job, f"raise SystemExit({code})")
        until = time.monotonic() + HANG_SECONDS
        while job.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.01)
        info = job.dump(tmp_path / "packed", {}, stopped=False, pending={})
        again = make()
        again.restore(tmp_path / "packed", info.sha256)
        assert again.poll() == code


def test_a_restore_that_lost_a_process_fails_and_leaves_none(make: Make, tmp_path: Path) -> None:
    first = make()
    begin(first, 'import subprocess\nchild = subprocess.Popen(["sleep", "1000"])\n' + COUNT)
    printed(first, 2)
    first.signal(signal.SIGSTOP)
    info = first.dump(tmp_path / "packed", {}, stopped=True, pending={})
    whole = make()
    assert whole.restore(tmp_path / "packed", info.sha256) == ({}, True)
    assert [procfs.name(pid).split()[-1] for pid in procfs.tree(whole.pid())] == ["(python)", "(sleep)"]
    tool = tmp_path / "criu"
    tool.write_text(
        f"""#!/bin/sh
        {require_criu()} "$@" || exit
        case "$*" in *--pidfile*)
          for child in $(cat /proc/$(cat $(echo "$*" | sed 's/.*--pidfile \\([^ ]*\\).*/\\1/'))/task/*/children); do
            kill -9 $child
            until grep -q '^State:.Z' /proc/$child/status; do :; done
          done
        esac
        """
    )
    tool.chmod(0o755)
    lossy = make()
    lossy._criu = look(tool)
    with pytest.raises(
        RestoreFailedError, match=r"^the process could not be restored: process \d+ \(sleep\) is missing$"
    ):
        lossy.restore(tmp_path / "packed", info.sha256)
    assert not [pid for pid in procfs.mounted(MOUNT, lossy.folder.name) if procfs.running(pid)]


def test_a_restore_for_which_memory_is_too_small_goes_through_the_disk(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make()
    begin(job, COUNT)
    said = len(printed(job, 2))
    info = job.dump(tmp_path / "packed", {}, stopped=False, pending={})
    job.kill()
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
    try:
        monkeypatch.setattr(ImageFolders, "_fits", lambda rooms, memory, size: True)  # The image is expected to fit.
        again = make(rooms=ImageFolders(small, 1 << 40, tmp_path))
        again.restore(tmp_path / "packed", info.sha256)
        assert len(printed(again, said + 2)) >= said + 2
        assert not os.listdir(small)
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)


CALLS = """
import sys, time, grpc

channel = grpc.insecure_channel(sys.argv[1], [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 100)])
call = channel.unary_unary("/test/Count")
while True:
    try:
        print("said", call(b"", timeout=5).decode(), flush=True)
    except grpc.RpcError as error:
        print("failed", error.code().name, flush=True)
    time.sleep(0.05)
"""


class Counting(grpc.GenericRpcHandler):
    """A gRPC handler that answers each call with the number of calls so far."""

    def __init__(self) -> None:
        self.calls = 0

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            self.calls += 1
            return str(self.calls).encode()

        return grpc.unary_unary_rpc_method_handler(answer)


def test_a_connection_by_grpc_is_closed_by_a_dump_and_made_anew_by_the_program(make: Make, tmp_path: Path) -> None:
    server = grpc.server(ThreadPoolExecutor(2), handlers=[Counting()])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        job = make()
        begin(job, CALLS, address)
        printed(job, 3)
        info = job.dump(tmp_path / "packed", {}, stopped=False, pending={})
        before = len(printed(job, 3))
        job.kill()
        again = make()
        again.restore(tmp_path / "packed", info.sha256)
        until = time.monotonic() + HANG_SECONDS
        while not (lines := printed(again, before + 1))[-1].startswith("said"):
            assert time.monotonic() < until, lines
            time.sleep(0.01)
        numbers = [int(line.split()[1]) for line in lines if line.startswith("said")]
        assert numbers == sorted(set(numbers))
    finally:
        server.stop(None).wait()


def test_how_a_restored_program_ends_is_known(make: Make, tmp_path: Path) -> None:
    job = make()
    begin(job, COUNT)
    printed(job, 2)
    info = job.dump(tmp_path / "packed", {}, stopped=False, pending={})
    again = make()
    again.restore(tmp_path / "packed", info.sha256)
    procfs.kill([again.pid()], signal.SIGKILL)
    until = time.monotonic() + HANG_SECONDS
    while again.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert again.poll() == -signal.SIGKILL
