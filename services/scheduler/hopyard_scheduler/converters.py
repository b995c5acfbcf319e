"""Conversion between types of the core (the state machine of the engine) and protobuf messages.

Only this module and the servicers use protobuf types of experiments, jobs and runs. An upload order (`ShipmentOrder`)
instructs a node to upload a snapshot to the store.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Final

from hopyard._common.bounded_json import MAX_COUNT
from hopyard._net.rpc.enums import DECISIONS, JOB_STATES, METRIC_MODES, RUN_END_REASONS, RUN_MODES, EnumMap
from hopyard._net.rpc.reasons import code_to_proto, set_reason
from hopyard._net.rpc.values import (
    check_report,
    hyperparameters_to_proto,
    report_from_proto,
    report_to_proto,
    run_key_to_proto,
)
from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import ENDLESS, ExperimentState, Reason, ReasonCode, RunEndReason, RunKey, StreamId
from hopyard.policy.vocabulary.reasons import explain
from hopyard.trainer.validation import MAX_METRICS, MAX_NAME
from hopyard.v1 import common_pb2, experiment_pb2, resource_manager_pb2
from hopyard_engine.core.actions.experiment_state import runs_of
from hopyard_engine.core.actions.snapshots import eviction
from hopyard_engine.core.actions.snapshots.recompute_cost import seconds_again
from hopyard_engine.core.actions.snapshots.store_quota import StoreUsage
from hopyard_engine.core.effects import Amend, CommandBody, Decide, Kill, RunOptions, ShipmentOrder, Start
from hopyard_engine.core.events import (
    Amended,
    Ended,
    Reports,
    RunBody,
    RunMessage,
    SnapshotShipped,
    SnapshotStored,
    SnapshotTaken,
    Started,
)
from hopyard_engine.core.job_ends import shown_counts, shown_end
from hopyard_engine.core.state.curve import CurveEntry
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.snapshot_entries import SnapshotEntry
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import Settings, SlotSpec, SnapshotInfo
from hopyard_scheduler.experiments.program import ExperimentProgram

MAX_MESSAGE: Final = 16_384
"""Maximum characters of a message from a run. With the bounds of reports, it limits what a run can add to the journal.
Hopyard's runner enforces these bounds; other libraries may not.
"""

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


# --------------------------------------------------------------------------------------------------------------- from agents


def slot_from_proto(message: resource_manager_pb2.Slot) -> SlotSpec:
    """Convert the description of a slot from an agent's hello: the first request of its session."""
    return SlotSpec(message.id, message.cpus, tuple(message.gpus), message.hardware)


def snapshot_from_proto(message: common_pb2.Snapshot) -> SnapshotInfo:
    """Convert the description of a snapshot from a run's message.

    Raises:
        InvalidInput: The position or the size is negative or too large.
    """
    size = _count("snapshot.size_bytes", message.size_bytes, MAX_COUNT)
    return SnapshotInfo(_position("snapshot", message.position), message.sha256, size, message.provider)


def _position(path: str, position: int) -> int:
    return _count(f"{path}.position", position, ENDLESS)


def _count(path: str, found: int, most: int) -> int:
    if not 0 <= found <= most:
        raise InvalidInput(f"{path}: found {found}, allowed is 0 to {most}")
    return found


def run_message_from_proto(
    message: resource_manager_pb2.RunMessage, at: float, addresses: Mapping[str, str]
) -> RunMessage:
    """Convert a message of a run into an event.

    A message that cannot be converted becomes the end of the run as FAILED in user code, with the error as its cause: it has no body,
    its body has an unknown type or an unknown end reason, or a number of it is negative or too large. The agent would repeat a message
    that the scheduler refused, and all other runs of the node would wait.

    Args:
        message: The message.
        at: The time of its arrival, for the event, in seconds since the Unix epoch.
        addresses: The addresses of NodeAgentService by node, to find the nodes that a message names by their addresses.
    """
    run = message.run
    body: RunBody
    try:
        body = _body_from_proto(message, addresses)
    except InvalidInput as error:
        cause = Reason.of(ReasonCode.RUN_MESSAGE, message=str(error)[:MAX_MESSAGE])
        body = Ended(RunEndReason.FAILED, 0, user_code=True, cause=cause, fingerprint=fingerprint(str(error)))
    return RunMessage(at, StreamId(run.experiment), run.job, run.attempt, run.rank, message.sequence, body)


