"""Tests that a service whose parent process ends stops once, in the regular order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hopyard.client.local_cluster.die_with_parent import PARENT_ENDED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")

SERVICE = """
import asyncio, sys
from hopyard._net.server import run_service

async def main(stop):
    sys.stdout.write("up\\n")
    sys.stdout.flush()
    await stop.wait()
    sys.stdout.write("stopping\\n")
    sys.stdout.flush()
    sys.stdin.readline()
    await asyncio.sleep(0)  # a signal that came meanwhile is heard here
    sys.stdout.write("stopped in order\\n")

sys.exit(run_service(main, name="svc"))
"""


def service(folder: Path, parent: int) -> list[str]:
    """Return the command line of a service that ends when the process `parent` ends."""
    (folder / "svc_that_waits.py").write_text(textwrap.dedent(SERVICE))
    return [sys.executable, "-m", "hopyard.client.local_cluster.die_with_parent", str(parent), "svc_that_waits"]


def test_a_parent_whose_end_is_told_several_times_ends_its_child_in_order(tmp_path: Path) -> None:
    process = subprocess.Popen(
        service(tmp_path, os.getpid()),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(PARENT_ENDED)
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(PARENT_ENDED)
    out, log = process.communicate("go on\n", timeout=150)
    assert (out, process.returncode) == ("stopped in order\n", 0)
    assert "stops on SIGTERM" in log
    assert "second signal" not in log.partition("stops on SIGTERM; a second signal ends it at once")[2]


def test_a_killed_parent_is_followed(tmp_path: Path) -> None:
    code = f"""
import os, subprocess, sys, threading, time
for _ in range(8):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
command = {service(tmp_path, 0)!r}
command[3] = str(os.getpid())
subprocess.Popen(command, cwd={str(tmp_path)!r}, stdin=subprocess.DEVNULL)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "up\n"
    parent.send_signal(signal.SIGKILL)
    out, log = parent.communicate(timeout=150)  # returns when the child has ended, which has both pipes open
    assert out == "stopping\nstopped in order\n"
    assert "cancelled" not in log
