"""Tests of gangs on real agents with real processes: rendezvous of the ranks, common progress, and the loss of a rank."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard._runtime import bundle
from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from tests.e2e import gang_trainer
from tests.integration.nodeagent.cluster import Cluster, gone
from tests.timing import scaled

KEY = RunKey(StreamId("e1"), "j1", 1, 0)


def ranks(key: RunKey, count: int = 2) -> list[RunKey]:
    """Return the keys of all ranks of a run."""
    return [key._replace(rank=rank) for rank in range(count)]


class Gang:
    """A cluster with the trainer of gangs."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.scheduler = cluster.scheduler
        self.bundle = self.trainer("")

    def trainer(self, more: str) -> str:
        """Store a bundle of the trainer of gangs with `more` appended to its code; return the bundle's hash."""
        code = self.cluster.folder / "gang"
        code.mkdir(exist_ok=True)
        (code / "train.py").write_text(Path(gang_trainer.__file__).read_text() + more)
        return self.cluster.store.add(bundle.pack(code).data)

    def start(self, key: RunKey, slots: list[str], only: int | None = None, **fields: Any) -> None:
        """Start all ranks of a run, or only the rank `only`."""
        hyperparameters = {"lr": 0.1} | fields.pop("hyperparameters", {})
        addresses = [self.cluster.agents[slot.partition("/")[0]].address for slot in slots]
        for rank, slot in enumerate(slots):
            if only is not None and rank != only:
                continue
            start = wire.StartRun(
                slot=slot,
                hyperparameters=hyperparameters_to_proto(hyperparameters),
                seed=7,
                world=len(slots),
                rank_addresses=addresses,
                program=wire.RunProgram(bundle=self.bundle, trainer="train.py:Linear", snapshot_provider="framework"),
                **(fields if rank == 0 else {k: v for k, v in fields.items() if k not in ("snapshot_at",)}),
            )
            self.scheduler.send(slot.partition("/")[0], key._replace(rank=rank), start=start)

    async def reports(self, key: RunKey, last: int) -> dict[int, float]:
        """Wait for the report at position `last`; return the losses by position."""
        await self.scheduler.until(lambda: any(r.position == last for r in self.scheduler.reports(key)))
        return {r.position: r.metrics["loss"] for r in self.scheduler.reports(key)}

    async def ended(self, key: RunKey) -> wire.RunEnded:
        """Wait for the end of a rank and return it."""
        await self.scheduler.until(lambda: any(m.HasField("ended") for m in self.scheduler.received[key]))
        return await self.scheduler.ended(key)

    def log(self, slot: str, key: RunKey) -> str:
        """Return the log of a rank."""
        name = f"{key.job}.rank{key.rank}.log" if key.rank else f"{key.job}.log"
        return (self.cluster.folder / slot.partition("/")[0] / "logs" / "jobs" / key.stream / name).read_text()

    def process(self, slot: str, key: RunKey) -> int:
        """Return the id of the newest process of a rank."""
        return int(re.findall(rf"rank {key.rank} of 2 is process (\d+)", self.log(slot, key))[-1])


@pytest.fixture
def gang(cluster: Cluster) -> Gang:
    return Gang(cluster)


