"""Tests that a dump that is not possible is refused with its reason before it changes anything, and of the space for images."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hopyard._runtime.criu import DumpRefusedError, gpu, preconditions
from hopyard._runtime.criu.binary import Criu
from hopyard._runtime.criu.image_storage import ImageFolders
from hopyard._runtime.criu.preconditions import refuse

pytestmark = pytest.mark.quick

NEW = Criu(Path("criu"), (4, 2, 1))
OLD = Criu(Path("criu"), (4, 1, 1))


def test_a_tree_with_io_uring_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {1: ["/dev/null"], 2: ["/dev/null", "anon_inode:[io_uring]"]}
    monkeypatch.setattr(preconditions, "open_files", files.__getitem__)
    monkeypatch.setattr(gpu, "open_files", files.__getitem__)
    with pytest.raises(DumpRefusedError, match=r"process 2.* uses io_uring, as torchrun .*; give hopyard.report"):
        refuse([1, 2], NEW)
    assert refuse([1], NEW) == []


CONNECTS = """
import socket

with socket.create_server(("127.0.0.1", 0)) as server:
    print("listens", flush=True)
    input()
    with socket.create_connection(server.getsockname()), server.accept()[0]:
        print("is connected", flush=True)
        input()
"""


@pytest.mark.merge
def test_open_connections_need_a_newer_criu() -> None:
    # A separate process: other tests may leave in this one things that no CRIU can dump.
    with subprocess.Popen(
        [sys.executable, "-c", CONNECTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "listens\n"
        assert refuse([process.pid], NEW) == refuse([process.pid], OLD) == []
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "is connected\n"
        assert refuse([process.pid], NEW) == []
        with pytest.raises(DumpRefusedError, match=r"open network connections, which CRIU 4\.1\.1 cannot dump"):
            refuse([process.pid], OLD)
        process.communicate("\n")


def test_the_processes_that_use_a_gpu_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {1: ["/dev/null"], 2: ["/dev/nvidiactl", "/dev/nvidia0"], 3: ["/dev/nvidia-uvm"]}
    monkeypatch.setattr(preconditions, "open_files", files.__getitem__)
    monkeypatch.setattr(gpu, "open_files", files.__getitem__)
    assert refuse([1, 2, 3], NEW) == [2, 3]


def test_images_lie_in_memory_within_the_budget_and_on_the_disk_beyond(tmp_path: Path) -> None:
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    rooms = ImageFolders(memory, 1000, disk)
    first, second = rooms.choices(700)
    assert (first.parent, second.parent) == (memory, disk)
    (first / "pages").write_bytes(bytes(500))
    assert [room.parent for room in ImageFolders(memory, 1000, disk).choices(700)] == [disk]
    rooms.free(first)
    assert [room.parent for room in ImageFolders(memory, 1000, disk).choices(700)] == [memory, disk]
    assert [room.parent for room in ImageFolders(None, 1000, disk).choices(700)] == [disk]
    assert [room.parent for room in ImageFolders(tmp_path / "gone", 1000, disk).choices(700)] == [disk]
    rooms.close()
    assert second not in set(disk.iterdir())
