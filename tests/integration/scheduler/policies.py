"""Policies for tests: some behave unusually, others do what a policy must not."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from hopyard.policy import CONTINUE, Cluster, Decision, IterationFinish, JobState, Policy, ShareChange
from hopyard_policies.default import DefaultPolicy
from hopyard_policies.median import MedianPolicy


class Wrong(Policy):
    """Creates its jobs, then gives the wrong command that `what` names."""

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
            cluster.start_job(job, cluster.idle_slots()[0].id, until=wrong)


class Yielding(DefaultPolicy):
    """Suspends its newest jobs as soon as its share shrinks."""

    def on_share_change(self, cluster: Cluster, change: ShareChange) -> None:
        live = [job for job in cluster.live_jobs() if job.state is not JobState.SUSPENDING]
        for job in live[change.slots :]:
            cluster.suspend_job(job.id)


class Single(DefaultPolicy):
    """Has a demand of at most one slot."""

    def demand(self, cluster: Cluster) -> int:
        return min(super().demand(cluster), 1)


class Spare(DefaultPolicy):
    """Has a demand of two slots, whatever it uses."""

    def demand(self, cluster: Cluster) -> int:
        return 2


class Units(Policy):
    """Trains in units of `unit` positions; a run cannot be preempted within a unit."""

    def __init__(self, unit: int) -> None:
        self._unit = unit

    def allocate_jobs(self, cluster: Cluster) -> None:
        for _ in range(cluster.experiment.jobs_left):
            cluster.create_job()
        for slot, job in zip(cluster.idle_slots(), cluster.idle_jobs(), strict=False):
            until = min(job.position + self._unit, cluster.experiment.max_position)
            cluster.start_job(job.id, slot.id, until=until, allowed=until, preemptible=False)

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return CONTINUE


class Thinks(Policy):
    """Trains all its jobs, and does not return from the up-call for a second position until the test allows it.

    Args:
        how: `loop`: busy in Python; `wait`: asleep.
        where: A folder. The policy creates the file `how` there when it begins to hang, and returns once the file `behaves`
            exists.
    """

    def __init__(self, how: str, where: str) -> None:
        self._how = how
        self._where = Path(where)

    def allocate_jobs(self, cluster: Cluster) -> None:
        for slot in cluster.idle_slots():
            job = cluster.get_idle_job()
            if job is not None:
                cluster.start_job(job, slot.id)
        for _ in range(cluster.experiment.jobs_left):
            cluster.create_job()

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        if event.position == 2 and not self._behaves():
            (self._where / self._how).touch()
            while not self._behaves():
                if self._how == "wait":
                    time.sleep(0.02)
        return CONTINUE

    def _behaves(self) -> bool:
        return (self._where / "behaves").exists()


class Unmakeable(Policy):
    """Never completes its construction."""

    def __init__(self) -> None:
        threading.Event().wait()

    def allocate_jobs(self, cluster: Cluster) -> None:
        return


class Crashes(DefaultPolicy):
    """Ends its process at the first report."""

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        os._exit(3)


class OwnMedian(MedianPolicy):
    """A policy that does not come with Hopyard, though it inherits from one that does."""


class Many(DefaultPolicy):
    """Creates all jobs with its first answer, and no job later."""

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Create as many jobs as the experiment allows."""
        for _ in range(cluster.experiment.jobs_left):
            cluster.create_job()
