"""The settings of a node agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hopyard._net.rpc import Backoff
from hopyard._runtime.gpus import GpuDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSettings:
    """The settings of one slot of the node.

    Attributes:
        id: Id of the slot, "NODE/INDEX".
        cpus: Number of CPU threads of a training process (>= 1).
        gpus: The GPUs that a training process sees.
        hardware: Description of the hardware (`hopyard_nodeagent.hardware.description`); empty: unknown.
    """

    id: str
    cpus: int = 1
    gpus: tuple[GpuDevice, ...] = ()
    hardware: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The settings of a node agent.

    Attributes:
        node: Id of the node, unique in the cluster.
        scheduler: Address of the scheduler, or the data folder (with a /) of a scheduler on this computer, which need not have
            started yet.
        appstat: Address of AppStat; None: the scheduler names it.
        data: Data folder of the agent, for snapshots, bundles, logs and temporary files.
        slots: The slots of the node.
        host: Address of the TCP port on which NodeAgentService listens, which requires `insecure`; None: a Unix socket in `data`.
        port: TCP port on which NodeAgentService listens; 0: any free port.
        insecure: Whether to allow TCP without encryption.
        idle_runner_seconds: Time in seconds for which a training process without a run is kept for reuse.
        spare_runners: Maximum number of training processes that are started at once, before there is a program for them.
        attach_seconds: Maximum time in seconds for a new training process to connect to the agent.
        join_seconds: Maximum time in seconds for the ranks of a gang to connect to each other.
        lease_seconds: Time in seconds without a message from the agent after which a training process considers the agent as lost. A
            lease that the scheduler sends replaces this value.
        transfer_idle_seconds: Time in seconds without progress after which a transfer from a peer or the store is abandoned and the
            next source is tried.
        snapshot_quota: Maximum size of the snapshot folder in bytes. Above it, copies of snapshots that are in the store are deleted.
            None: no limit.
        data_quota: Maximum size in bytes of the copies of partitions that were downloaded from URLs. Above it, the least recently used
            copies are deleted. None: no limit.
        criu: The CRIU program for snapshots of whole processes; empty: search for it; "off": do not use CRIU.
        image_memory: Maximum memory in bytes for process images while they are saved or restored; larger images use the disk. None: a
            quarter of this computer's memory.
        pass_env: Patterns of names of environment variables that training processes and predictors get from the agent, in addition
            to those that every process gets (`hopyard._common.environment`).
        adopt: Whether the data folder belongs to the scheduler's cluster from now on, even if it belonged to another one.
        contain: Whether the agent also ends processes that left the process session of their run: it becomes the parent of processes
            whose parents have ended (a subreaper), and uses control groups where it can. Only for an agent that shares its process with
            nothing else.
        gpu_seconds: Interval in seconds between two measurements of the use of GPUs.
        flush_seconds: Maximum time in seconds for the scheduler to acknowledge the last messages when the agent stops.
        backoff: Waiting times between attempts to reach the scheduler or the store.
    """

    node: str
    scheduler: str
    data: Path
    slots: tuple[SlotSettings, ...]
    appstat: str | None = None
    host: str | None = None
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
    pass_env: tuple[str, ...] = ()
    adopt: bool = False
    contain: bool = False
    gpu_seconds: float = 5.0
    flush_seconds: float = 8.0
    backoff: Backoff = field(default_factory=lambda: Backoff(first=0.2, most=5.0))
