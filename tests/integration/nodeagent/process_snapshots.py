"""Jobs whose processes are dumped and restored, and what is left of them."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard._runtime import bundle
from hopyard._runtime.criu import procfs
from hopyard._runtime.criu.process_group import MOUNT
from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.snapshots.process_images import MEMORY
from tests.integration.nodeagent.cluster import Cluster
from tests.timing import HANG_SECONDS

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
    slot_id = f"{node}/{slot}"
    # Any other agent of the test may have it.
    peers = [agent.address for name, agent in cluster.agents.items() if snapshot is not None and name != node]
    start = wire.StartRun(
        slot=slot_id, hyperparameters=values, seed=7, world=1, program=program, snapshot_peers=peers, **fields
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
    processes = [procfs.name(pid) for home in homes for pid in procfs.mounted(MOUNT, home)]
    return processes + [image for home in homes for image in images_of(home)]


async def nothing_left(cluster: Cluster) -> None:
    """Wait until nothing is left; what ends a run does not wait for the last of it."""
    async with asyncio.timeout(HANG_SECONDS):
        while left(cluster):  # noqa: ASYNC110 (nobody tells of it)
            await asyncio.sleep(0.05)


async def comes(condition: Callable[[], bool]) -> None:
    """Wait for something on the disk or in memory."""
    async with asyncio.timeout(HANG_SECONDS):
        while not condition():  # noqa: ASYNC110 (nobody tells of it)
            await asyncio.sleep(0.02)


async def suspended(cluster: Cluster, key: RunKey, node: str, position: int) -> wire.RunEnded:
    """Suspend a run at a position at which it waits."""
    await cluster.scheduler.reported(key, position)
    cluster.scheduler.decide(node, key, wire.DECISION_SUSPEND, position)
    return await cluster.scheduler.ended(key)


async def begun(cluster: Cluster, **settings: Any) -> tuple[RunKey, common_pb2.Snapshot]:
    """A job of one agent that was suspended at position 2."""
    await cluster.agent("a", **settings)
    first = RunKey(StreamId("e1"), "j1", 1, 0)
    begin(cluster, first, SCRIPT, allowed=2)
    return first, (await suspended(cluster, first, "a", 2)).snapshot


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
