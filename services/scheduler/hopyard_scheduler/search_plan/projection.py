"""Projection of the search plan: for each job, its path through the nodes of the plan, and its stored snapshots."""

from __future__ import annotations

import json

from hopyard.sequences import NodeStretch, plan_path
from hopyard.v1 import appstat_pb2
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.stream import Stream

_MOST = 10_000


class PlanRows:
    """Makes the rows of jobs for the search plan in AppStat.

    It remembers what it returned, so that an unchanged row is written only once per start of the scheduler. AppStat
    accepts repeated rows.
    """

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], tuple[int, frozenset[tuple[int, str]]]] = {}

    def row(self, stream: Stream, job: Job) -> appstat_pb2.Projection | None:
        """Return the row of a job, to be written to AppStat.

        Returns:
            None if the last returned row of the job is still valid, if the policy of the experiment does not share
            training, or if the job's configuration does not determine its training: it is not known yet, or the job is
            a fork.
        """
        root, limit = job.experiment.settings.plan, job.max_position
        if not root or job.hyperparameters is None or job.copied:
            return None
        stored = {
            (position, entry.info.sha256): entry
            for position in stream.snapshots.positions(job.id)
            if (entry := stream.snapshots.get(job.id, position)) is not None and entry.stored
        }
        name = (job.experiment.id, job.id)
        before = self._told.get(name)
        if before is not None and before[0] == limit and before[1].issuperset(stored):
            return None
        path = plan_path(job.hyperparameters, limit, root)
        if len(path) > _MOST:
            path = ()
        self._told[name] = (limit, frozenset(stored))
        trial = appstat_pb2.PlanTrial(
            experiment=job.experiment.id,
            job=job.id,
            root=root,
            path=map(_stretch, path),
            snapshots=[
                appstat_pb2.PlanSnapshot(
                    position=position,
                    sha256=sha256,
                    size_bytes=entry.info.size,
                    provider=entry.info.provider,
                    owner=stream.id,
                )
                for (position, sha256), entry in sorted(stored.items())
            ],
        )
        return appstat_pb2.Projection(plan_trial=trial)

    def forget(self, experiment: str) -> None:
        """Release the remembered rows of an ended experiment's jobs."""
        self._told = {name: told for name, told in self._told.items() if name[0] != experiment}


def _stretch(one: NodeStretch) -> appstat_pb2.PlanStretch:
    values = json.dumps(one.values, sort_keys=True, ensure_ascii=False)
    return appstat_pb2.PlanStretch(node=one.node, parent=one.parent, start=one.start, end=one.end, values_json=values)
