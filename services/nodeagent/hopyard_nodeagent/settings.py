"""The settings of an agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hopyard._net.rpc import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSettings:
    """One slot (slot) of the node.

    Attributes:
        id: "node/index".
        cpus: Number of CPU threads of a training process (>= 1).
        gpus: The visible GPU indices.
        hardware: The kind of host (`hopyard_nodeagent.hardware`); empty: unknown.
    """

    id: str
    cpus: int = 1
    gpus: tuple[int, ...] = ()
    hardware: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Everything an agent needs to know.

    Attributes:
        node: the node's id, unique in the cluster.
        scheduler: HOST:PORT of the scheduler, or the folder (with a /) of one on this computer, which may be yet to start.
        appstat: HOST:PORT of AppStat; None: asked of the scheduler.
        data: the agent's own folder: snapshots, bundles, logs, scratch.
        slots: what runs training processes.
        host: where NodeAgentService listens.
        port: 0 takes a free one.
        insecure: listen beyond this computer without encryption.
        idle_runner_seconds: how long a warm runner without work is kept.
        spare_runners: processes that are started at once, before there is a program for them.
        attach_seconds: how long a new runner may take until it attaches.
        join_seconds: how long the ranks of a gang may take to come together.
        lease_seconds: lease of the runners until the scheduler names one.
        transfer_idle_seconds: how long a peer or the store may be silent in a transfer before the next source is tried.
        snapshot_quota: bytes that the snapshot folder may hold; copies of what is in the store are deleted above it. None:
            no limit.
        data_quota: bytes that copies of partitions by URL may take; those used longest ago are deleted above it. None: no limit.
        criu: the CRIU that takes snapshots of processes; empty: the one that is found, "off": none.
        image_memory: bytes of memory that images of processes may take while they are taken and restored; more go through the
            disk. None: a quarter of this computer's.
        flush_seconds: how long the last messages may take when the agent stops.
        backoff: waits between tries to reach the scheduler or the store.
    """

    node: str
    scheduler: str
    data: Path
    slots: tuple[SlotSettings, ...]
    appstat: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    insecure: bool = False
    idle_runner_seconds: float = 300.0
    spare_runners: int = 0
    attach_seconds: float = 60.0
    join_seconds: float = 300.0
    lease_seconds: float = 10.0
    transfer_idle_seconds: float = 30.0
    snapshot_quota: int | None = None
    data_quota: int | None = None
    criu: str = ""
    image_memory: int | None = None
    flush_seconds: float = 8.0
    backoff: Backoff = field(default_factory=lambda: Backoff(first=0.2, most=5.0))
