"""Processes that are dumped and restored: on one agent and on another, with forks, faults and refusals."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from hopyard import bundle
from hopyard.criu import proc
from hopyard.criu.job import MOUNT
from hopyard.rpc.values import hyperparameters_to_proto
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.images import MEMORY
from hopyard_nodeagent.keys import RunKey
from tests.conftest import require_criu
from tests.integration.nodeagent.cluster import Cluster, gone
from tests.integration.nodeagent.test_process import start_agent

pytestmark = pytest.mark.timeout(120)

SCRIPT = """
import os, random, sys, hopyard

rng = random.Random(hopyard.seed())
x = 0.0
children = []
print("begins", flush=True)
while True:
    x += float(sys.argv[1]) * rng.gauss(0.0, 1.0)
    hopyard.report(x=x, pid=os.getpid())
    print("reported", x.hex(), flush=True)
"""

PRINTS = r"""
import os, random, sys, time
rng = random.Random(7)
x = 0.0
print("begins as", os.getpid(), flush=True)
while True:
    x += float(sys.argv[1]) * rng.gauss(0.0, 1.0)
    if rng.random() < 0.5:
        print("loss=%r" % rng.random())
    print("acc=%r" % x, flush=True)
    time.sleep(0.01)
"""


@pytest.fixture(autouse=True)
def criu() -> Path:
    """The CRIU of this computer."""
    return require_criu()


def begin(
    cluster: Cluster,
    key: RunKey,
    code: str,
    *,
    node: str = "a",
    slot: int = 0,
    log: bool = False,
    step: float = 0.5,
    provider: str = "criu",
    command: tuple[str, ...] = ("python", "train.py", "{step}"),
    snapshot: common_pb2.Snapshot | None = None,
    **fields: Any,
) -> None:
    """Start a run of a script, or of a log program with the metrics acc and loss."""
    folder = cluster.folder / "code-processes"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(textwrap.dedent(code))
    line = wire.CommandLine(arguments=command)
    program = wire.RunProgram(bundle=cluster.store.add(bundle.pack(folder).data), snapshot_provider=provider, threads=1)
    if log:
        metrics = {"acc": r"acc=(\S+)", "loss": r"loss=(\S+)"}
        program.log.CopyFrom(wire.LogProgram(command=line, metrics=metrics, metric="acc"))
    else:
        program.command.CopyFrom(line)
    values = hyperparameters_to_proto({"step": step})
    machine = f"{node}/{slot}"
    # Any other agent of the test may have it.
    peers = [agent.address for name, agent in cluster.agents.items() if snapshot is not None and name != node]
    start = wire.StartRun(
        machine=machine, hyperparameters=values, seed=7, world=1, program=program, snapshot_peers=peers, **fields
    )
    if snapshot is not None:
        start.snapshot.CopyFrom(snapshot)
    cluster.scheduler.send(node, key, start=start)


def curve(cluster: Cluster, *keys: RunKey) -> dict[int, dict[str, float]]:
    """Metrics by position of several runs of a job, none reported twice."""
    found: dict[int, dict[str, float]] = {}
    for key in keys:
        for report in cluster.scheduler.reports(key):
            if report.metrics:
                assert report.position not in found
                found[report.position] = dict(report.metrics)
    return found


def home_of(cluster: Cluster, node: str) -> str:
    """What names an agent's data folder, and so its processes and images."""
    return (cluster.folder / node / "agent.id").read_text().strip()


def images_of(home: str) -> list[str]:
    """Images in memory."""
    return [str(path) for path in MEMORY.glob(f"hopyard-{home}/*")]


def left(cluster: Cluster) -> list[str]:
    """Processes and images that are left of any job of these agents."""
    homes = [home_of(cluster, node) for node in cluster.agents]
    processes = [proc.name(pid) for home in homes for pid in proc.mounted(MOUNT, home)]
    return processes + [image for home in homes for image in images_of(home)]


async def nothing_left(cluster: Cluster) -> None:
    """Wait until nothing is left; what ends a run does not wait for the last of it."""
    async with asyncio.timeout(20):
        while left(cluster):  # noqa: ASYNC110 (nobody tells of it)
            await asyncio.sleep(0.05)


