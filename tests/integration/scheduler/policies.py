"""Policies that do what policies must not."""

from __future__ import annotations

from typing import Any

from hopyard.policy import Cluster, Policy


class Wrong(Policy):
    """Creates its jobs, then gives one wrong command."""

    def __init__(self, what: str) -> None:
        self._what = what

    def allocate_jobs(self, cluster: Cluster) -> None:
        wrong: Any = {"text": "5", "fraction": 5.5}.get(self._what)
        if cluster.experiment.jobs_left:
            too_large: Any = {"x": 2**70} if self._what == "large" else None
            cluster.create_job(too_large)
        elif self._what == "raise":
            raise RuntimeError("this policy has had enough")
        elif self._what == "set":
            cluster.ask("plan", {1, 2})
        elif job := cluster.get_idle_job():
            cluster.start_job(job, cluster.idle_machines()[0].id, until=wrong)
