"""The view that a policy in this process has of its experiment during an up-call.

It shows the core's state, read-only. The view takes the commands into account that the policy has given so far during the up-call,
although the core has not applied them yet: for example, `idle_slots` leaves out the slot of a started job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from typing_extensions import override

from hopyard.policy import (
    CommandError,
    CurvePoint,
    ExperimentView,
    Incumbent,
    JobView,
    SlotView,
)
from hopyard.policy.command_buffer import CollectingView
from hopyard.policy.vocabulary import CreateJob, Data, ExperimentId, JobState
from hopyard.space import Space
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.state.curve import CurveEntry
from hopyard_engine.core.state.entities import GrantedSlot, Job
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import Settings


def job_view(job: Job) -> JobView:
    """Return the view of a job that policies get."""
    return JobView(
        id=job.id,
        state=job.state,
        hyperparameters=job.hyperparameters or {},
        position=job.position,
        high_water=job.high_water,
        attempt=job.attempt,
        slots=job.run.slots if job.run is not None else (),
        priority=job.priority,
        parent=job.origin[0] if job.origin is not None and job.forked else "",
        fork_position=job.origin[1] if job.origin is not None and job.forked else 0,
        parked=job.run.parked if job.run is not None else False,
        ordinal=job.ordinal,
        experiment=job.experiment.id,
        max_position=job.max_position,
        displaced=job.displaced,
    )


def slot_view(slot: GrantedSlot) -> SlotView:
    """Return the view of a slot that policies get."""
    running = slot.run.job if slot.run is not None else ""
    return SlotView(slot.id, slot.node, running, slot.hardware)


def terms_view(settings: Settings, jobs_left: int, partitions: int, space: Space | None = None) -> ExperimentView:
    """Return the view of an experiment before its creation, as its policy sees it.

    Args:
        settings: Settings of the experiment.
        jobs_left: Number of jobs that may be created.
        partitions: Number of training partitions; 0: the data is not partitioned.
        space: Search space; None: unknown.
    """
    return ExperimentView(
        metric=settings.metric,
        mode=settings.mode,
        max_position=settings.max_position,
        target=settings.target,
        kill_threshold=settings.kill_threshold,
        jobs_left=jobs_left,
        seed=settings.seed,
        weight=settings.weight,
        space=space,
        partitions=partitions,
        concurrency=settings.concurrency,
        low=settings.low,
        high=settings.high,
    )


def experiment_view(
    experiment: Experiment, jobs_left: int, partitions: int, space: Space | None = None
) -> ExperimentView:
    """Return the current view of an experiment, as its policy sees it.

    Args:
        experiment: The experiment.
        jobs_left: Number of jobs that may still be created.
        partitions: Number of training partitions; 0: the data is not partitioned.
        space: Search space; None: unknown.
    """
    terms = terms_view(experiment.settings, jobs_left, partitions, space)
    return replace(
        terms, end_at=experiment.end_at(), id=experiment.id, running=experiment.running, plan=experiment.settings.plan
    )


class _KnownCurve(NamedTuple):
    """The learning curve of a job as policies see it, and what it was made from.

    Attributes:
        max_position: The maximum position of the job.
        reports: The number of recorded reports.
        points: The points.
    """

    max_position: int
    reports: int
    points: list[CurvePoint]


class JobViews:
    """A cache of one policy's views of jobs and experiments, of the curves of live jobs, and of the positions of snapshots.

    Only views of changed jobs are created again.

    Policies read all jobs often, and few jobs change between two reads.
    """

    def __init__(self) -> None:
        self._known: dict[str, JobView] = {}
        self._saved: dict[str, list[int]] = {}
        self._curves: dict[str, _KnownCurve] = {}
        self._looked: tuple[Stream | None, int, int] = (None, 0, 0)
        self._live: frozenset[str] = frozenset()
        self._settings: dict[ExperimentId, Settings] = {}
        self._terms: dict[str, tuple[Settings, ExperimentView]] = {}
        self._spaces: dict[str, Space] = {}

    def look(self, stream: Stream) -> None:
        """Drop the cached views of the jobs that have changed since the previous call.

        To be called when events were handled, before other methods.
        """
        settings = {experiment.id: experiment.settings for experiment in stream.experiments.values()}
        seen, touched, saved = self._looked
        if seen is not stream or any(self._settings.get(name) is not terms for name, terms in settings.items()):
            self._known.clear()
            self._saved.clear()
            self._curves.clear()
        else:
            for job in (*stream.touched.since(touched), *self._live, *stream.live):
                self._known.pop(job, None)
            for job in stream.snapshots.touched.since(saved):
                self._saved.pop(job, None)
        self._settings = settings
        self._looked = stream, stream.touched.count, stream.snapshots.touched.count
        live = frozenset(stream.live)
        for job in self._live - live:
            self._curves.pop(job, None)
        self._live = live

    def curve(self, stream: Stream, job: Job) -> list[CurvePoint]:
        """Return the learning curve of a job, in a new list.

        The points of a live job are kept, because policies read its curve after each report, and only new ones are added. A job that
        continues another one is read anew: the evaluation of a position of that other job may still be incomplete.
        """
        if job.id not in self._live or job.origin is not None:
            return _points(stream.curve(job))
        known, reports, points = self._curves.get(job.id), job.curve.added, list[CurvePoint]()
        if known is not None and known.max_position == job.max_position:
            points, new = known.points, reports[known.reports :]
            last = points[-1].position if points else -1
            # Otherwise a part of an evaluation has changed an earlier point.
            if all(a < b for a, b in pairwise((last, *new, job.max_position + 1))):
                points += _points(job.curve.points[position] for position in new)
            else:
                points = []
        points = points or _points(stream.curve(job))
        self._curves[job.id] = _KnownCurve(job.max_position, len(reports), points)
        return points.copy()

    def saved(self, stream: Stream, job: str) -> list[int]:
        """Return the positions of the available snapshots of the job with the id `job`, ascending; empty if the job is unknown."""
        found = self._saved.get(job)
        if found is None:
            found = self._saved[job] = stream.snapshots.positions(job)
        return found

    def space(self, experiment: Experiment) -> Space | None:
        """Return the search space of an experiment; None: unknown. It is converted once, because it never changes."""
        written, constraints = experiment.settings.space, experiment.settings.constraints
        if written is not None and experiment.id not in self._spaces:
            self._spaces[experiment.id] = Space.from_dict(written).constrained(constraints)
        return self._spaces.get(experiment.id)

    def terms(self, experiment: Experiment, jobs_left: int, partitions: int) -> ExperimentView:
        """Return the current view of an experiment.

        Args:
            experiment: The experiment.
            jobs_left: Number of jobs that may still be created.
            partitions: Number of training partitions; 0: the data is not partitioned.
        """
        settings, end_at, running = experiment.settings, experiment.end_at(), experiment.running
        known = self._terms.get(experiment.id)
        if known is not None and known[0] is settings:
            view = known[1]
            if view.jobs_left == jobs_left and view.end_at == end_at and view.running is running:
                return view
        view = experiment_view(experiment, jobs_left, partitions, self.space(experiment))
        self._terms[experiment.id] = (settings, view)
        return view

    def of(self, job: Job) -> JobView:
        """Return the current view of a job."""
        view = self._known.get(job.id)
        if view is None:
            view = self._known[job.id] = job_view(job)
        return view


def _points(entries: Iterable[CurveEntry]) -> list[CurvePoint]:
    return [CurvePoint(entry.position, entry.metrics, entry.seconds) for entry in entries]


class _Jobs(Mapping[str, JobView]):
    """A read-only mapping of job ids to views. Each view is created on first access, so unread jobs cost nothing.

    Args:
        jobs: The jobs of the stream by id.
        views: The cache that creates the views.
    """

    def __init__(self, jobs: Mapping[str, Job], views: JobViews) -> None:
        self._jobs = jobs
        self._views = views

    def __getitem__(self, key: str) -> JobView:
        return self._views.of(self._jobs[key])

    @override
    def __contains__(self, key: object) -> bool:
        return key in self._jobs

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    @override
    def values(self) -> ValuesView[JobView]:
        return _Values(self)

    def all(self) -> Iterator[JobView]:
        """Iterate over the views of all jobs, in the order of the jobs' creation."""
        return map(self._views.of, self._jobs.values())


