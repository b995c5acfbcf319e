"""Tests of process snapshots on one agent and between two, with forks and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from tests.integration.nodeagent.cluster import Cluster
from tests.integration.nodeagent.process_snapshots import SCRIPT, begin, begun, curve, nothing_left, suspended

pytestmark = pytest.mark.usefixtures("criu")


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


@pytest.mark.parametrize("log", [False, True])
async def test_five_suspensions_on_two_agents_change_nothing(cluster: Cluster, log: bool) -> None:
    for node in ("a", "b"):
        await cluster.agent(node)
    scheduler, code = cluster.scheduler, PRINTS if log else SCRIPT
    whole = RunKey(StreamId("e1"), "whole", 1, 0)
    begin(cluster, whole, code, log=log, until=12, allowed=12, provider="framework")
    await scheduler.reported(whole, 12)
    scheduler.decide("a", whole, wire.DECISION_TERMINATE, 12)
    await scheduler.ended(whole)
    keys = [RunKey(StreamId("e1"), "j1", attempt, 0) for attempt in range(1, 7)]
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


async def test_one_image_restored_twice_is_a_fork(cluster: Cluster) -> None:
    _, snapshot = await begun(cluster, slots=2)
    scheduler = cluster.scheduler
    forks = [RunKey(StreamId("e1"), "j2", 1, 0), RunKey(StreamId("e1"), "j3", 1, 0)]
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
    changed = RunKey(StreamId("e1"), "j4", 1, 0)
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
        key, command = RunKey(StreamId("e1"), f"j{number}", 1, 0), ("python", "train.py", "3", str(exit_code))
        begin(cluster, key, code, command=command, allowed=2 if again else 9)
        if again:
            snapshot = (await suspended(cluster, key, "a", 2)).snapshot
            key = RunKey(StreamId("e1"), f"j{number}", 2, 0)
            begin(cluster, key, code, command=command, allowed=9, snapshot=snapshot)
        ended = await cluster.scheduler.ended(key)
        if exit_code:
            assert ended.reason == common_pb2.RUN_END_REASON_FAILED
            assert "the program ended with exit code 3; its last lines:\ntidied" in ended.message
        else:
            assert (ended.reason, ended.finished, ended.position) == (common_pb2.RUN_END_REASON_UNTIL, True, 3)
    terminated = RunKey(StreamId("e1"), "j9", 1, 0)
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
    keys = [RunKey(StreamId("e1"), "j1", attempt, 0) for attempt in range(1, 5)]
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
    # Intermediate snapshots are taken only by the provider that costs little.
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
    key = RunKey(StreamId("e1"), "j1", 1, 0)
    begin(cluster, key, SCRIPT)
    ended = await cluster.scheduler.ended(key)
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
    assert ended.unable
    assert says in ended.message
    left_open = RunKey(StreamId("e1"), "j2", 1, 0)
    begin(cluster, left_open, PRINTS, log=True, provider="auto", until=2, allowed=2)
    await cluster.scheduler.reported(left_open, 2)


async def test_a_node_without_criu_says_so_of_a_snapshot_that_needs_it(cluster: Cluster) -> None:
    _, snapshot = await begun(cluster)
    await cluster.agent("b", criu="off")
    key = RunKey(StreamId("e1"), "j1", 2, 0)
    begin(cluster, key, SCRIPT, node="b", provider="auto", snapshot=snapshot)
    ended = await cluster.scheduler.ended(key)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_LOST, 2)
    assert "CRIU is switched off on this node" in ended.message
