"""Processes that flood their log: of every kind of program, on a real agent."""

from __future__ import annotations

import pytest

from hopyard._net.rpc import channel
from hopyard._runtime import bundle
from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2, node_agent_pb2, node_agent_pb2_grpc
from hopyard.v1 import resource_manager_pb2 as wire
from tests.integration.nodeagent.cluster import Cluster
from tests.integration.nodeagent.fakes import headers
from tests.integration.nodeagent.test_commands import begin

KEY = RunKey(StreamId("e1"), "j1", 1, 0)
LIMIT = 1 << 20
FLOOD = 100 << 20

SCRIPT = f"""
import hopyard

print("the first line", flush=True)
for number in range({FLOOD} // 1_000_000):
    print("x" * 999_999, flush=True)
hopyard.report(x=1.0)
print("the last line", flush=True)
"""

PROGRAM = f"""
print("the first line", flush=True)
for number in range({FLOOD} // 100_000 // 3):
    print(("x" * 99_999 + chr(10)) * 3 + f"acc={{number}}", flush=True)
print("the last line", flush=True)
"""

TRAINER = f"""
from hopyard import Trainer


class Flood(Trainer):
    def setup(self, hyperparameters, changed):
        print("the first line", flush=True)

    def train(self):
        for number in range({FLOOD} // 1_000_000):
            print("x" * 999_999, flush=True)
        print("the last line", flush=True)
        return {{"x": 1.0}}

    def save(self, directory):
        (directory / "state").write_text("")

    def load(self, directory):
        pass
"""


@pytest.mark.parametrize("kind", ["script", "log", "trainer"])
async def test_a_flood_of_100_mb_leaves_the_beginning_and_the_end(cluster: Cluster, kind: str) -> None:
    agent = await cluster.agent()
    limits = {"log_bytes_per_job": LIMIT}
    match kind:
        case "script":
            begin(cluster, KEY, {"train.py": SCRIPT}, "python", "train.py", program=limits, until=9, allowed=9)
        case "log":
            code, metrics, end = {"train.py": PROGRAM}, {"acc": r"^acc=(\S+)"}, 10**6
            command = ("python", "train.py")
            begin(cluster, KEY, code, *command, metrics=metrics, program=limits, until=end, allowed=end)
        case _:
            (folder := cluster.folder / "flood").mkdir()
            (folder / "flood.py").write_text(TRAINER)
            begin_trainer(cluster, "flood.py:Flood")
            await cluster.scheduler.reported(KEY, 1)
            cluster.scheduler.decide("a", KEY, wire.DECISION_TERMINATE, 1)
    ended = await cluster.scheduler.ended(KEY)
    expected = common_pb2.RUN_END_REASON_TERMINATED if kind == "trainer" else common_pb2.RUN_END_REASON_UNTIL
    assert ended.reason == expected, ended.message
    if kind == "log":  # No metric in the cut part was missed.
        assert [report.metrics["acc"] for report in cluster.scheduler.reports(KEY)] == [*range(FLOOD // 100_000 // 3)]
    log = cluster.folder / "a" / "logs" / "jobs" / "e1" / "j1.log"
    assert log.stat().st_size > FLOOD * 9 // 10
    assert log.stat().st_blocks * 512 <= LIMIT + 64 * 1024
    async with channel(agent.address, token=None) as connection:
        stub = node_agent_pb2_grpc.NodeAgentServiceStub(connection)
        request = node_agent_pb2.StreamLogsRequest(experiment="e1", job="j1")
        text = b"".join(
            [message.data async for message in stub.StreamLogs(request, metadata=headers("StreamLogs", "e1/j1"))]
        ).decode()
    assert text.startswith("the first line\n")
    assert text.endswith("the last line\n")
    assert text.count("of output were cut out here: logs.per_job is 1.0 MiB]") == 1
    assert len(text) < LIMIT


def begin_trainer(cluster: Cluster, trainer: str) -> None:
    """Start a run of a trainer in the folder `flood`."""
    code = cluster.store.add(bundle.pack(cluster.folder / "flood").data)
    program = wire.RunProgram(bundle=code, trainer=trainer, snapshot_provider="framework", log_bytes_per_job=LIMIT)
    cluster.scheduler.send(
        "a", KEY, start=wire.StartRun(slot="a/0", seed=7, world=1, program=program, until=1, allowed=1)
    )