async def comes(condition: Callable[[], bool]) -> None:
    """Wait for something on the disk or in memory."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 (nobody tells of it)
            await asyncio.sleep(0.02)


async def suspended(cluster: Cluster, key: RunKey, node: str, position: int) -> wire.RunEnded:
    """Suspend a run at a position at which it waits."""
    await cluster.scheduler.reported(key, position)
    cluster.scheduler.decide(node, key, wire.DECISION_SUSPEND, position)
    return await cluster.scheduler.ended(key)


@pytest.mark.parametrize("log", [False, True])
async def test_five_suspensions_on_two_agents_change_nothing(cluster: Cluster, log: bool) -> None:
    for node in ("a", "b"):
        await cluster.agent(node)
    scheduler, code = cluster.scheduler, PRINTS if log else SCRIPT
    whole = RunKey("e1", "whole", 1, 0)
    begin(cluster, whole, code, log=log, until=12, allowed=12, provider="framework")
    await scheduler.reported(whole, 12)
    scheduler.decide("a", whole, wire.DECISION_TERMINATE, 12)
    await scheduler.ended(whole)
    keys = [RunKey("e1", "j1", attempt, 0) for attempt in range(1, 7)]
    snapshot: common_pb2.Snapshot | None = None
    for index, key in enumerate(keys[:-1]):
        node, position = "ab"[index % 2], 2 * index + 2
        begin(cluster, key, code, node=node, log=log, allowed=position, snapshot=snapshot)
        ended = await suspended(cluster, key, node, position)
        assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_SUSPENDED, position), ended.message
        assert (ended.snapshot.position, ended.snapshot.provider) == (position, "criu")
        snapshot = ended.snapshot
    last = keys[-1]
    begin(cluster, last, code, node="b", log=log, until=12, allowed=12, snapshot=snapshot)
    await scheduler.reported(last, 12)
    scheduler.decide("b", last, wire.DECISION_TERMINATE, 12)
    assert (await scheduler.ended(last)).reason == common_pb2.RUN_END_REASON_TERMINATED
    expected, found = curve(cluster, whole), curve(cluster, *keys)
    for metrics in (*expected.values(), *found.values()):
        metrics.pop("pid", None)
    assert found == expected
    texts = [cluster.log(node, key) for node, key in (("a", keys[0]), ("b", keys[0]))]
    assert [text.count("begins") for text in texts] == [1, 0]
    await nothing_left(cluster)


async def begun(cluster: Cluster, **settings: Any) -> tuple[RunKey, common_pb2.Snapshot]:
    """A job of one agent that was suspended at position 2."""
    await cluster.agent("a", **settings)
    first = RunKey("e1", "j1", 1, 0)
    begin(cluster, first, SCRIPT, allowed=2)
    return first, (await suspended(cluster, first, "a", 2)).snapshot


async def test_one_image_restored_twice_is_a_fork(cluster: Cluster) -> None:
    _, snapshot = await begun(cluster, slots=2)
    scheduler = cluster.scheduler
    forks = [RunKey("e1", "j2", 1, 0), RunKey("e1", "j3", 1, 0)]
    for slot, key in enumerate(forks):
        begin(cluster, key, SCRIPT, slot=slot, until=5, allowed=5, snapshot=snapshot)
    for key in forks:
        await scheduler.reported(key, 5)
    curves = [curve(cluster, key) for key in forks]
    assert curves[0] == curves[1]
    assert list(curves[0]) == [3, 4, 5]
    for key in forks:
        scheduler.decide("a", key, wire.DECISION_TERMINATE, 5)
        await scheduler.ended(key)
    changed = RunKey("e1", "j4", 1, 0)
    begin(cluster, changed, SCRIPT, step=0.25, snapshot=snapshot)
    ended = await scheduler.ended(changed)
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
    assert "step (0.5, wanted 0.25)" in ended.message
    await nothing_left(cluster)


async def test_a_script_ends_with_its_own_exit_code_before_and_after_it_was_restored(cluster: Cluster) -> None:
    await cluster.agent()
    code = """
    import atexit, pathlib, sys, hopyard
    try:
        for x in range(int(sys.argv[1])):
            hopyard.report(x=x)
    finally:
        print("tidied", flush=True)
    sys.exit(int(sys.argv[2]))
    """
    for number, (exit_code, again) in enumerate([(0, False), (0, True), (3, False), (3, True)]):
        key, command = RunKey("e1", f"j{number}", 1, 0), ("python", "train.py", "3", str(exit_code))
        begin(cluster, key, code, command=command, allowed=2 if again else 9)
        if again:
            snapshot = (await suspended(cluster, key, "a", 2)).snapshot
            key = RunKey("e1", f"j{number}", 2, 0)
            begin(cluster, key, code, command=command, allowed=9, snapshot=snapshot)
        ended = await cluster.scheduler.ended(key)
        if exit_code:
            assert ended.reason == common_pb2.RUN_END_REASON_FAILED
            assert "the program ended with exit code 3; its last lines:\ntidied" in ended.message
        else:
            assert (ended.reason, ended.finished, ended.position) == (common_pb2.RUN_END_REASON_UNTIL, True, 3)
    terminated = RunKey("e1", "j9", 1, 0)
    begin(cluster, terminated, code, command=("python", "train.py", "9", "0"), allowed=1)
    await cluster.scheduler.reported(terminated, 1)
    cluster.scheduler.decide("a", terminated, wire.DECISION_TERMINATE, 1)
    assert (await cluster.scheduler.ended(terminated)).reason == common_pb2.RUN_END_REASON_TERMINATED
    assert "tidied" in cluster.log("a", terminated)
    await nothing_left(cluster)


SAVES = """
import os, sys, hopyard