async def test_ranks_meet_train_together_and_leave_at_one_boundary_and_their_processes_stay_warm(gang: Gang) -> None:
    await gang.cluster.agent(slots=2)
    slots = ["a/0", "a/1"]
    gang.start(KEY, slots, until=6, allowed=3, snapshot_at=[2])
    first, second = ranks(KEY)
    straight = await gang.reports(KEY, 3)
    assert [s.position for s in gang.scheduler.snapshots(KEY)] == [2]
    gang.scheduler.decide("a", KEY, wire.DECISION_SUSPEND, 3)
    for key in ranks(KEY):
        ended = await gang.ended(key)
        assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_SUSPENDED, 3)
        assert ended.HasField("snapshot") == (key.rank == 0)
    assert [m.WhichOneof("body") for m in gang.scheduler.received[second]] == ["started", "ended"]
    before = [gang.process(m, k) for m, k in zip(slots, (first, second), strict=True)]
    # Started again from the snapshot: the ranks meet at another address, in the same processes.
    again = KEY._replace(attempt=2)
    snapshot = (await gang.ended(KEY)).snapshot
    gang.start(again, slots, until=6, allowed=6, snapshot=snapshot)
    resumed = await gang.reports(again, 6)
    gang.scheduler.decide("a", again, wire.DECISION_CONTINUE, 6)
    for key in ranks(again):
        assert (await gang.ended(key)).reason == common_pb2.RUN_END_REASON_UNTIL
    assert [gang.process(m, k) for m, k in zip(slots, (first, second), strict=True)] == before
    places = re.findall(r"gang 127.0.0.1,127.0.0.1 127.0.0.1:(\d+)", gang.log("a/0", first))
    assert len(set(places)) == 2
    assert re.findall(r"environment (.*)", gang.log("a/1", second)) == [f"1 2 127.0.0.1 {port}" for port in places]
    # Another job on the same processes, without interruption, gives the same bits.
    whole = RunKey(StreamId("e1"), "j2", 1, 0)
    gang.start(whole, slots, until=6, allowed=6)
    assert await gang.reports(whole, 6) == straight | resumed
    # A run on one slot has no gang.
    gang.scheduler.decide("a", whole, wire.DECISION_TERMINATE, 6)
    for key in ranks(whole):
        assert (await gang.ended(key)).reason == common_pb2.RUN_END_REASON_TERMINATED
    alone = RunKey(StreamId("e1"), "j3", 1, 0)
    gang.start(alone, ["a/1"], until=1, allowed=1)
    await gang.reports(alone, 1)
    assert "environment - - - -" in gang.log("a/1", alone)


async def test_a_gang_parked_at_its_until_goes_on_when_that_moves(gang: Gang) -> None:
    await gang.cluster.agent("a")
    await gang.cluster.agent("b")
    gang.start(KEY, ["a/0", "b/0"], until=2, allowed=2)
    await gang.reports(KEY, 2)
    gang.scheduler.decide("a", KEY, wire.DECISION_PARK, 2)
    gang.scheduler.send("a", KEY, amend=wire.AmendRun(ticket="t", until=4))
    assert (await gang.scheduler.amended(KEY, "t")).accepted
    gang.scheduler.decide("a", KEY, wire.DECISION_CONTINUE, 3, allowed=4)
    await gang.reports(KEY, 4)
    gang.scheduler.decide("a", KEY, wire.DECISION_CONTINUE, 4)
    for key in ranks(KEY):
        ended = await gang.ended(key)
        assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_UNTIL, 4)


@pytest.mark.parametrize("culprit", [0, 1])
async def test_the_failure_of_any_ranks_code_is_the_failure_of_all(gang: Gang, culprit: int) -> None:
    await gang.cluster.agent(slots=2)
    fault = {"misdeed": "raise", "culprit": culprit, "at": 3}
    gang.start(KEY, ["a/0", "a/1"], until=9, allowed=9, hyperparameters=fault)
    for key in ranks(KEY):
        ended = await gang.ended(key)
        assert ended.reason == common_pb2.RUN_END_REASON_FAILED, ended
        assert ended.failure == common_pb2.FAILURE_CLASS_USER_CODE
        assert "ValueError: a bad shard" in ended.message
    assert [r.position for r in gang.scheduler.reports(KEY)] == [1, 2]