def shipped_from_proto(message: resource_manager_pb2.SnapshotShipped, node: str, at: float) -> SnapshotShipped:
    """Convert the result of an upload order into an event.

    Args:
        message: The result. Its error is empty if the snapshot is in the store.
        node: The id of the node that executed the order.
        at: The time of the event, in seconds since the Unix epoch.
    """
    order = message.order
    return SnapshotShipped(
        at,
        StreamId(order.experiment),
        node,
        order.number,
        order.job,
        order.position,
        order.sha256,
        message.error[:MAX_MESSAGE],
    )


def order_to_proto(order: ShipmentOrder) -> resource_manager_pb2.ShipmentOrder:
    """Convert an upload order for an agent."""
    return resource_manager_pb2.ShipmentOrder(
        experiment=order.stream,
        number=order.number,
        job=order.job,
        position=order.position,
        sha256=order.sha256,
    )


def _body_from_proto(message: resource_manager_pb2.RunMessage, addresses: Mapping[str, str]) -> RunBody:
    match message.WhichOneof("body"):
        case "started":
            started = message.started
            fetched = _count("started.fetched_bytes", started.fetched_bytes, MAX_COUNT)
            return Started(_position("started", started.position), fetched, started.from_store)
        case "reports":
            return _reports_from_proto(message.reports)
        case "amended":
            amended = message.amended
            return Amended(amended.ticket, amended.accepted, _position("amended", amended.position))
        case "snapshot_taken":
            return SnapshotTaken(snapshot_from_proto(message.snapshot_taken.snapshot))
        case "snapshot_stored":
            stored = message.snapshot_stored
            return SnapshotStored(_position("snapshot_stored", stored.position), stored.sha256, stored.error)
        case "ended":
            return _ended_from_proto(message.ended, addresses)
        case other:
            raise InvalidInput(f"run message {message.sequence} of job {message.run.job}: unknown body {other}")


def _ended_from_proto(ended: resource_manager_pb2.RunEnded, addresses: Mapping[str, str]) -> Ended:
    user_code = ended.failure == common_pb2.FAILURE_CLASS_USER_CODE
    message = ended.message[:MAX_MESSAGE]
    asked = set(ended.snapshot_missing_at)
    return Ended(
        reason=RUN_END_REASONS.from_proto(ended.reason, field="ended.reason"),
        position=_position("ended", ended.position),
        snapshot=snapshot_from_proto(ended.snapshot) if ended.HasField("snapshot") else None,
        user_code=user_code,
        cause=Reason.of(ReasonCode.RUN_MESSAGE, message=message) if message else None,
        snapshot_missing=ended.snapshot_missing,
        finished=ended.finished,
        unable=ended.unable and user_code,
        fingerprint=fingerprint(message) if user_code and message else "",
        permanent=ended.permanent and user_code,
        code_missing=ended.code_missing,
        missing_at=tuple(sorted(node for node, address in addresses.items() if address in asked)),
    )