given = hopyard.checkpoint()
x = int((given / "state").read_text()) if given else 0
try:
    while True:
        x += 1
        os.makedirs(f"saved-{x}")
        open(f"saved-{x}/state", "w").write(str(x))
        if os.path.lexists("last"):
            os.unlink("last")
        os.symlink(f"saved-{x}", "last")
        hopyard.report(x=x, checkpoint="last" if x % 2 else None)
finally:
    print("tidied", flush=True)
"""


async def test_a_script_that_leaves_it_open_goes_on_from_what_it_gave_else_from_its_processes(cluster: Cluster) -> None:
    for node in ("a", "b"):
        await cluster.agent(node)
    keys = [RunKey("e1", "j1", attempt, 0) for attempt in range(1, 5)]
    snapshot: common_pb2.Snapshot | None = None
    for key, position, provider in zip(keys, (2, 4, 7), ("criu", "criu", "framework"), strict=False):
        node = "ab"[key.attempt % 2]
        begin(cluster, key, SAVES, node=node, provider="auto", allowed=position, snapshot_every=1, snapshot=snapshot)
        ended = await suspended(cluster, key, node, position)
        assert (ended.reason, ended.snapshot.provider) == (common_pb2.RUN_END_REASON_SUSPENDED, provider), ended.message
        assert ("tidied" in cluster.log(node, key)) == (provider == "framework")
        snapshot = ended.snapshot
    begin(cluster, keys[3], SAVES, node="a", provider="auto", allowed=9, until=9, snapshot=snapshot)
    await cluster.scheduler.reported(keys[3], 9)
    assert curve(cluster, *keys) == {position: {"x": position} for position in range(1, 10)}
    told = [
        message for key in keys[:3] for message in cluster.scheduler.received[key] if message.HasField("snapshot_taken")
    ]
    saved = [(one.snapshot_taken.snapshot.position, one.snapshot_taken.snapshot.provider) for one in told]
    # On the way only what costs little is saved.
    assert saved == [(1, "framework"), (2, "criu"), (3, "framework"), (4, "criu"), (5, "framework"), (7, "framework")]
    cluster.scheduler.decide("a", keys[3], wire.DECISION_TERMINATE, 9)
    await cluster.scheduler.ended(keys[3])
    await nothing_left(cluster)


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("off", "CRIU is switched off on this node: its agent has --criu off"),
        ("old", "is CRIU 3.17.1; needs 4.0 or newer"),
        ("failing", "Unexpected rt vDSO area bounds"),
    ],
)
async def test_without_a_criu_that_will_do_the_run_fails_with_the_reason(
    cluster: Cluster, tmp_path: Path, named: str, says: str
) -> None:
    version = "3.17.1" if named == "old" else "4.2"
    tool = tmp_path / "criu"
    error = "Error (criu/vdso.c:293): vdso: Unexpected rt vDSO area bounds"
    tool.write_text(f'#!/bin/sh\n[ "$1" = check ] && {{ echo "{error}"; exit 1; }}\necho "Version: {version}"\n')
    tool.chmod(0o755)
    await cluster.agent("a", criu="off" if named == "off" else str(tool))
    key = RunKey("e1", "j1", 1, 0)
    begin(cluster, key, SCRIPT)
    ended = await cluster.scheduler.ended(key)
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
    assert says in ended.message
    left_open = RunKey("e1", "j2", 1, 0)
    begin(cluster, left_open, PRINTS, log=True, provider="auto", until=2, allowed=2)
    await cluster.scheduler.reported(left_open, 2)


async def test_a_node_without_criu_says_so_of_a_snapshot_that_needs_it(cluster: Cluster) -> None:
    _, snapshot = await begun(cluster)
    await cluster.agent("b", criu="off")
    key = RunKey("e1", "j1", 2, 0)
    begin(cluster, key, SCRIPT, node="b", provider="auto", snapshot=snapshot)
    ended = await cluster.scheduler.ended(key)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_LOST, 2)
    assert "CRIU is switched off on this node" in ended.message


def meddling(criu: Path, folder: Path, call: str, times: int, instead: str) -> str:
    """A CRIU that does something else at the first `times` calls of a kind; `$REAL` is it, `$IMAGES` where it works."""
    tool = folder / "meddling-criu"
    tool.write_text(
        f"""#!/bin/sh
        REAL={criu}
        IMAGES=$(echo " $* " | sed -n 's/.* -D \\([^ ]*\\) .*/\\1/p')
        if [ "$1" = {call} ] && [ "$(ls {folder}/meddled-* 2>/dev/null | wc -l)" -lt {times} ]; then
          touch {folder}/meddled-$$
          {instead}
        fi
        exec $REAL "$@"
        """
    )
    tool.chmod(0o755)
    return str(tool)


# CRIU tries what the kernel can do on a process that it starts, and that stands still when CRIU is killed.
KILL = 'tail -f $0 & $REAL "$@" & sleep 0.02; kill -9 $!; wait $!; exit 137'


def children(tool: str) -> list[int]:
    """What `KILL` has started beside CRIU and is still there."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cmdline() == ["tail", "-f", tool]:
                found.append(process.pid)
    return found


