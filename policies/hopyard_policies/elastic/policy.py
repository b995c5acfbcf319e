"""What policies have in common whose jobs train on changing numbers of machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hopyard.policy import ApplicationStat, Cluster, JobView, Policy, RunEnd, ShareChange
from hopyard_policies.elastic.elastic import Elastic


class ElasticPolicy(Policy):
    """A policy whose jobs train on gangs where its parameter `elastic` says so, and otherwise on one machine each.

    Args:
        elastic: The parameter; None: it is not given.

    Raises:
        ValueError: The parameter is not as it must be.
    """

    def __init__(self, elastic: Mapping[str, Any] | None) -> None:
        self._elastic = None if elastic is None else Elastic(elastic)
        self.scales = self._elastic is not None

    def on_profile(self, cluster: Cluster, stat: ApplicationStat) -> None:
        """How long a unit takes on some machines is known."""
        if self._elastic is not None:
            self._elastic.on_profile(stat)

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """A run is over: perhaps one that only measured."""
        if self._elastic is not None:
            self._elastic.on_run_end(run)

    def on_share_change(self, cluster: Cluster, change: ShareChange) -> None:
        """Elastic jobs make room for each other."""
        if self._elastic is not None:
            self._elastic.narrow(cluster, self._way)

    def gang(self, cluster: Cluster) -> int:
        """The machines that a job needs at least."""
        return self._elastic.least if self._elastic is not None else 1

    def _useful(self, cluster: Cluster, waiting: int) -> int:
        """Machines that can be of use to jobs that train and to so many others."""
        if self._elastic is not None:
            return self._elastic.demand(cluster, waiting, self._way)
        return cluster.busy_machines() + waiting

    def _way(self, job: JobView) -> int:
        """Units that a run of the job has before it, or would have."""
        return job.max_position - job.position
