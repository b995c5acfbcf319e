"""A view of the cluster restricted to one experiment of a group: its settings (`ExperimentView`), jobs and best result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from typing_extensions import override

from hopyard.policy import Cluster, CurvePoint, ExperimentView, Incumbent, JobState, JobView
from hopyard.policy.vocabulary import Command, CreateJob, EndExperiment, ForkJob
from hopyard_policies.base.cluster_proxy import PassingCluster


class MemberView(PassingCluster):
    """Shows one experiment of a group. Jobs created through it belong to that experiment; slots are those of the group.

    Args:
        cluster: The real cluster.
        member: The id of the experiment.
        made: The ids of the experiment's jobs, in order of creation; may contain ids that do not exist.
        best: The best result of the experiment; None: none yet.
    """

    def __init__(self, cluster: Cluster, member: str, made: Collection[str], best: Incumbent | None) -> None:
        super().__init__(cluster)
        self._member, self._best = member, best
        self._terms = cluster.experiments[member]
        self._jobs = _Own(cluster.jobs, made)
        self._states: Counter[JobState] | None = None

    @property
    @override
    def experiment(self) -> ExperimentView:
        return self._terms

    @property
    @override
    def jobs(self) -> Mapping[str, JobView]:
        return self._jobs

    @override
    def idle_jobs(self) -> Sequence[JobView]:
        return [job for job in self._cluster.idle_jobs() if job.id in self._jobs]

    @override
    def count(self, *states: JobState) -> int:
        if not self._cluster.count(*states):  # Then none of its own jobs is in these states.
            return 0
        if self._states is None:
            self._states = Counter(self._jobs.states())
        return sum(self._states[state] for state in states)

    @override
    def curve(self, job: str) -> Sequence[CurvePoint]:
        return self._cluster.curve(job)

    @override
    def snapshots(self, job: str) -> Sequence[int]:
        return self._cluster.snapshots(job)

    @property
    @override
    def incumbent(self) -> Incumbent | None:
        return self._best

    @override
    def submit(self, command: Command) -> None:
        if isinstance(command, CreateJob | ForkJob | EndExperiment):
            command = replace(command, experiment=self._member)
        self._cluster.submit(command)


class _Own(Mapping[str, JobView]):
    def __init__(self, jobs: Mapping[str, JobView], made: Collection[str]) -> None:
        self._all = jobs
        self._made = made

    def __len__(self) -> int:
        return sum([job in self._all for job in self._made])

    def __iter__(self) -> Iterator[str]:
        return (job for job in self._made if job in self._all)

    @override
    def __contains__(self, job: object) -> bool:
        return job in self._made and job in self._all

    def __getitem__(self, job: str) -> JobView:
        if job not in self._made:
            raise KeyError(job)
        return self._all[job]

    def states(self) -> list[JobState]:
        """Return the states of the experiment's existing jobs, in order of creation."""
        jobs = self._all
        return [jobs[job].state for job in self._made if job in jobs]