async def test_a_killed_dump_leaves_the_job_running_and_is_tried_again(
    cluster: Cluster, tmp_path: Path, criu: Path
) -> None:
    tool = meddling(criu, tmp_path, "dump", 2, KILL)
    await cluster.agent("a", criu=tool)
    key = RunKey("e1", "j1", 1, 0)
    begin(cluster, key, SCRIPT, allowed=2)
    ended = await suspended(cluster, key, "a", 2)
    assert (ended.reason, ended.snapshot.position) == (common_pb2.RUN_END_REASON_SUSPENDED, 3), ended.message
    assert "no snapshot at position 2: the dump failed: CRIU was killed by signal 9" in cluster.log("a", key)
    assert children(tool) == []
    second = RunKey("e1", "j1", 2, 0)
    begin(cluster, second, SCRIPT, until=4, allowed=4, snapshot=ended.snapshot)
    await cluster.scheduler.reported(second, 4)
    assert list(curve(cluster, key, second)) == [1, 2, 3, 4]


async def test_a_killed_restore_leaves_nothing_and_the_next_one_succeeds(
    cluster: Cluster, tmp_path: Path, criu: Path
) -> None:
    tool = meddling(criu, tmp_path, "restore", 1, '$REAL "$@" & sleep 0.05; kill -9 $!; wait $!; exit 137')
    _, snapshot = await begun(cluster, criu=tool)
    second, third = RunKey("e1", "j1", 2, 0), RunKey("e1", "j1", 3, 0)
    begin(cluster, second, SCRIPT, allowed=9, snapshot=snapshot)
    ended = await cluster.scheduler.ended(second)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_LOST, 2)
    assert "the process could not be restored" in ended.message
    await nothing_left(cluster)
    begin(cluster, third, SCRIPT, until=4, allowed=4, snapshot=snapshot)
    await cluster.scheduler.reported(third, 4)
    assert list(curve(cluster, third)) == [3, 4]


@pytest.mark.parametrize("call", ["dump", "restore"])
async def test_an_agent_that_is_killed_meanwhile_leaves_no_process(
    cluster: Cluster, tmp_path: Path, criu: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    # CRIU works for ever, with processes in its hands.
    slow = f"""$REAL "$@" & sleep 0.05; kill -STOP $!; touch {tmp_path}/slow; wait $!"""
    monkeypatch.setenv("HOPYARD_CRIU", meddling(criu, tmp_path, call, 1, slow))
    agent = await start_agent(cluster)
    key, last = RunKey("e1", "j1", 1, 0), RunKey("e1", "j1", 2, 0)
    begin(cluster, key, SCRIPT, allowed=2)
    await cluster.scheduler.reported(key, 2)
    cluster.scheduler.decide("a", key, wire.DECISION_SUSPEND, 2)
    snapshot: common_pb2.Snapshot | None = None
    if call == "restore":
        snapshot = (await cluster.scheduler.ended(key)).snapshot
        begin(cluster, last, SCRIPT, allowed=9, snapshot=snapshot)
    async with asyncio.timeout(30):
        while "slow" not in os.listdir(tmp_path):  # noqa: ASYNC110 (CRIU tells nobody)
            await asyncio.sleep(0.02)
    home = home_of(cluster, "a")
    held = proc.mounted(MOUNT, home)
    assert held
    agent.kill()
    await agent.wait()
    for pid in held:
        await gone(pid)
    assert not [pid for pid in proc.mounted(MOUNT, home) if proc.running(pid)]
    again = await start_agent(cluster, sessions=2)
    third = RunKey("e1", "j1", 3, 0)
    begin(cluster, third, SCRIPT, until=4, allowed=4, snapshot=snapshot)
    await cluster.scheduler.reported(third, 4)
    again.terminate()
    assert await again.wait() == 0
    assert not proc.mounted(MOUNT, home)
    assert not images_of(home)


async def test_a_damaged_image_is_not_restored_and_another_copy_is(cluster: Cluster) -> None:
    _, snapshot = await begun(cluster)
    await cluster.scheduler.until(lambda: snapshot.sha256 in cluster.store.blobs)
    file = cluster.folder / "a" / "snapshots" / snapshot.sha256
    await comes(lambda: not file.is_symlink())
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    second, third = RunKey("e1", "j1", 2, 0), RunKey("e1", "j1", 3, 0)
    begin(cluster, second, SCRIPT, allowed=9, snapshot=snapshot)
    ended = await cluster.scheduler.ended(second)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_LOST, 2)
    assert "load at position 2" in ended.message
    begin(cluster, third, SCRIPT, until=4, allowed=4, snapshot=snapshot)
    await cluster.scheduler.reported(third, 4)


