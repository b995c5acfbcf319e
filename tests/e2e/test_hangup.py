"""Tests that a closed terminal and a closed output end commands as Ctrl-C does: jobs are suspended, and nothing keeps running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hopyard.client.address import read_address
from hopyard.client.local_cluster.data_dir_lock import is_locked
from tests.e2e.harness import softmax_file
from tests.e2e.terminal import Terminal, processes_of
from tests.e2e.test_interrupt import HOPYARD, PACE, POLICY, STOP, hopyard, table
from tests.timing import HANG_SECONDS


def check_suspended(data: Path) -> None:
    """Check that the experiment is paused with the command that continues it, and that no process of its cluster is left."""
    assert not is_locked(data)
    assert processes_of(data) == []
    (experiment,) = json.loads(hopyard("experiments", "--data", str(data), "--json").stdout)
    assert experiment["state"] == "PAUSED"
    assert experiment["reason"] == f"paused by a person; continue it with: hopyard resume softmax --data {data}"
    rows = json.loads(hopyard("jobs", "--data", str(data), "--json").stdout)
    assert {row["state"] for row in (rows["jobs"] if isinstance(rows, dict) else rows)} <= {"SUSPENDED", "PENDING"}


@pytest.mark.timeout(900)
def test_a_closed_output_and_a_closed_terminal_suspend_as_ctrl_c_does(tmp_path: Path) -> None:
    file = softmax_file(tmp_path / "e", policy=POLICY, stop=STOP)
    undisturbed = hopyard("run", str(file), "--data", str(tmp_path / "one"), "--slots", "2", "--json")
    assert undisturbed.returncode == 0, undisturbed.stderr
    data = tmp_path / "two"

    # Nobody reads stdout and stderr any more, as in `hopyard run 2>&1 | head -2`.
    process = subprocess.Popen(
        [*HOPYARD, "run", str(file), "--data", str(data), "--slots", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **PACE},
    )
    assert process.stdout is not None
    assert any(b"RUNNING" in line for line in process.stdout)
    process.stdout.close()
    assert process.wait(HANG_SECONDS) == 141
    check_suspended(data)

    # The terminal is closed, which causes several signals.
    terminal = Terminal([*HOPYARD, "resume", "--data", str(data), "--slots", "2"], PACE, tmp_path)
    terminal.read_until("RUNNING")
    terminal.close()
    terminal.process.send_signal(signal.SIGHUP)
    assert terminal.process.wait(HANG_SECONDS) == 129
    check_suspended(data)

    resumed = hopyard("resume", "--data", str(data), "--slots", "2", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert table(data) == table(tmp_path / "one")


def test_hopyard_up_ends_in_order_with_its_terminal(tmp_path: Path) -> None:
    data = tmp_path / "data"
    terminal = Terminal([*HOPYARD, "up", "--data", str(data)], {}, tmp_path)
    terminal.read_until("the cluster is up")
    terminal.close()
    assert terminal.process.wait(HANG_SECONDS) == 0
    assert not is_locked(data)
    assert processes_of(data) == []
    assert read_address(data) is None  # the scheduler has removed its address file, so it ended in order


def test_hopyard_up_with_nohup_survives_its_terminal(tmp_path: Path) -> None:
    data = tmp_path / "data"
    script = f'nohup {" ".join(HOPYARD)} up --data {data} & echo "pid $!;"; wait'
    terminal = Terminal(["sh", "-c", script], {}, tmp_path)
    terminal.read_until(";\r\n")
    pid = int(terminal.shown.partition("pid ")[2].partition(";")[0])
    output = tmp_path / "nohup.out"
    try:
        while not output.exists() or "the cluster is up" not in output.read_text():
            assert terminal.process.poll() is None
            time.sleep(0.05)
        terminal.close()
        assert terminal.process.wait(HANG_SECONDS) == -signal.SIGHUP
        os.kill(pid, signal.SIGHUP)
        found = hopyard("nodes", "--data", str(data), "--json")
        assert found.returncode == 0, found.stderr
        assert [node["state"] for node in json.loads(found.stdout)] == ["UP"]
    finally:
        os.kill(pid, signal.SIGTERM)
        while is_locked(data):
            time.sleep(0.05)


SCRIPT = """
import sys
from hopyard import Client

with Client.local(sys.argv[1], slots=1) as client:
    experiment = client.create(sys.argv[2])
    for change in client.watch(experiment):
        if getattr(change, "position", 0) > 1:
            print("trains", flush=True)
            client.wait(experiment)
"""


ASYNC_SCRIPT = """
import asyncio, sys
from hopyard import AsyncClient

async def main():
    async with AsyncClient.local(sys.argv[1], slots=1) as client:
        experiment = await client.create(sys.argv[2])
        async for change in client.watch(experiment):
            if getattr(change, "position", 0) > 1:
                print("trains", flush=True)
                await client.wait(experiment)

asyncio.run(main())
"""


@pytest.mark.parametrize("script", [SCRIPT, ASYNC_SCRIPT], ids=["sync", "async"])
def test_a_program_with_a_cluster_of_its_own_closes_it_at_a_hangup(script: str, tmp_path: Path) -> None:
    file, data = softmax_file(tmp_path / "e", stop=STOP), tmp_path / "data"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(data), str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **PACE},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "trains\n"
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGHUP)
    _, err = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, err) == (129, "")
    assert not is_locked(data)  # `close` has waited for the end of the services
    assert processes_of(data) == []
    (experiment,) = json.loads(hopyard("experiments", "--data", str(data), "--json").stdout)
    assert experiment["state"] == "INTERRUPTED"
    assert experiment["reason"].endswith(f"continue it with: hopyard resume softmax --data {data}")
