"""Converters between the protobuf messages of the services and the dataclasses in `hopyard.client.types`.

The public interface of the client contains no messages. Texts from the cluster are made printable: control characters are
replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Final

from hopyard._common.formatting import printable
from hopyard._net.rpc.enums import JOB_STATES, METRIC_MODES, EnumMap
from hopyard._net.rpc.reasons import reason_from_proto
from hopyard._net.rpc.values import hyperparameters_from_proto, report_from_proto
from hopyard.client.datasets import DataPartition, DataReplica, DataSet, ReplicaState
from hopyard.client.types import (
    Change,
    ClusterAddresses,
    Experiment,
    ExperimentState,
    ExperimentStorage,
    Garbage,
    GarbageKind,
    Gpu,
    Hops,
    Job,
    JobGone,
    JobReport,
    KeptForOthers,
    Metric,
    Node,
    NodeState,
    Point,
    Slot,
    Snapshot,
    Statistic,
    StoreUse,
)
from hopyard.errors import Internal
from hopyard.policy.vocabulary import Report
from hopyard.policy.vocabulary.reasons import Argument, Reason, ReasonCode
from hopyard.v1 import appstat_pb2, common_pb2, data_pb2, experiment_pb2, resource_manager_pb2

EXPERIMENT_STATES: Final = EnumMap(
    experiment_pb2.ExperimentState,
    {
        ExperimentState.RUNNING: experiment_pb2.EXPERIMENT_STATE_RUNNING,
        ExperimentState.PAUSING: experiment_pb2.EXPERIMENT_STATE_PAUSING,
        ExperimentState.PAUSED: experiment_pb2.EXPERIMENT_STATE_PAUSED,
        ExperimentState.ENDING: experiment_pb2.EXPERIMENT_STATE_ENDING,
        ExperimentState.COMPLETED: experiment_pb2.EXPERIMENT_STATE_COMPLETED,
        ExperimentState.STOPPED: experiment_pb2.EXPERIMENT_STATE_STOPPED,
        ExperimentState.FAILED: experiment_pb2.EXPERIMENT_STATE_FAILED,
    },
)

NODE_STATES: Final = EnumMap(
    resource_manager_pb2.NodeState,
    {
        NodeState.UP: resource_manager_pb2.NODE_STATE_UP,
        NodeState.DRAINING: resource_manager_pb2.NODE_STATE_DRAINING,
        NodeState.DRAINED: resource_manager_pb2.NODE_STATE_DRAINED,
        NodeState.LEAVING: resource_manager_pb2.NODE_STATE_LEAVING,
        NodeState.LOST: resource_manager_pb2.NODE_STATE_LOST,
    },
)


REPLICA_STATES: Final = EnumMap(
    data_pb2.ReplicaState,
    {
        ReplicaState.PRESENT: data_pb2.REPLICA_STATE_PRESENT,
        ReplicaState.BROKEN: data_pb2.REPLICA_STATE_BROKEN,
        ReplicaState.AWAY: data_pb2.REPLICA_STATE_AWAY,
        ReplicaState.UNKNOWN: data_pb2.REPLICA_STATE_UNKNOWN,
    },
)


def metric(message: common_pb2.Metric) -> Metric:
    """Convert the message of an experiment's metric to a `Metric`."""
    return Metric(
        message.name,
        METRIC_MODES.from_proto(message.mode, field="metric.mode"),
        message.target if message.HasField("target") else None,
        message.kill_threshold if message.HasField("kill_threshold") else None,
        max(message.target_over, 1),
    )


def _reason(message: experiment_pb2.Experiment | experiment_pb2.Job | resource_manager_pb2.Node) -> dict[str, Any]:
    """Return the fields `reason_code` and `reason_args` of an `Experiment`, `Job` or `Node`; empty if the message has no reason."""
    found = reason_from_proto(message.reason_code, message.reason_args)
    return {"reason_code": found.code, "reason_args": _shown(found)} if found is not None else {}


def _shown(reason: Reason) -> dict[str, Argument]:
    """Return the arguments of a reason with control characters in texts replaced, so that they may be printed."""
    return {name: _shown_value(value) for name, value in reason.args.items()}


def _shown_value(value: Argument) -> Argument:
    if isinstance(value, Reason):
        return Reason(value.code, _shown(value))
    return printable(value) if isinstance(value, str) else value


