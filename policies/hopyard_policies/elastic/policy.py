"""Base class of policies with elastic jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hopyard.policy import ApplicationStat, Cluster, JobView, Policy, RunEnd, ShareChange
from hopyard_policies.elastic.elastic import Elastic


class ElasticPolicy(Policy):
    """Base class of policies whose jobs train on gangs if the parameter `elastic` is given, else on one slot each.

    Args:
        elastic: The options of `Elastic`; None: one slot for each job.

    Raises:
        ValueError: The parameter is invalid.
    """

    def __init__(self, elastic: Mapping[str, Any] | None) -> None:
        self._elastic = None if elastic is None else Elastic(elastic)
        self.scales = self._elastic is not None

    def on_profile(self, cluster: Cluster, stat: ApplicationStat) -> None:
        """Record the time of a unit that a profiling run has measured; do nothing without elastic jobs.

        A profiling run is a short run of a waiting job on some number of slots, whose training is discarded.

        Args:
            cluster: The view of the up-call.
            stat: The report of the profiling run.
        """
        if self._elastic is not None:
            self._elastic.on_profile(stat)

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """Record the end of a run if it was a profiling run, which measures the time of a unit; ignore other runs."""
        if self._elastic is not None:
            self._elastic.on_run_end(run)

    def on_share_change(self, cluster: Cluster, change: ShareChange) -> None:
        """Move elastic jobs to narrower gangs if they have more slots than the new share."""
        if self._elastic is not None:
            self._elastic.narrow(cluster, self._way)

    def gang(self, cluster: Cluster) -> int:
        """Return the size, in slots, of the smallest gang that a job may train on; 1 without elastic jobs."""
        return self._elastic.least if self._elastic is not None else 1

    def _useful(self, cluster: Cluster, waiting: int) -> int:
        """Return the number of slots that running jobs and `waiting` further jobs can use together.

        Args:
            cluster: The view of the up-call.
            waiting: The number of jobs that wait for slots.
        """
        if self._elastic is not None:
            return self._elastic.demand(cluster, waiting, self._way)
        return cluster.busy_slots() + waiting

    def _way(self, job: JobView) -> int:
        """Return the number of positions that the job must still train to its maximum position; subclasses may use an earlier end."""
        return job.max_position - job.position
