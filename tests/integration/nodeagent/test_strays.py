"""Tests that processes which have left the process session of their run end with it: an agent as a process, and real programs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hopyard._runtime import bundle
from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.runs.control_group import writable_root
from tests.integration.nodeagent.cluster import Cluster, gone
from tests.integration.nodeagent.test_commands import begin
from tests.plugins.processes import is_running
from tests.timing import HANG_SECONDS

KEY, NEXT = RunKey(StreamId("e1"), "j1", 1, 0), RunKey(StreamId("e1"), "j2", 1, 0)

LEAVE = """
import os, subprocess, time

def leave(how, note):
    sleeps = ["sh", "-c", 'echo $$ > "$0.new" && mv "$0.new" "$0"; exec sleep 600', note]
    environment = {"PATH": os.environ["PATH"]} if how == "cleared" else None
    if how == "child":
        leave.child = subprocess.Popen(sleeps, start_new_session=True)
    else:
        subprocess.run(["setsid", "-f", *sleeps], check=True, env=environment)
    while not os.path.exists(note):
        time.sleep(0.01)
"""

TRAINER = """
import os, multiprocessing, signal
from leave import leave
from hopyard.trainer import Trainer

kept = []

class Leaves(Trainer):
    def setup(self, hyperparameters, changed):
        if hyperparameters.get("how"):
            leave(hyperparameters["how"], hyperparameters["note"])
            if not kept:
                kept.append(multiprocessing.get_context("fork").Process(target=signal.pause, daemon=True))
                kept[0].start()

    def train(self):
        if os.path.exists("crash"):
            os.kill(os.getpid(), signal.SIGSEGV)
        return {"x": 1.0, "pid": float(os.getpid()), "kept": float(kept[0].pid if kept else 0)}

    def save(self, folder):
        (folder / "x").write_text("")

    def load(self, folder):
        pass
"""

SCRIPT = """
import sys, hopyard
from leave import leave
leave(*sys.argv[1:])
while True:
    hopyard.report(x=1.0)
"""

LOGS = """
import sys, time
from leave import leave
leave(*sys.argv[1:])
while True:
    print("acc=1", flush=True)
    time.sleep(0.05)
"""

NO_GROUPS = """
import typer
from hopyard_nodeagent import agent
from hopyard_nodeagent.command import command
agent.writable_root = lambda: None
typer.run(command)
"""


async def start(cluster: Cluster, *, groups: bool, sessions: int = 1) -> Process:
    """Start an agent with one slot, with or without control groups."""
    entry = ("-m", "hopyard_nodeagent") if groups else ("-c", NO_GROUPS)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *entry, "--scheduler", cluster.scheduler_address, "--appstat", cluster.store_address),
        *("--data", str(cluster.folder / "a"), "--node", "a", "--slots", "1", "--cpus-per-slot", "1"),
    )
    cluster.processes.append(process)
    await cluster.scheduler.connected("a", sessions)
    return process


@pytest.fixture(autouse=True)
async def orderly_end(cluster: Cluster) -> AsyncIterator[None]:
    """End the agents in order: what the processes of a killed agent have started would remain for the next one."""
    yield
    for process in cluster.processes:
        if process.returncode is None:
            process.terminate()
            await process.wait()


@pytest.fixture(params=[False, True], ids=["by mark", "by group"])
def groups(request: pytest.FixtureRequest) -> bool:
    if request.param and writable_root() is None:
        pytest.skip("no control group is writable")
    return bool(request.param)


def train(cluster: Cluster, key: RunKey, how: str, note: Path, **fields: Any) -> None:
    """Start a run of a trainer that leaves a process."""
    code = cluster.folder / "leaving"
    if not code.exists():
        code.mkdir()
        (code / "leave.py").write_text(LEAVE)
        (code / "train.py").write_text(TRAINER)
        cluster.bundle = cluster.store.add(bundle.pack(code).data)
    values = {"how": how, "note": str(note)}
    cluster.start(key, trainer="train.py:Leaves", hyperparameters=values, **fields)


async def pid_in(note: Path) -> int:
    """Wait until a process has noted its id, and return it."""
    async with asyncio.timeout(HANG_SECONDS):
        while not os.path.exists(note):  # noqa: ASYNC110, ASYNC240 (another process)
            await asyncio.sleep(0.02)
    return int(note.read_text())  # noqa: ASYNC240 (a small file)


@pytest.mark.parametrize("how", ["child", "daemon", "cleared"])
async def test_what_a_run_leaves_ends_before_the_next_run_of_a_warm_process(
    cluster: Cluster, tmp_path: Path, groups: bool, how: str
) -> None:
    """Check also that a worker that the trainer's module keeps from run to run stays."""
    if how == "cleared" and not groups:
        pytest.skip("such a process ends with the training process, as the next test shows")
    await start(cluster, groups=groups)
    train(cluster, KEY, how, tmp_path / "note", until=2, allowed=2)
    first = (await cluster.scheduler.reported(KEY, 2)).metrics
    left = await pid_in(tmp_path / "note")
    cluster.scheduler.decide("a", KEY, wire.DECISION_TERMINATE, 2)
    await cluster.scheduler.ended(KEY)
    assert not is_running(left)
    train(cluster, NEXT, "", tmp_path / "other", until=2, allowed=2)
    second = (await cluster.scheduler.reported(NEXT, 2)).metrics
    assert (second["pid"], second["kept"]) == (first["pid"], first["kept"])
    assert is_running(int(first["kept"]))