async def test_what_a_killed_agent_had_in_memory_alone_is_not_lost(cluster: Cluster) -> None:
    _, snapshot = await begun(cluster)
    file, home = cluster.folder / "a" / "snapshots" / snapshot.sha256, home_of(cluster, "a")
    await comes(lambda: snapshot.sha256 in cluster.store.blobs and not file.is_symlink())
    await cluster.agents["a"].stop()
    cluster.store.blobs.clear()
    # As it is when the agent dies right behind the word that the snapshot was taken.
    memory = MEMORY / f"hopyard-{home}"
    memory.mkdir()
    shutil.move(file, memory / "some.packed")
    file.symlink_to(memory / "some.packed")
    await cluster.agent("a")
    assert not memory.exists()
    second = RunKey("e1", "j1", 2, 0)
    begin(cluster, second, SCRIPT, until=4, allowed=4, snapshot=snapshot)
    await cluster.scheduler.reported(second, 4)
    assert list(curve(cluster, second)) == [3, 4]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A small disk."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


FILL = "dd if=/dev/zero of=$IMAGES/filler bs=64k 2>/dev/null"


async def test_images_go_through_the_disk_when_memory_is_full(
    cluster: Cluster, tmp_path: Path, criu: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hopyard_nodeagent.images.MEMORY", small)
    tool = meddling(criu, tmp_path, "dump", 1, FILL)
    _, snapshot = await begun(cluster, criu=tool)
    assert snapshot.position == 2
    assert any(name.startswith("meddled-") for name in os.listdir(tmp_path))
    await comes(lambda: not [name for *_, names in os.walk(small) for name in names])


async def test_a_full_disk_costs_the_snapshot_and_nothing_else(
    cluster: Cluster, tmp_path: Path, criu: Path, small: Path
) -> None:
    await cluster.agent("a", data=small / "a", image_memory=0)
    key = RunKey("e1", "j1", 1, 0)
    begin(cluster, key, SCRIPT, allowed=2)
    await cluster.scheduler.reported(key, 2)
    filler = _filled(small)
    ended = await suspended(cluster, key, "a", 2)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_SUSPENDED, 4)
    assert not ended.HasField("snapshot")
    assert (small / "a" / "logs" / "jobs" / "e1" / "j1.log").read_text().count("hopyard: no snapshot at position") == 3
    filler.unlink()
    second = RunKey("e1", "j1", 2, 0)
    begin(cluster, second, SCRIPT, allowed=2)
    snapshot = (await suspended(cluster, second, "a", 2)).snapshot
    assert snapshot.position == 2
    # Nor is there room to restore one; it stays good.
    filler = _filled(small)
    third, fourth = RunKey("e1", "j1", 3, 0), RunKey("e1", "j1", 4, 0)
    begin(cluster, third, SCRIPT, allowed=9, snapshot=snapshot)
    ended = await cluster.scheduler.ended(third)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_LOST, 2)
    assert "No space left on device" in ended.message
    filler.unlink()
    begin(cluster, fourth, SCRIPT, until=4, allowed=4, snapshot=snapshot)
    await cluster.scheduler.reported(fourth, 4)
    assert list(curve(cluster, fourth)) == [3, 4]


def _filled(disk: Path) -> Path:
    """A file that leaves a disk with 1 MiB."""
    filler = disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(disk).free - (1 << 20)))
    return filler