def experiment(message: experiment_pb2.Experiment) -> Experiment:
    """Convert the message of an experiment to an `Experiment`.

    Raises:
        Internal: Its specification is not a JSON object.
    """
    state = EXPERIMENT_STATES.from_proto(message.state, field="experiment.state")
    reason = _reason(message)
    if reason.get("reason_code") is ReasonCode.INTERRUPTED:
        state = ExperimentState.INTERRUPTED
    return Experiment(
        id=message.id,
        name=message.name,
        state=state,
        metric=metric(message.metric),
        reason=printable(message.reason),
        **reason,
        spec=_spec(message),
        bundle=message.bundle,
        created_at=message.created_at,
        ended_at=message.ended_at or None,
        jobs=dict(sorted(message.jobs.items())),
        best_job=message.best_job or None,
        best_value=message.best_value if message.HasField("best_value") else None,
        best_position=message.best_position,
        slots=message.slots,
        share=message.share,
        running_seconds=message.running_seconds,
        group=message.group,
        warning=printable(message.warning),
        snapshot_bytes=message.snapshot_bytes,
        hops=hops(message.hops),
        slot_seconds=message.slot_seconds,
    )


def hops(message: experiment_pb2.Hops) -> Hops:
    """Convert the message of the snapshot transfer counters to a `Hops`."""
    return Hops(**{one.name: getattr(message, one.name) for one in fields(Hops)})


def snapshot(message: common_pb2.Snapshot) -> Snapshot:
    """Convert the message of a snapshot to a `Snapshot`."""
    return Snapshot(
        job=message.job,
        position=message.position,
        sha256=message.sha256,
        size_bytes=message.size_bytes,
        provider=message.provider,
        nodes=tuple(message.nodes),
        stored=message.stored,
    )


def job(message: experiment_pb2.Job) -> Job:
    """Convert the message of a job to a `Job`."""
    return Job(
        experiment=message.experiment,
        id=message.id,
        state=JOB_STATES.from_proto(message.state, field="job.state"),
        reason=printable(message.reason),
        **_reason(message),
        hyperparameters=hyperparameters_from_proto(message.hyperparameters),
        position=message.position,
        attempt=message.attempt,
        slots=tuple(message.slots),
        priority=message.priority if message.HasField("priority") else None,
        parent=message.parent or None,
        fork_position=message.fork_position,
        best_value=message.best_value if message.HasField("best_value") else None,
        best_position=message.best_position,
        last_value=message.last_value if message.HasField("last_value") else None,
        seconds=message.seconds,
        failures=message.failures,
        suspends=message.suspends,
        snapshots=tuple(map(snapshot, message.snapshots)),
        group=message.group,
        shared_position=message.shared_position,
    )


def change(message: experiment_pb2.WatchExperimentResponse) -> Change | None:
    """Convert a message of a watch stream to a `Change`. Return None for a kind of change that this version does not know."""
    match message.WhichOneof("change"):
        case "experiment":
            return experiment(message.experiment)
        case "job":
            return job(message.job)
        case "report":
            said = message.report.report
            return JobReport(message.report.job, report_from_proto(said), said.at)
        case "job_gone":
            return JobGone(message.job_gone)
        case _:
            return None


def statistic(message: appstat_pb2.Statistic) -> Statistic:
    """Convert the message of a report that AppStat stores to a `Statistic`."""
    return Statistic(message.job, message.attempt, report_from_proto(message.report), message.report.at)


def slot(message: resource_manager_pb2.Slot) -> Slot:
    """Convert the message of a slot to a `Slot`."""
    return Slot(
        id=message.id,
        node=message.node,
        experiment=message.experiment or None,
        job=message.job or None,
        attempt=message.attempt,
        cpus=message.cpus,
        gpus=tuple(message.gpus),
        rank=message.rank,
        world=max(message.world, 1),
        hardware=message.hardware,
    )


def gpu(message: resource_manager_pb2.Gpu) -> Gpu:
    """Convert the message of a GPU with its present use to a `Gpu`."""
    use = message.use
    return Gpu(
        uuid=message.uuid,
        index=message.index,
        model=message.model,
        memory_bytes=message.memory_bytes,
        memory_used_bytes=use.memory_used_bytes if use.HasField("memory_used_bytes") else None,
        utilization=use.utilization if use.HasField("utilization") else None,
        slots=tuple(message.slots),
    )


def node(message: resource_manager_pb2.Node) -> Node:
    """Convert the message of a node and its slots to a `Node`."""
    return Node(
        id=message.id,
        address=message.address,
        state=NODE_STATES.from_proto(message.state, field="node.state"),
        slots=tuple(map(slot, message.slots)),
        silent_seconds=message.silent_seconds,
        gpus=tuple(map(gpu, message.gpus)),
        state_seconds=message.state_seconds if message.HasField("state_seconds") else None,
        reason=printable(message.reason),
        **_reason(message),
        drain_seconds_left=message.drain_seconds_left if message.HasField("drain_seconds_left") else None,
    )


