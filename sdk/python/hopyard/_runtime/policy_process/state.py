"""A policy process's copy of an experiment's state, built from the changes that arrive with up-calls."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from hopyard._net.rpc.enums import JOB_STATES, METRIC_MODES
from hopyard._net.rpc.values import hyperparameters_from_proto, metrics_from_proto
from hopyard.policy.views import CurvePoint, ExperimentView, Incumbent, JobView, SlotView
from hopyard.policy.vocabulary import Data, JobState, Partition
from hopyard.space import Space
from hopyard.v1 import policy_pb2 as pb


@dataclass(frozen=True, slots=True)
class EarlierTrialState:
    """The results of one configuration from earlier experiments.

    Attributes:
        job: The job that trained the configuration.
        points: Its learning curve.
        snapshots: Positions of its snapshots.
    """

    job: JobView
    points: tuple[CurvePoint, ...]
    snapshots: tuple[int, ...]


class MirroredState:
    """A copy of the state of one experiment or group of experiments, kept current by `apply`.

    Attributes:
        made: Number of jobs created so far.
        share: Number of slots that the experiment or group may use now.
        jobs: Jobs by id, in order of creation.
        states: Number of jobs in each state.
        live: Ids of jobs with a run.
        open: Ids of jobs that have not ended.
        queued: Place in the queue of idle jobs (those that wait for a slot), by job id; jobs with smaller numbers are first.
        snapshots: Positions of each job's own snapshots, by job id.
        curves: Learning curve of each job by job id: points by position.
        slots: Slots by id.
        reserved: Ids of slots that the policy has reserved, that is, keeps free for later use.
        draining: Ids of slots that leave when their runs end.
        experiments: Experiments by id, in the order in which they joined the group.
        over: Ids of experiments that have ended.
        incumbent: The best value of the metric so far with its job and position; None: there is no value.
        data: The partitioned data set; None: the experiment has none.
        earlier: Results of earlier experiments, by the name "EXPERIMENT/JOB" with which the policy refers to them.
        scaling: Seconds per unit of training, by kind of host and number of slots.
    """

    def __init__(self) -> None:
        self.made = 0
        self.share = 0
        self.jobs: dict[str, JobView] = {}
        self.states: Counter[JobState] = Counter()
        self.live: set[str] = set()
        self.open: set[str] = set()
        self.queued: dict[str, int] = {}
        self.snapshots: dict[str, tuple[int, ...]] = {}
        self.curves: dict[str, dict[int, CurvePoint]] = {}
        self.slots: dict[str, SlotView] = {}
        self.reserved: set[str] = set()
        self.draining: set[str] = set()
        self.experiments: dict[str, ExperimentView] = {}
        self.over: set[str] = set()
        self.incumbent: Incumbent | None = None
        self.data: Data | None = None
        self.earlier: dict[str, EarlierTrialState] = {}
        self.scaling: dict[str, dict[int, float]] = {}
        self._spaces: dict[str, Space] = {}

    def apply(self, changes: Iterable[pb.StateChange]) -> None:
        """Apply changes in order. Kinds of changes that are unknown to this version are ignored."""
        for change in changes:
            match change.WhichOneof("change"):
                case "job":
                    self._job(change.job)
                case "slot":
                    self._slot(change.slot)
                case "slot_gone":
                    self.slots.pop(change.slot_gone, None)
                    self.reserved.discard(change.slot_gone)
                    self.draining.discard(change.slot_gone)
                case "share":
                    self.share = change.share
                case "experiment":
                    self._experiment(change.experiment)
                case "job_gone":
                    self._forget(change.job_gone)
                    self.snapshots.pop(change.job_gone, None)
                    self.curves.pop(change.job_gone, None)
                case "curve":
                    self._curve(change.curve)
                case "incumbent":
                    best = change.incumbent
                    self.incumbent = Incumbent(best.job, best.position, best.value)
                case "data":
                    data = change.data
                    self.data = Data(data.name, _partitions(data.train), _partitions(data.evaluate))
                case "earlier":
                    self._earlier(change.earlier)
                case "scaling":
                    known = change.scaling
                    self.scaling.setdefault(known.hardware, {})[known.slots] = known.seconds
                case "jobs_made":
                    self.made = change.jobs_made

    def _job(self, message: pb.PolicyJob) -> None:
        if message.id in self.jobs:
            self._count(self.jobs[message.id], -1)
        state = JOB_STATES.from_proto(message.state)
        job = self.jobs[message.id] = JobView(
            id=message.id,
            state=state,
            hyperparameters=hyperparameters_from_proto(message.hyperparameters),
            position=message.position,
            high_water=message.high_water,
            attempt=message.attempt,
            slots=tuple(message.slots),
            priority=message.priority if message.HasField("priority") else None,
            parent=message.parent,
            fork_position=message.fork_position,
            parked=message.parked,
            ordinal=message.ordinal,
            experiment=message.experiment,
            max_position=message.max_position,
            displaced=message.displaced,
        )
        self._count(job, 1)
        self.snapshots[job.id] = tuple(message.snapshots)
        (self.live.add if state.live else self.live.discard)(job.id)
        (self.open.discard if state.ended else self.open.add)(job.id)
        if message.queued:
            self.queued[job.id] = message.queued
        else:
            self.queued.pop(job.id, None)

    def _count(self, job: JobView, change: int) -> None:
        self.states[job.state] += change

    def _forget(self, name: str) -> None:
        job = self.jobs.pop(name, None)
        if job is not None:
            self._count(job, -1)
        self.live.discard(name)
        self.open.discard(name)
        self.queued.pop(name, None)

    def _slot(self, message: pb.PolicySlot) -> None:
        self.slots[message.id] = SlotView(message.id, message.node, message.job, message.hardware)
        (self.reserved.add if message.reserved else self.reserved.discard)(message.id)
        (self.draining.add if message.draining else self.draining.discard)(message.id)

    def _experiment(self, message: pb.PolicyExperiment) -> None:
        metric = message.metric
        self.experiments[message.id] = ExperimentView(
            metric=metric.name,
            mode=METRIC_MODES.from_proto(metric.mode, field="metric.mode"),
            max_position=message.max_position,
            target=metric.target if metric.HasField("target") else None,
            kill_threshold=metric.kill_threshold if metric.HasField("kill_threshold") else None,
            jobs_left=message.jobs_left,
            seed=message.seed,
            end_at=message.end_at if message.HasField("end_at") else None,
            id=message.id,
            weight=message.weight,
            running=not message.paused,
            space=self._space(message),
            partitions=message.partitions,
            concurrency=message.concurrency if message.HasField("concurrency") else None,
            plan=message.plan,
            low=message.low if message.HasField("low") else None,
            high=message.high if message.HasField("high") else None,
        )
        (self.over.add if message.over else self.over.discard)(message.id)

    def _space(self, message: pb.PolicyExperiment) -> Space | None:
        """Return the search space of an experiment, or None if the message has none; it is parsed once because it never changes."""
        if message.space_json and message.id not in self._spaces:
            written = Space.from_dict(json.loads(message.space_json))
            self._spaces[message.id] = written.constrained(list(message.constraints))
        return self._spaces.get(message.id)

    def _curve(self, message: pb.PolicyCurve) -> None:
        curve = {} if message.whole else self.curves.get(message.job, {})
        last = next(reversed(curve), -1)
        late = False
        for point in message.points:
            late = late or point.position < last
            curve[point.position] = _point(point)
        self.curves[message.job] = dict(sorted(curve.items())) if late else curve

    def _earlier(self, message: pb.PolicyEarlier) -> None:
        points = tuple(map(_point, message.points))
        reached = points[-1].position if points else 0
        job = JobView(
            message.id,
            JobState.COMPLETED,
            hyperparameters_from_proto(message.hyperparameters),
            position=reached,
            high_water=reached,
            experiment=message.experiment or next(iter(self.experiments), ""),
            max_position=reached,
        )
        self.earlier[message.id] = EarlierTrialState(job, points, tuple(message.snapshots))


def _point(message: pb.PolicyPoint) -> CurvePoint:
    return CurvePoint(message.position, metrics_from_proto(message.metrics), message.seconds)


def _partitions(messages: Iterable[pb.PolicyPartition]) -> tuple[Partition, ...]:
    return tuple(
        Partition(
            one.name, one.examples if one.HasField("examples") else None, one.size_bytes, tuple(one.nodes), one.anywhere
        )
        for one in messages
    )
