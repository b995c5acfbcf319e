"""State deltas: the changes of a stream's state since the last up-call, which are sent to its policy process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hopyard._net.rpc.enums import JOB_STATES, METRIC_MODES
from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard._runtime.policy_process.calls import fill_call
from hopyard._runtime.policy_process.commands import verdict_to_proto
from hopyard.policy import ExperimentView, JobView
from hopyard.policy.views import CurvePoint
from hopyard.policy.vocabulary import Data, Partition
from hopyard.v1 import common_pb2
from hopyard.v1 import policy_pb2 as pb
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.state.curve import CurveEntry
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.policy_host import experiment_view, job_view


class _KnownJob(NamedTuple):
    """A job as it was last sent to the policy process.

    Attributes:
        view: The job as policies see it.
        snapshots: The positions of its snapshots.
        queued: Its place among the idle jobs of equal priority, see `IdleQueue.place`; 0: it is not in the queue.
        prefix: The part of its learning curve that it has from the job from which it continues.
        points: The number of points of its own part of the learning curve that were sent.
    """

    view: JobView
    snapshots: tuple[int, ...]
    queued: int
    prefix: tuple[CurveEntry, ...]
    points: int


class _KnownSlot(NamedTuple):
    """A slot as it was last sent to the policy process.

    Attributes:
        node: The id of its node.
        job: The id of the job that runs on it; None: it is idle.
        reserved: True if it is reserved.
        draining: True if its node is being drained.
        hardware: The kind of host.
    """

    node: str
    job: str | None
    reserved: bool
    draining: bool
    hardware: str


class StateDelta:
    """The state of a stream that was sent to one policy process. Computes the changes for the next up-call.

    A new object represents a process that has received nothing.

    Args:
        curves: True if the process needs learning curves.
    """

    def __init__(self, *, curves: bool = True) -> None:
        self._curves = curves
        self._seen: Stream | None = None
        self._touched = 0
        self._snapshots = 0
        self._live: frozenset[str] = frozenset()
        self._jobs: dict[str, _KnownJob] = {}
        self._experiments: dict[str, pb.PolicyExperiment] = {}
        self._views: dict[str, tuple[ExperimentView, bool]] = {}
        self._slots: dict[str, _KnownSlot] = {}
        self._share: int | None = None
        self._made = 0
        self._best: tuple[str, int, float] | None = None
        self._data: Data | None = None
        self._loans = -1
        self._earlier: dict[str, tuple[int, ...]] = {}
        self._scaled = False

    def up_call(self, stream: Stream, call: UpCall, *, again: bool = False) -> pb.UpCall:
        """Return the message of an up-call with all changes of the stream's state since the previous message.

        Args:
            stream: The stream.
            call: The up-call.
            again: True if the up-call is repeated to rebuild the state of the policy. The message then has the same mark, so that
                the process knows it.
        """
        message = pb.UpCall(number=call.number, at=call.at, seed=call.seed, again=again)
        message.changes.extend(self._news(stream))
        message.verdicts.extend(map(verdict_to_proto, call.verdicts))
        fill_call(message, call.call)
        return message

    def _news(self, stream: Stream) -> Iterator[pb.StateChange]:
        tops = self._tops
        yield from self._terms(stream)
        yield from self._of_slots(stream)
        if stream.share != self._share:
            self._share = stream.share
            yield pb.StateChange(share=stream.share)
        if stream.snapshots.borrowed_count != self._loans or stream is not self._seen:
            self._loans = stream.snapshots.borrowed_count
            yield from self._of_earlier(stream)
        if not self._scaled:
            self._scaled = True
            for one in stream.scaling:
                known = pb.PolicyScaling(hardware=one.hardware, slots=one.slots, seconds=one.seconds)
                yield pb.StateChange(scaling=known)
        # Compare all jobs if a maximum position has changed, which concerns all jobs of an experiment, or if the stream is
        # in another core, whose counters of changes are not comparable.
        anew = self._tops != tops or stream is not self._seen
        yield from self._of_jobs(
            stream, [*stream.jobs, *(self._jobs.keys() - stream.jobs.keys())] if anew else self._candidates(stream)
        )
        self._seen = stream
        if stream.ordinals != self._made:
            self._made = stream.ordinals
            yield pb.StateChange(jobs_made=stream.ordinals)
        if stream.best is not None and stream.best != self._best:
            self._best = stream.best
            job, position, value = stream.best
            yield pb.StateChange(incumbent=pb.PolicyIncumbent(job=job, position=position, value=value))
        if stream.data is not None:
            data = stream.data.view({slot.node for slot in stream.slots.values()})
            if data != self._data:
                self._data = data
                yield pb.StateChange(data=_data(data))

    @property
    def _tops(self) -> dict[str, int]:
        return {name: message.max_position for name, message in self._experiments.items()}

    def _terms(self, stream: Stream) -> Iterator[pb.StateChange]:
        for experiment in stream.experiments.values():
            partitions = stream.data.units if stream.data is not None else 0
            jobs_left = experiment.jobs_left if experiment.running else 0
            seen = experiment_view(experiment, jobs_left, partitions), experiment.state.ended
            if self._views.get(experiment.id) == seen:
                continue
            self._views[experiment.id] = seen
            terms, over = seen
            message = terms_to_proto(terms, over=over)
            known = self._experiments.get(experiment.id)
            if known is None:
                settings = experiment.settings
                message.space_json = json.dumps(settings.space) if settings.space is not None else ""
                message.constraints.extend(settings.constraints)
            else:
                message.space_json = known.space_json
                message.constraints.extend(known.constraints)
            self._experiments[experiment.id] = message
            yield pb.StateChange(experiment=message)

    def _of_slots(self, stream: Stream) -> Iterator[pb.StateChange]:
        for name in [name for name in self._slots if name not in stream.slots]:
            del self._slots[name]
            yield pb.StateChange(slot_gone=name)
        changed = []
        for name, slot in stream.slots.items():
            job = slot.run.job if slot.run is not None else None
            known = _KnownSlot(slot.node, job, slot.reserved, name in stream.draining, slot.hardware)
            if self._slots.get(name) != known:
                self._slots[name] = known
                changed.append(name)
        for name in sorted(changed):
            known = self._slots[name]
            message = pb.PolicySlot(
                id=name,
                node=known.node,
                idle=known.job is None,
                job=known.job or "",
                reserved=known.reserved,
                draining=known.draining,
                hardware=known.hardware,
            )
            yield pb.StateChange(slot=message)

    def _of_earlier(self, stream: Stream) -> Iterator[pb.StateChange]:
        for name, one in stream.earlier.items():
            saved = tuple(sorted(one.snapshots))
            if self._earlier.get(name) != saved:
                self._earlier[name] = saved
                points = [
                    pb.PolicyPoint(position=r.position, metrics=r.metrics, seconds=r.seconds) for r in one.reports
                ]
                values = hyperparameters_to_proto(one.hyperparameters)
                told = pb.PolicyEarlier(
                    id=name, hyperparameters=values, points=points, snapshots=saved, experiment=one.experiment
                )
                yield pb.StateChange(earlier=told)

    def _candidates(self, stream: Stream) -> list[str]:
        """Return the ids of jobs that may have changed since the last message, in order of creation, then those of removed jobs."""
        names = {
            *stream.touched.since(self._touched),
            *stream.snapshots.touched.since(self._snapshots),
            *stream.live,
            *self._live,
        }
        there = sorted((stream.jobs[name] for name in names if name in stream.jobs), key=lambda job: job.ordinal)
        return [*(job.id for job in there), *sorted(names - stream.jobs.keys())]

    def _of_jobs(self, stream: Stream, names: Iterable[str]) -> Iterator[pb.StateChange]:
        for name in names:
            job = stream.jobs.get(name)
            if job is None:
                if self._jobs.pop(name, None) is not None:
                    yield pb.StateChange(job_gone=name)
                continue
            yield from self._of_job(stream, job)
        self._touched, self._snapshots = stream.touched.count, stream.snapshots.touched.count
        self._live = frozenset(stream.live)

    def _of_job(self, stream: Stream, job: Job) -> Iterator[pb.StateChange]:
        known = self._jobs.get(job.id)
        snapshots, queued = tuple(stream.snapshots.positions(job.id)), stream.idle.place(job.id)
        points = len(job.curve.added)
        now = self._jobs[job.id] = _KnownJob(job_view(job), snapshots, queued, job.prefix, points)
        if known is None or known[:3] != now[:3]:
            yield pb.StateChange(job=_job(now))
        if not self._curves:
            return
        if known is None or known.prefix is not job.prefix or known.view.max_position != job.max_position:
            whole = stream.curve(job)
            if whole or known is not None:
                yield _curve(job, True, [CurvePoint(p.position, p.metrics, p.seconds) for p in whole])
        elif points != known.points:
            least = job.origin[1] if job.origin is not None else -1
            new = sorted(p for p in set(job.curve.added[known.points :]) if least < p <= job.max_position)
            if new:
                at = job.curve.points
                yield _curve(job, False, [CurvePoint(p, at[p].metrics, at[p].seconds) for p in new])


def terms_to_proto(terms: ExperimentView, *, over: bool = False) -> pb.PolicyExperiment:
    """Convert what a policy sees of an experiment, without its space.

    Args:
        terms: The experiment as policies see it.
        over: True if the experiment has ended.
    """
    return pb.PolicyExperiment(
        metric=common_pb2.Metric(
            name=terms.metric,
            mode=METRIC_MODES.to_proto(terms.mode),
            target=terms.target,
            kill_threshold=terms.kill_threshold,
        ),
        max_position=terms.max_position,
        jobs_left=terms.jobs_left,
        paused=not terms.running,
        id=terms.id,
        seed=terms.seed,
        weight=terms.weight,
        end_at=terms.end_at,
        over=over,
        partitions=terms.partitions,
        concurrency=terms.concurrency,
        plan=terms.plan,
        low=terms.low,
        high=terms.high,
    )


def _job(known: _KnownJob) -> pb.PolicyJob:
    view = known.view
    return pb.PolicyJob(
        id=view.id,
        state=JOB_STATES.to_proto(view.state),
        hyperparameters=hyperparameters_to_proto(view.hyperparameters),
        position=view.position,
        high_water=view.high_water,
        attempt=view.attempt,
        slots=view.slots,
        priority=view.priority,
        parent=view.parent,
        fork_position=view.fork_position,
        snapshots=known.snapshots,
        parked=view.parked,
        ordinal=view.ordinal,
        experiment=view.experiment,
        max_position=view.max_position,
        queued=known.queued,
        displaced=view.displaced,
    )


def _curve(job: Job, whole: bool, points: Iterable[CurvePoint]) -> pb.StateChange:
    return pb.StateChange(curve=pb.PolicyCurve(job=job.id, whole=whole, points=map(_point, points)))


def _point(point: CurvePoint) -> pb.PolicyPoint:
    return pb.PolicyPoint(position=point.position, metrics=point.metrics, seconds=point.seconds)


def _data(data: Data) -> pb.PolicyData:
    return pb.PolicyData(name=data.name, train=map(_partition, data.train), evaluate=map(_partition, data.evaluate))


def _partition(one: Partition) -> pb.PolicyPartition:
    return pb.PolicyPartition(
        name=one.name, examples=one.examples, size_bytes=one.bytes, nodes=one.nodes, anywhere=one.anywhere
    )