def fingerprint(message: str) -> str:
    """Return the fingerprint of the cause of a failure (`Ended.fingerprint`) from the message of its run.

    It is computed from the error: the last line if the first one ends with a colon, which announces output of the program, else the
    first one. Numbers, hashes and the folders of files are left out, because they differ between jobs with the same cause.
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()] or [""]
    error = lines[-1] if lines[0].endswith(":") else lines[0]
    return hashlib.sha256(_VARIABLE.sub("#", _FOLDERS.sub("/", error)).encode()).hexdigest()[:16]


_FOLDERS: Final = re.compile(r"/(?:[^\s/'\":]+/)+")
_VARIABLE: Final = re.compile(r"\b0x[0-9a-fA-F]+|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b|[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def _reports_from_proto(message: resource_manager_pb2.RunReports) -> Reports | Ended:
    """Convert the reports of a run.

    If one has more than `MAX_METRICS` metrics or a name longer than `MAX_NAME` characters, return the end of the run as FAILED in user
    code instead.
    """
    for report in message.reports:
        names = report.metrics
        if len(names) > MAX_METRICS or any(len(name) > MAX_NAME for name in names):
            check_report(report)
            cause = Reason.of(ReasonCode.REPORT_TOO_LARGE, metrics=MAX_METRICS, characters=MAX_NAME)
            same = ReasonCode.REPORT_TOO_LARGE.value
            return Ended(RunEndReason.FAILED, report.position, user_code=True, cause=cause, fingerprint=same)
    return Reports(tuple(report_from_proto(report) for report in message.reports))


# ----------------------------------------------------------------------------------------------------------------- to agents


def command_to_proto(
    key: RunKey, sequence: int, epoch: int, body: CommandBody, program: ExperimentProgram, addresses: dict[str, str]
) -> resource_manager_pb2.RunCommand:
    """Convert a command to a run for its agent.

    Args:
        key: Experiment, job, attempt and rank of the run's process.
        sequence: The number of the command in its channel.
        epoch: The epoch of this scheduler.
        body: The command.
        program: The program of the experiment's runs.
        addresses: Addresses of NodeAgentService by node. A start command contains those of the nodes with the
            job's snapshot and of the other ranks.
    """
    command = resource_manager_pb2.RunCommand(run=run_key_to_proto(key), sequence=sequence, epoch=epoch)
    match body:
        case Start():
            command.start.CopyFrom(_start_to_proto(body, program, addresses))
        case Decide():
            decision = DECISIONS.to_proto(body.kind)
            command.decide.CopyFrom(
                resource_manager_pb2.DecideRun(decision=decision, position=body.position, allowed=body.allowed)
            )
        case Amend():
            command.amend.CopyFrom(
                resource_manager_pb2.AmendRun(
                    ticket=body.ticket, until=body.until or 0, snapshot_at=list(body.snapshot_at)
                )
            )
        case Kill():
            command.kill.reason, command.kill.reason_code = explain(body.reason), code_to_proto(body.reason)
    return command


_RUN_OPTIONS: Final = tuple(option.name for option in fields(RunOptions))


def _start_to_proto(
    body: Start, program: ExperimentProgram, addresses: dict[str, str]
) -> resource_manager_pb2.StartRun:
    start = resource_manager_pb2.StartRun(
        slot=body.slot,
        hyperparameters=hyperparameters_to_proto(body.hyperparameters),
        seed=program.seed(body.hyperparameters),
        mode=RUN_MODES.to_proto(body.mode),
        input=body.place.place if body.place is not None else body.input,
        world=len(body.rank_nodes),
        rank_addresses=[addresses.get(node, "") for node in body.rank_nodes],
        snapshot_peers=[addresses[node] for node in body.snapshot_nodes if node in addresses],
        program=program.to_proto(),
        iteration_timeout=program.spec.stop.iteration_timeout or 0.0,
        **{name: getattr(body, name) for name in _RUN_OPTIONS},
    )
    if body.place is not None:
        start.input_name, start.input_sha256, start.input_bytes = body.input, body.place.sha256, body.place.size
    if body.snapshot is not None:
        info = body.snapshot
        start.snapshot.CopyFrom(
            common_pb2.Snapshot(
                position=info.position, sha256=info.sha256, size_bytes=info.size, provider=info.provider
            )
        )
    return start


# ---------------------------------------------------------------------------------------------------------------- to clients


def experiment_to_proto(
    stream: Stream, experiment: Experiment, at: float, reason: Reason | None
) -> experiment_pb2.Experiment:
    """Convert an experiment for clients.

    For an experiment of a group, `slots` counts only the slots of its own runs, and `share` is the group's share.

    Args:
        stream: The stream of the experiment.
        experiment: The experiment.
        at: The present time, in seconds since the Unix epoch.
        reason: Why the experiment is in its state or waits; None: no reason is shown.
    """
    alone = len(stream.experiments) == 1
    held = len(stream.slots) if alone else sum(len(run.slots) for run in runs_of(stream, experiment))
    message = experiment_pb2.Experiment(
        id=experiment.id,
        name=experiment.payload["name"],
        state=EXPERIMENT_STATES.to_proto(experiment.state),
        spec_json=_spec_json(experiment),
        bundle=experiment.payload["bundle"],
        metric=_metric_to_proto(experiment),
        created_at=experiment.created_at,
        ended_at=experiment.ended_at or 0.0,
        jobs={state.value: count for state, count in shown_counts(experiment).items()},
        slots=held,
        running_seconds=experiment.running_seconds(at),
        share=stream.share,
        group=stream.id,
        warning=explain(eviction.warning(stream)),
        snapshot_bytes=clamped(stream.snapshots.size),
        hops=experiment_pb2.Hops(**{name: clamped(count) for name, count in asdict(stream.hops).items()}),
        slot_seconds=experiment.slot_seconds,
    )
    set_reason(message, reason)
    if experiment.best is not None:
        message.best_job, message.best_position, message.best_value = experiment.best
    return message


def clamped(total: int) -> int:
    """Return the integer nearest to `total` that fits into a field of type int64.

    Totals grow with what agents report. A total that does not fit would end the scheduler when it writes the row of the experiment.
    """
    return min(max(total, -(2**63)), 2**63 - 1)


def _spec_json(experiment: Experiment) -> str:
    """Return the specification of an experiment as JSON, with the present values of settings that were changed after its creation."""
    text: str = experiment.payload["spec"]
    return _changed_spec(text, experiment.settings) if experiment.changed else text


@functools.lru_cache(64)
def _changed_spec(text: str, settings: Settings) -> str:
    spec = json.loads(text)
    stop = {"jobs": settings.jobs, "max_iterations": settings.max_position, "max_time": settings.max_seconds}
    spec["stop"].update({name: value for name, value in stop.items() if value is not None and value != ENDLESS})
    spec["metric"].update(name=settings.metric, target=settings.target)
    spec["weight"] = settings.weight
    spec["resources"].update(slots=settings.slots, concurrency=settings.concurrency)
    return json.dumps(spec, sort_keys=True, separators=(",", ":"))


def _metric_to_proto(experiment: Experiment) -> common_pb2.Metric:
    settings = experiment.settings
    metric = common_pb2.Metric(name=settings.metric, mode=METRIC_MODES.to_proto(settings.mode))
    if settings.target is not None:
        metric.target = settings.target
        metric.target_over = settings.target_over
    if settings.kill_threshold is not None:
        metric.kill_threshold = settings.kill_threshold
    return metric


def job_to_proto(stream: Stream, job: Job, reason: Reason | None) -> experiment_pb2.Job:
    """Convert a job for clients. A job of an ended experiment has ended (`shown_end`).

    Args:
        stream: The stream of the job.
        job: The job.
        reason: Why the job is in its state or waits, while its experiment has not ended; None: no reason is shown.
    """
    state = job.state
    if job.experiment.state.ended:
        state, reason = shown_end(job)
    message = experiment_pb2.Job(
        experiment=job.experiment.id,
        group=stream.id,
        id=job.id,
        ordinal=job.ordinal,
        state=JOB_STATES.to_proto(state),
        hyperparameters=hyperparameters_to_proto(job.hyperparameters or {}),
        position=job.position,
        attempt=job.attempt,
        slots=job.run.slots if job.run is not None else (),
        seconds=job.seconds,
        failures=job.failures,
        suspends=job.suspends,
        snapshots=[snapshot_to_proto(entry) for entry in stream.snapshots.of(job.id)],
        shared_position=job.shared,
    )
    set_reason(message, reason)
    if state.ended:
        kept = {entry.info.position for entry in stream.for_others(job)}
        for snapshot, entry in zip(message.snapshots, stream.snapshots.of(job.id), strict=True):
            snapshot.for_others = entry.info.position in kept
            snapshot.seconds_again = seconds_again(stream, entry)
    if job.priority is not None:
        message.priority = job.priority
    if job.origin is not None:
        message.parent, message.fork_position = job.origin
    if job.best is not None:
        message.best_value, message.best_position = job.best
    if job.last is not None:
        message.last_value = job.last
    return message


def snapshot_to_proto(entry: SnapshotEntry) -> common_pb2.Snapshot:
    """Convert a snapshot for clients, with the nodes that have it and whether the store has it."""
    return common_pb2.Snapshot(
        job=entry.job,
        position=entry.info.position,
        sha256=entry.info.sha256,
        size_bytes=entry.info.size,
        provider=entry.info.provider,
        nodes=sorted(entry.nodes),
        stored=entry.stored,
    )


def use_to_proto(use: StoreUsage) -> experiment_pb2.StoreUse:
    """Convert the usage of the store for clients. A quota of 0 bytes means that there is no quota."""
    return experiment_pb2.StoreUse(
        quota_bytes=clamped(use.quota or 0),
        used_bytes=clamped(use.used),
        needed_bytes=clamped(use.needed),
        spare=clamped(use.spare),
        spare_seconds=use.spare_seconds,
        next_bytes=clamped(use.next_size),
        next_seconds=use.next_seconds,
    )


def point_to_proto(job: str, point: CurveEntry) -> experiment_pb2.JobReport:
    """Convert a point of a job's learning curve to a report for clients.

    Args:
        job: The id of the job.
        point: The point.
    """
    report = common_pb2.Report(position=point.position, metrics=point.metrics, seconds=point.seconds)
    return experiment_pb2.JobReport(job=job, report=report)


__all__ = [
    "EXPERIMENT_STATES",
    "command_to_proto",
    "experiment_to_proto",
    "job_to_proto",
    "point_to_proto",
    "report_to_proto",
    "run_message_from_proto",
    "slot_from_proto",
    "snapshot_from_proto",
    "snapshot_to_proto",
]