@pytest.mark.parametrize("killed", [0, 1])
async def test_a_killed_rank_is_a_loss_for_all_whatever_their_code_makes_of_it(gang: Gang, killed: int) -> None:
    await gang.cluster.agent("a")
    await gang.cluster.agent("b")
    slots = ["a/0", "b/0"]
    gang.start(KEY, slots, until=1000, allowed=1000, hyperparameters={"seconds": 0.02})
    await gang.reports(KEY, 3)
    process = gang.process(slots[killed], ranks(KEY)[killed])
    os.kill(process, signal.SIGKILL)
    await gone(process)
    for key in ranks(KEY):
        ended = await gang.ended(key)
        assert ended.reason == common_pb2.RUN_END_REASON_LOST, ended
        assert ended.failure == common_pb2.FAILURE_CLASS_INFRASTRUCTURE
        said = "killed by signal SIGKILL" if key.rank == killed else f"rank {killed} is gone"
        assert said in ended.message


async def test_a_killed_rank_is_felt_where_rank_0_waits_for_a_decision(gang: Gang) -> None:
    await gang.cluster.agent(slots=2)
    gang.start(KEY, ["a/0", "a/1"], until=9, allowed=2)
    await gang.reports(KEY, 2)
    os.kill(gang.process("a/1", ranks(KEY)[1]), signal.SIGKILL)
    ended = await gang.ended(KEY)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_LOST, 2)
    assert ended.message == "rank 1 is gone: its connection ended"


@pytest.mark.parametrize("present", [0, 1])
async def test_a_rank_that_never_joins_ends_the_run_in_time(gang: Gang, present: int) -> None:
    limit = scaled(6.0) if present else 1.0  # The limit is long enough for a request to rank 0's agent.
    await gang.cluster.agent(slots=2, join_seconds=limit)
    gang.start(KEY, ["a/0", "a/1"], only=present)
    ended = await gang.ended(ranks(KEY)[present])
    assert ended.reason == common_pb2.RUN_END_REASON_LOST
    assert ended.failure == common_pb2.FAILURE_CLASS_INFRASTRUCTURE
    if present == 0:
        expected = f"of 2 ranks, not joined within {limit:g} s: 1"
    else:
        expected = f"was not ready in {limit:g} s: run 1 of job j1"
    assert expected in ended.message


async def test_a_rank_of_an_older_attempt_does_not_find_the_newer_gang(gang: Gang) -> None:
    await gang.cluster.agent(slots=2, join_seconds=1.0)
    gang.start(KEY._replace(attempt=2), ["a/0", "a/1"], only=0)
    gang.start(KEY, ["a/0", "a/1"], only=1)
    stale = await gang.ended(ranks(KEY)[1])
    assert stale.reason == common_pb2.RUN_END_REASON_LOST
    assert "not joined" in (await gang.ended(KEY._replace(attempt=2))).message


async def test_a_gang_whose_nodes_are_not_known_is_lost_with_that_reason(gang: Gang) -> None:
    await gang.cluster.agent()
    start = wire.StartRun(slot="a/0", world=2, rank_addresses=["", "127.0.0.1:9"])
    start.program.CopyFrom(wire.RunProgram(bundle=gang.bundle, trainer="train.py:Linear"))
    gang.scheduler.send("a", KEY, start=start)
    ended = await gang.ended(KEY)
    assert ended.reason == common_pb2.RUN_END_REASON_LOST
    assert "addresses only: ['', '127.0.0.1:9']" in ended.message


async def test_code_that_does_not_notice_that_its_gang_is_broken_is_ended(gang: Gang) -> None:
    await gang.cluster.agent(slots=2)
    # Its process gives up earlier than normal, so that the test need not wait.
    gang.bundle = gang.trainer("\n\nfrom hopyard._runtime.runner import gang\n\ngang.ABANDON_SECONDS = 0.5\n")
    fault = {"misdeed": "sleep", "culprit": 0, "at": 3}
    gang.start(KEY, ["a/0", "a/1"], until=9, allowed=9, hyperparameters=fault)
    await gang.reports(KEY, 2)
    process = gang.process("a/0", KEY)
    os.kill(gang.process("a/1", ranks(KEY)[1]), signal.SIGKILL)
    ended = await gang.ended(KEY)
    assert ended.reason == common_pb2.RUN_END_REASON_LOST
    assert ended.message == "another rank of its gang was gone, and its code did not come to notice"
    await gone(process)
