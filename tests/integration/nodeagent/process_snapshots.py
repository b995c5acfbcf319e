"""Helpers for tests of process snapshots: start jobs, and list the processes and images that are left."""

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
    """Start a run of a script, or with `log` a run in log mode with the metrics acc and loss."""
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
    # Any other agent of the test may have the snapshot.
    peers = [agent.address for name, agent in cluster.agents.items() if snapshot is not None and name != node]
    start = wire.StartRun(
        slot=slot_id, hyperparameters=values, seed=7, world=1, program=program, snapshot_peers=peers, **fields
    )
    if snapshot is not None:
        start.snapshot.CopyFrom(snapshot)
    cluster.scheduler.send(node, key, start=start)


def curve(cluster: Cluster, *keys: RunKey) -> dict[int, dict[str, float]]:
    """Return the metrics by position of several runs of one job; fail if a position was reported twice."""
    found: dict[int, dict[str, float]] = {}
    for key in keys:
        for report in cluster.scheduler.reports(key):
            if report.metrics:
                assert report.position not in found
                found[report.position] = dict(report.metrics)
    return found


def home_of(cluster: Cluster, node: str) -> str:
    """Return the id of an agent's data folder, which identifies its processes and images."""
    return (cluster.folder / node / "agent.id").read_text().strip()


def images_of(home: str) -> list[str]:
    """Return the paths of the images in memory of an agent with this id."""
    return [str(path) for path in MEMORY.glob(f"hopyard-{home}/*")]


def left(cluster: Cluster) -> list[str]:
    """Return the processes and images that are left of any job of these agents."""
    homes = [home_of(cluster, node) for node in cluster.agents]
    processes = [procfs.name(pid) for home in homes for pid in procfs.mounted(MOUNT, home)]
    return processes + [image for home in homes for image in images_of(home)]


async def nothing_left(cluster: Cluster) -> None:
    """Wait until no process and no image is left; the end of a run does not wait for their removal."""
    async with asyncio.timeout(HANG_SECONDS):
        while left(cluster):  # noqa: ASYNC110 (no event to wait for)
            await asyncio.sleep(0.05)


async def comes(condition: Callable[[], bool]) -> None:
    """Wait until a condition about files or memory is true."""
    async with asyncio.timeout(HANG_SECONDS):
        while not condition():  # noqa: ASYNC110 (no event to wait for)
            await asyncio.sleep(0.02)


async def suspended(cluster: Cluster, key: RunKey, node: str, position: int) -> wire.RunEnded:
    """Suspend a run that waits at `position`, and return its end."""
    await cluster.scheduler.reported(key, position)
    cluster.scheduler.decide(node, key, wire.DECISION_SUSPEND, position)
    return await cluster.scheduler.ended(key)


async def begun(cluster: Cluster, **settings: Any) -> tuple[RunKey, common_pb2.Snapshot]:
    """Start one agent and a job, suspend the job at position 2, and return its run and its snapshot."""
    await cluster.agent("a", **settings)
    first = RunKey(StreamId("e1"), "j1", 1, 0)
    begin(cluster, first, SCRIPT, allowed=2)
    return first, (await suspended(cluster, first, "a", 2)).snapshot


def meddling(criu: Path, folder: Path, call: str, times: int, instead: str) -> str:
    """Return the path of a CRIU that runs `instead` at the first `times` calls of the kind `call`.

    In `instead`, `$REAL` is the real CRIU and `$IMAGES` its image folder.
    """
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