def cluster(message: experiment_pb2.GetClusterResponse) -> ClusterAddresses:
    """Convert the message with the address of AppStat and the scheduler's epoch, version and clock to a `ClusterAddresses`."""
    now = message.now if message.HasField("now") else None
    return ClusterAddresses(message.epoch, message.appstat_address, message.version, message.trouble, now)


def curve(statistics: Iterable[Statistic], name: str) -> list[Point]:
    """Return the points of one job's learning curve for the metric `name`.

    Reports on parts of the data at one position are averaged, weighted by their number of examples (0 counts as 1). If there
    are such reports at a position, a report on all data at this position is ignored. Positions without the metric are omitted.

    Args:
        statistics: Reports of one job, ordered by position.
        name: Name of the metric.
    """
    by_position: dict[int, list[Report]] = {}
    seconds, elapsed = 0.0, {}
    for given in statistics:
        by_position.setdefault(given.report.position, []).append(given.report)
        seconds += given.report.seconds
        elapsed[given.report.position] = seconds
    points = []
    for position in sorted(by_position):
        reports = [one for one in by_position[position] if name in one.metrics]
        if reports:
            parts = [one for one in reports if one.part] or reports
            weight = sum(one.examples or 1 for one in parts)
            value = sum(one.metrics[name] * (one.examples or 1) for one in parts) / weight
            points.append(Point(position, value, elapsed[position]))
    return points


def _spec(message: experiment_pb2.Experiment) -> dict[str, Any]:
    if not message.spec_json:
        return {}
    try:
        spec = json.loads(message.spec_json)
    except ValueError as error:
        raise Internal(
            f"experiment {message.id}: the scheduler sent a specification that is no JSON: {error}"
        ) from error
    if not isinstance(spec, dict):
        raise Internal(f"experiment {message.id}: the scheduler sent a specification that is no mapping")
    return spec


def garbage(message: experiment_pb2.CollectGarbageResponse, *, dry_run: bool) -> Garbage:
    """Convert the result of a garbage collection to a `Garbage`. `dry_run` is the value in the request."""
    found = tuple(GarbageKind(one.kind, one.place, one.count, one.size_bytes) for one in message.garbage)
    kept = tuple(
        KeptForOthers(one.experiment, one.count, one.size_bytes, one.seconds_again, one.given_up)
        for one in message.kept
    )
    store = store_use(message.store) if message.HasField("store") else None
    experiments = sorted(map(storage, message.experiments), key=lambda one: -one.size_bytes)
    notes, unneeded = tuple(message.notes), tuple(message.unneeded)
    return Garbage(dry_run, found, notes, unneeded, kept, store, tuple(experiments))


def storage(message: experiment_pb2.DeletedExperiments) -> ExperimentStorage:
    """Convert the message of what the cluster stores of an experiment or group."""
    return ExperimentStorage(
        tuple(message.experiments),
        message.jobs,
        message.reports,
        message.records,
        message.journal_bytes,
        message.snapshots,
        message.snapshot_bytes,
        message.shared_snapshots,
        message.shared_bytes,
        tuple(message.shared_with),
        message.bundles,
        message.bundle_bytes,
        message.logs,
        message.log_bytes,
        tuple(message.absent_nodes),
    )


def store_use(message: experiment_pb2.StoreUse) -> StoreUse:
    """Convert the message of the store usage to a `StoreUse`."""
    return StoreUse(
        message.quota_bytes or None,
        message.used_bytes,
        message.needed_bytes,
        message.spare,
        message.spare_seconds,
        message.next_bytes,
        message.next_seconds,
    )


def data_set(message: data_pb2.DataSet) -> DataSet:
    """Convert the message of a data set of the catalog to a `DataSet`."""
    return DataSet(
        message.name, tuple(map(_partition, message.partitions)), message.registered_at, tuple(message.experiments)
    )


def data_set_to_proto(name: str, partitions: Iterable[DataPartition]) -> data_pb2.DataSet:
    """Convert the name and the partitions of a data set to the message for its registration."""
    message = data_pb2.DataSet(name=name)
    for one in partitions:
        message.partitions.add(
            name=one.name,
            size_bytes=one.size_bytes,
            sha256=one.sha256,
            examples=one.examples,
            url=one.url,
            replicas=[data_pb2.DataReplica(node=replica.node, path=replica.path) for replica in one.replicas],
        )
    return message


def _partition(message: data_pb2.DataPartition) -> DataPartition:
    replicas = tuple(
        DataReplica(
            one.node, printable(one.path), REPLICA_STATES.from_proto(one.state, field="state"), printable(one.detail)
        )
        for one in message.replicas
    )
    examples = message.examples if message.HasField("examples") else None
    return DataPartition(message.name, message.size_bytes, message.sha256, examples, replicas, printable(message.url))
