"""Tests that processes of an earlier agent are ended, and no other processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

import psutil
import pytest

from hopyard._runtime.criu import procfs
from hopyard._runtime.processes.process_family import MARK
from hopyard_nodeagent.runs.orphan_processes import OrphanRegistry
from tests.timing import HANG_SECONDS


def sleeper(command: str = "exec sleep 600") -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sh", "-c", command], start_new_session=True, stdout=subprocess.PIPE)


def test_a_process_that_was_left_is_ended_with_its_session(tmp_path: Path) -> None:
    first = sleeper("sleep 600 & echo $!; wait")
    assert first.stdout is not None
    children = [psutil.Process(int(first.stdout.readline()))]
    OrphanRegistry(tmp_path).note(first.pid, "")
    OrphanRegistry(tmp_path).end_all()
    assert first.wait(HANG_SECONDS) == -9
    psutil.wait_procs(children, timeout=HANG_SECONDS)
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
    assert list(tmp_path.iterdir()) == []
    first.stdout.close()


def test_it_is_over_when_what_was_left_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the end waits for the killed process: until it is gone, it has the memory of its GPU."""
    left = sleeper()
    OrphanRegistry(tmp_path).note(left.pid, "")
    dying = threading.Timer(0.2, os.kill, (left.pid, signal.SIGKILL))
    dies = iter([dying.start])
    monkeypatch.setattr(os, "kill", lambda pid, number: next(dies, lambda: None)())
    OrphanRegistry(tmp_path).end_all()
    ran = procfs.running(left.pid)
    left.communicate()
    assert not ran


def test_what_has_ended_is_forgotten_and_other_processes_live(tmp_path: Path) -> None:
    leftovers = OrphanRegistry(tmp_path)
    other = sleeper()
    try:
        leftovers.note(other.pid, "")
        leftovers.forget(other.pid)
        assert list(tmp_path.iterdir()) == []
        began = psutil.Process(other.pid).create_time()
        for noted in ({"host": socket.gethostname(), "began": began - 100}, {"host": "elsewhere", "began": began}):
            (tmp_path / str(other.pid)).write_text(json.dumps({**noted, "mark": ""}))
            leftovers.end_all()
        (tmp_path / "12").write_text('{"host"')
        leftovers.end_all()
        assert other.poll() is None
        assert list(tmp_path.iterdir()) == []
    finally:
        other.kill()
        other.communicate()
    leftovers.note(other.pid, "")
    assert list(tmp_path.iterdir()) == []


def test_a_process_whose_agent_died_before_it_knew_its_number_is_ended(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo up; exec sleep 600"]
    left, other = (
        subprocess.Popen(command, env={MARK: mark}, start_new_session=True, stdout=subprocess.PIPE)
        for mark in ("mine", "another")
    )
    assert left.stdout is not None
    assert other.stdout is not None
    try:
        assert (left.stdout.readline(), other.stdout.readline()) == (b"up\n", b"up\n")
        killed = OrphanRegistry(tmp_path).starting("mine")
        killed.__enter__()  # the agent dies before it leaves the context
        OrphanRegistry(tmp_path).end_all()
        assert left.wait(HANG_SECONDS) == -9
        assert other.poll() is None
        assert list(tmp_path.iterdir()) == []
    finally:
        for process in (left, other):
            process.kill()
            process.communicate()