@pytest.mark.parametrize("how", ["child", "daemon", "cleared"])
@pytest.mark.parametrize("end", ["crash", "kill"])
async def test_what_a_training_process_leaves_ends_with_it(
    cluster: Cluster, tmp_path: Path, groups: bool, how: str, end: str
) -> None:
    await start(cluster, groups=groups)
    train(cluster, KEY, how, tmp_path / "note", until=9, allowed=2)
    pid = int((await cluster.scheduler.reported(KEY, 2)).metrics["pid"])
    left = await pid_in(tmp_path / "note")
    if end == "crash":
        os.kill(pid, signal.SIGSEGV)
    else:
        cluster.scheduler.send("a", KEY, kill=wire.KillRun(reason="no longer wanted"))
    await cluster.scheduler.ended(KEY)
    if how == "cleared" and not groups:
        await gone(left)  # The agent finds it a moment later, when no training process is left to which it may belong.
    assert not is_running(left)


@pytest.mark.parametrize("how", ["child", "daemon"])
@pytest.mark.parametrize("kind", ["script", "log"])
async def test_what_a_command_leaves_ends_with_its_run(
    cluster: Cluster, tmp_path: Path, groups: bool, kind: str, how: str
) -> None:
    await start(cluster, groups=groups)
    code = {"leave.py": LEAVE, "p.py": textwrap.dedent(SCRIPT if kind == "script" else LOGS)}
    metrics = {"acc": "acc=(.*)"} if kind == "log" else None
    arguments = (sys.executable, "p.py", how, str(tmp_path / "note"))
    program = {"snapshot_provider": "framework"}
    begin(cluster, KEY, code, *arguments, metrics=metrics, program=program, until=9, allowed=2)
    await cluster.scheduler.reported(KEY, 2)
    left = await pid_in(tmp_path / "note")
    cluster.scheduler.decide("a", KEY, wire.DECISION_TERMINATE, 2)
    assert (await cluster.scheduler.ended(KEY)).reason == common_pb2.RUN_END_REASON_TERMINATED
    assert not is_running(left)


async def test_the_next_agent_ends_what_the_processes_of_a_killed_one_left(
    cluster: Cluster, tmp_path: Path, groups: bool
) -> None:
    agent = await start(cluster, groups=groups)
    train(cluster, KEY, "daemon", tmp_path / "note", until=9, allowed=2)
    pid = int((await cluster.scheduler.reported(KEY, 2)).metrics["pid"])
    left = await pid_in(tmp_path / "note")
    agent.kill()
    await agent.wait()
    await gone(pid)
    assert is_running(left)
    await start(cluster, groups=groups, sessions=2)
    assert not is_running(left)


async def test_the_agent_reaps_what_it_has_adopted(cluster: Cluster, tmp_path: Path) -> None:
    agent = await start(cluster, groups=False)
    train(cluster, KEY, "daemon", tmp_path / "note", until=9, allowed=2)
    await cluster.scheduler.reported(KEY, 2)
    left = await pid_in(tmp_path / "note")
    assert psutil.Process(left).ppid() == agent.pid
    os.kill(left, signal.SIGKILL)
    async with asyncio.timeout(HANG_SECONDS):
        while psutil.pid_exists(left):  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.05)
    assert agent.returncode is None
