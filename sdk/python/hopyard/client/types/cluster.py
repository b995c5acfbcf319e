"""Nodes, slots and the services of a cluster as the client returns them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from hopyard.policy.vocabulary.reasons import Argument, ReasonCode


class NodeState(enum.Enum):
    """The state of a node.

    UP: it accepts runs. DRAINING: a person drained it, and it still has runs, or snapshots that only it has. DRAINED: a person drained
    it, and nothing on it is needed. LEAVING: its agent is stopping. LOST: its agent is not connected.
    """

    UP = "UP"
    DRAINING = "DRAINING"
    DRAINED = "DRAINED"
    LEAVING = "LEAVING"
    LOST = "LOST"


@dataclass(frozen=True, slots=True)
class Slot:
    """One schedulable place on a node.

    Attributes:
        id: "NODE/INDEX", such as "node1/0".
        node: Id of the node.
        experiment: Id of the experiment whose job runs on it, else of the one that reserves it (of a group, its first
            experiment); None: none.
        job: Id of the job that runs on it; None: it is idle.
        attempt: Number of the run on it within its job, from 1; meaningless if `job` is None.
        cpus: Number of CPU threads of a training process on it.
        gpus: Indices of the GPUs that a training process on it sees.
        rank: Rank in its gang of the process that runs on it; 0 without a gang.
        world: Number of slots of the run on it, which is the number of ranks of the gang; 1 without a gang.
        hardware: The kind of host, as a text that is equal for hosts on which training has the same speed; empty: unknown.
    """

    id: str
    node: str
    experiment: str | None = None
    job: str | None = None
    attempt: int = 0
    cpus: int = 0
    gpus: tuple[int, ...] = ()
    rank: int = 0
    world: int = 1
    hardware: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, or a MIG instance of a GPU, that slots of a node use.

    Attributes:
        uuid: "GPU-..." or "MIG-..."; empty: unknown.
        index: Index on the node, as nvidia-smi shows it; of a MIG instance: the index of its GPU.
        model: Name of the model, such as "NVIDIA A100-SXM4-80GB"; empty: unknown.
        memory_bytes: Size of its memory; 0: unknown.
        memory_used_bytes: Memory that all processes on the node use now; None: unknown.
        utilization: Part of the time in which it computes now, 0 to 1; None: unknown, such as of MIG instances.
        slots: Ids of the slots whose training processes see it.
    """

    uuid: str
    index: int
    model: str
    memory_bytes: int
    memory_used_bytes: int | None = None
    utilization: float | None = None
    slots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """A host with a node agent.

    Attributes:
        id: Id of the node.
        address: Address of its agent.
        state: Whether it accepts runs.
        slots: Its slots.
        silent_seconds: Seconds since the scheduler received the last message of the agent.
        gpus: The GPUs of its slots.
        state_seconds: Seconds since it entered its state (of a drained node: since it was drained); None: unknown.
        reason: Why it is in its state, as a sentence; empty: it is UP.
        reason_code: The code of the reason, for programs; None: no reason.
        reason_args: The arguments of the reason by name.
        drain_seconds_left: Seconds until the deadline of its drain, at least 0; None: it has none.
    """

    id: str
    address: str
    state: NodeState
    slots: tuple[Slot, ...] = ()
    silent_seconds: float = 0.0
    gpus: tuple[Gpu, ...] = ()
    state_seconds: float | None = None
    reason: str = ""
    reason_code: ReasonCode | None = None
    reason_args: Mapping[str, Argument] = field(default_factory=dict)
    drain_seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterAddresses:
    """Addresses and version of the services of a cluster.

    Attributes:
        epoch: Epoch of the scheduler.
        appstat_address: Address of AppStat.
        version: Version of the running Hopyard distribution.
        trouble: A problem that blocks the whole cluster now, such as a full journal disk, as a sentence; empty: none.
        now: The scheduler's clock at the time of the response, in seconds since the Unix epoch; None: an older
            scheduler does not send it.
    """

    epoch: int
    appstat_address: str
    version: str
    trouble: str = ""
    now: float | None = None