class _Values(ValuesView[JobView]):
    """The values of a `_Jobs` mapping. Iteration needs no lookup by id.

    Args:
        jobs: The mapping.
    """

    def __init__(self, jobs: _Jobs) -> None:
        super().__init__(jobs)
        self._all = jobs.all

    @override
    def __iter__(self) -> Iterator[JobView]:
        return self._all()


class CoreView(CollectingView):
    """The view of one stream of the core during one up-call.

    Args:
        experiment: The stream.
        call: The up-call.
        views: The cache of the stream's policy; None: a new one.
    """

    def __init__(self, experiment: Stream, call: UpCall, views: JobViews | None = None) -> None:
        stream = self._stream = experiment
        super().__init__(call.number, call.at, call.seed, stream.ordinals, stream.slots, stream.earlier)
        self._views = views or JobViews()
        self._views.look(stream)
        self._data: Data | None = None
        self._jobs = _Jobs(experiment.jobs, self._views)
        self._terms: tuple[int, ExperimentView] | None = None
        self._experiments: Mapping[str, ExperimentView] | None = None

    @property
    @override
    def experiment(self) -> ExperimentView:
        given = len(self.commands)  # Only commands change the view during an up-call.
        if self._terms is None or self._terms[0] != given:
            self._terms = given, self._experiment()
        return self._terms[1]

    def _experiment(self) -> ExperimentView:
        stream = self._stream
        created = sum(isinstance(c, CreateJob) and c.limit is None for c in self.commands)
        jobs_left = max(stream.jobs_left - created, 0)
        if len(stream.experiments) == 1:
            return self._views.terms(stream.founder, jobs_left, self._partitions)
        live = [m for m in stream.experiments.values() if not m.state.ended] or [stream.founder]
        top = max(m.settings.max_position for m in live)
        running = any(m.running for m in live)
        terms = self._views.terms(live[0], jobs_left, self._partitions)
        return replace(terms, max_position=top, running=running, concurrency=stream.concurrency)

    @property
    @override
    def experiments(self) -> Mapping[str, ExperimentView]:
        if self._experiments is None:
            self._experiments = {
                m.id: self._views.terms(m, m.jobs_left if m.running else 0, self._partitions)
                for m in self._stream.experiments.values()
            }
        return self._experiments

    @property
    def _partitions(self) -> int:
        return self._stream.data.units if self._stream.data is not None else 0

    @property
    @override
    def share(self) -> int:
        return self._stream.share

    @property
    @override
    def jobs(self) -> Mapping[str, JobView]:
        return self._jobs

    @property
    @override
    def earlier(self) -> Mapping[str, JobView]:
        return {
            name: JobView(
                name,
                JobState.COMPLETED,
                one.hyperparameters,
                position=one.high_water,
                high_water=one.high_water,
                experiment=one.experiment,
                max_position=one.high_water,
            )
            for name, one in self._stream.earlier.items()
        }

    @property
    @override
    def scaling(self) -> Mapping[str, Mapping[int, float]]:
        found: dict[str, dict[int, float]] = {}
        for one in self._stream.scaling:
            found.setdefault(one.hardware, {})[one.slots] = one.seconds
        return found

    @property
    @override
    def slots(self) -> Mapping[str, SlotView]:
        return {name: slot_view(self._stream.slots[name]) for name in sorted(self._stream.slots)}

    @property
    @override
    def data(self) -> Data | None:
        if self._stream.data is None:
            return None
        if self._data is None:
            self._data = self._stream.data.view({slot.node for slot in self._stream.slots.values()})
        return self._data

    @override
    def idle_slots(self) -> Sequence[SlotView]:
        room = self._stream.share - self._stream.placed - len(self._used_slots)
        if room <= 0:
            return []
        free = [self._stream.slots[name] for name in sorted((self._stream.vacant | self._released) - self._used_slots)]
        return [slot_view(m) for m in free if m.idle][:room]

    @override
    def idle_jobs(self) -> Sequence[JobView]:
        return [self._views.of(job) for job in self._stream.idle_jobs() if job.id not in self._started]

    @override
    def waits(self, job: str) -> bool:
        return job in self._stream.idle and job not in self._started

    @override
    def backs_off(self, job: str) -> bool:
        found = self._stream.jobs.get(job)
        return found is not None and found.state.idle and found.experiment.running and job not in self._stream.idle

    @override
    def get_idle_job(self) -> str | None:
        return next((job for job in self._stream.idle if job not in self._started), None)

    @override
    def count(self, *states: JobState) -> int:
        return sum([self._stream.states.get(state, 0) for state in states])

    @override
    def queued(self) -> int:
        return len(self._stream.idle)

    @override
    def busy_slots(self) -> int:
        return self._stream.busy

    @override
    def live_jobs(self) -> Sequence[JobView]:
        live = sorted((self._stream.jobs[job] for job in self._stream.live), key=lambda job: job.ordinal)
        return [self._views.of(job) for job in live]

    @override
    def open_jobs(self) -> Sequence[JobView]:
        return [self._views.of(job) for job in sorted(self._stream.open.values(), key=lambda job: job.ordinal)]

    @override
    def curve(self, job: str) -> Sequence[CurvePoint]:
        if job in self._stream.earlier:
            return [CurvePoint(p.position, p.metrics, p.seconds) for p in self._stream.earlier[job].reports]
        found = self._stream.jobs.get(job)
        if found is None:
            raise CommandError(f"curve: there is no job {job!r}")
        return self._views.curve(self._stream, found)

    @override
    def snapshots(self, job: str) -> Sequence[int]:
        found = self._stream.jobs.get(job)
        if job in self._stream.earlier:
            return sorted(self._stream.earlier[job].snapshots)
        if found is None:
            raise CommandError(f"snapshots: there is no job {job!r}")
        own = self._views.saved(self._stream, job)
        if own:
            return list(own)
        source = self._stream.source_of(found) if found.forked else None
        return [source[1]] if source is not None else []

    @property
    @override
    def incumbent(self) -> Incumbent | None:
        best = self._stream.best
        return Incumbent(*best) if best is not None else None
