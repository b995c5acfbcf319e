"""Tests that another user of the computer can connect to no socket of a cluster, and cannot take the place of a service."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hopyard.client import Client
from tests.conftest import require_system_package
from tests.e2e.up import IS_UP, Up
from tests.timing import HANG_SECONDS

NOBODY = 65534

CONNECT = """
import socket, sys
for path in sys.stdin.read().split():
    one = socket.socket(socket.AF_UNIX)
    try:
        one.connect(path)
        print("connected to", path)
    except OSError as error:
        print(type(error).__name__, path)
"""

STEAL = """
import os, socket, sys
path = sys.stdin.read()
for act in (os.unlink, socket.socket(socket.AF_UNIX).bind):
    try:
        act(path)
    except OSError as error:
        print(type(error).__name__)
"""


def as_nobody(code: str, paths: list[Path]) -> list[str]:
    """Run Python code as another user, with paths as its input, and return the lines of its output."""
    setpriv = require_system_package("util-linux", "setpriv")
    python = require_system_package(
        "python3", "/usr/bin/python3"
    )  # The interpreter of the tests may be in a private folder.
    user = [setpriv, "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    done = subprocess.run(
        [*user, python, "-I", "-c", code],
        input="\n".join(map(str, paths)),
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
        timeout=HANG_SECONDS,
    )
    return done.stdout.splitlines()


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can enter, as `tmp_path` is not."""
    folder = Path(tempfile.mkdtemp(prefix="hopyard-foreign-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.mark.timeout(240)
def test_another_user_connects_to_no_socket_whatever_the_umask(place: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("to connect as another user, setpriv changes the user, which only root can do")
    before = os.umask(0)
    try:
        up = Up(place / "data", slots=1)
        control = socket.socket(socket.AF_UNIX)
        control.bind(str(place / "control.sock"))
        control.listen()
    finally:
        os.umask(before)
    try:
        up.wait_for(IS_UP)
        sockets = sorted(place.rglob("*.sock"))
        names = {path.name for path in sockets}
        assert names == {
            "appstat.sock",
            "hpgen.sock",
            "scheduler.sock",
            "agent.sock",
            "application.sock",
            "snapshots.sock",
        } | {"control.sock"}
        said = as_nobody(CONNECT, sockets)
        assert sorted(line for line in said if "control" in line) == [f"connected to {place}/control.sock"]
        assert all(line.startswith("PermissionError") for line in said if "control" not in line), said
    finally:
        control.close()
        up.stop()


@pytest.mark.timeout(240)
def test_no_other_user_takes_the_address_of_a_dead_service(place: Path) -> None:
    """On a TCP port of the loopback interface, any process could listen after the service has ended, and receive its calls."""
    if os.geteuid() != 0:
        pytest.skip("to listen as another user, setpriv changes the user, which only root can do")
    up = Up(place / "data", slots=1)
    try:
        up.wait_for(IS_UP)
        address = up.server
        path = Path(address.removeprefix("unix:"))
        os.kill(up.pids["scheduler"], signal.SIGKILL)
        assert as_nobody(STEAL, [path]) == ["PermissionError", "PermissionError"]
        up.wait_for("scheduler serves again")
        with Client(server=address, patience=HANG_SECONDS) as client:
            assert client.experiments() == []
    finally:
        up.stop()


def test_a_second_cluster_on_the_same_data_is_refused_before_it_listens(place: Path) -> None:
    up = Up(place / "data", slots=1)
    try:
        up.wait_for(IS_UP)
        command = [sys.executable, "-m", "hopyard.cli.main", "scheduler", "--data", str(place / "data")]
        appstat, hpgen = ((place / "data" / f"{name}.address").read_text().strip() for name in ("appstat", "hpgen"))
        second = subprocess.run(
            [*command, "--appstat", appstat, "--hpgen", hpgen],
            check=False,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
        )
        assert second.returncode == 1
        assert "another scheduler (process " in second.stderr
        with Client(server=up.server, patience=HANG_SECONDS) as client:
            assert client.experiments() == []
        assert not up.restarted
    finally:
        up.stop()
