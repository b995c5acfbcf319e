"""Base class for cluster views that an outer policy shows to its inner policy."""

from __future__ import annotations

import random
from abc import ABC
from collections.abc import Mapping, Sequence

from typing_extensions import override

from hopyard.policy import Cluster, SlotView


class PassingCluster(Cluster, ABC):
    """A cluster view that delegates time, random numbers, share, slots, backoffs, new job ids and new tickets to another cluster.

    Subclasses define the experiments, jobs, learning curves, snapshots and commands.

    Args:
        cluster: The cluster to wrap.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    @override
    def now(self) -> float:
        return self._cluster.now

    @property
    @override
    def rng(self) -> random.Random:
        return self._cluster.rng

    @property
    @override
    def share(self) -> int:
        return self._cluster.share

    @property
    @override
    def slots(self) -> Mapping[str, SlotView]:
        return self._cluster.slots

    @override
    def idle_slots(self) -> Sequence[SlotView]:
        return self._cluster.idle_slots()

    @override
    def backs_off(self, job: str) -> bool:
        return self._cluster.backs_off(job)

    @override
    def new_job_id(self) -> str:
        return self._cluster.new_job_id()

    @override
    def new_ticket(self) -> str:
        return self._cluster.new_ticket()
