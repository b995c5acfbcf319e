"""Converts between the runner's types and protobuf messages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from hopyard._net.rpc.enums import RUN_MODES
from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard._runtime.runner.control import AmendAnswer, RunPlan
from hopyard.policy.vocabulary import RunMode
from hopyard.trainer import IterationReport, TrainerContext
from hopyard.trainer.cache import default_budget
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2


def plan(message: wire.ApplicationStart) -> RunPlan:
    """Return the settings of a run from its start message."""
    start = message.start
    position = start.snapshot.position if start.HasField("snapshot") else 0
    return RunPlan.of(start, position=position, evaluate=stays(start))


_MODES: Final[Mapping[RunMode, Literal["train", "evaluate", "profile"]]] = {
    RunMode.TRAIN: "train",
    RunMode.EVALUATE: "evaluate",
    RunMode.PROFILE: "profile",
}


def stays(start: resource_manager_pb2.StartRun) -> bool:
    """Return whether a run evaluates or profiles, so that it does not change the position and training state of its job.

    Args:
        start: Settings of the run.
    """
    return RUN_MODES.from_proto(start.mode) is not RunMode.TRAIN


def context(start: wire.ApplicationStart, scratch: Path, place: common_pb2.GangPlace | None) -> TrainerContext:
    """Return the context that a trainer receives at the start of a run.

    Args:
        start: Start message of the run.
        scratch: Folder for temporary files of the trainer.
        place: Host, ports and secret of the gang; None: the run has one rank.
    """
    return TrainerContext(
        seed=start.start.seed,
        scratch=scratch,
        job=start.run.job,
        inputs=Path(start.start.input) if start.start.input else None,
        rank=start.run.rank,
        world_size=max(1, start.start.world),
        addresses=tuple(start.gang.hosts),
        rendezvous="" if place is None else rendezvous(place),
        mode=_MODES[RUN_MODES.from_proto(start.start.mode)],
    )


def data_budget(program: resource_manager_pb2.RunProgram) -> int:
    """Return the maximum bytes of data that a trainer's process may cache for later runs.

    If the experiment does not set it, it is a quarter of the run's memory limit, or without a limit half of the slot's share of the
    host memory (in proportion to its threads).

    Args:
        program: The program of a run, with the settings of its experiment and the resources of its slot.
    """
    if program.HasField("data_cache_bytes"):
        return program.data_cache_bytes
    return default_budget(program.memory_bytes, threads=program.threads)


def rendezvous(place: common_pb2.GangPlace) -> str:
    """Return the HOST:PORT, from `place`, at which the ranks of a gang's training program meet; the gang reserves the port."""
    host = f"[{place.host}]" if ":" in place.host else place.host
    return f"{host}:{place.rendezvous_port}"


def report(
    report: IterationReport, start: resource_manager_pb2.StartRun, *, at_until: bool, at: float
) -> common_pb2.Report:
    """Return the protobuf message for a report.

    Args:
        report: The report.
        start: Settings of the run.
        at_until: Whether the run is parked at its `until`, or has finished.
        at: Time of the report in seconds since the epoch.
    """
    message = common_pb2.Report(
        position=report.position,
        metrics=report.metrics,
        seconds=report.seconds,
        at=at,
        part=(start.input_name or start.input) if stays(start) else "",
        examples=report.examples or 0,
        at_until=at_until,
        finished=report.finished,
    )
    if report.in_force is not None:
        message.in_force.CopyFrom(hyperparameters_to_proto(report.in_force, "in_force"))
    return message


def restatement(position: int, *, finished: bool) -> IterationReport:
    """Return the report of a run that has nothing to train: its position without metrics.

    Args:
        position: Position of the run.
        finished: Whether the trainer has finished.
    """
    return IterationReport(position=position, metrics={}, seconds=0.0, finished=finished)


def amended(ticket: str, answer: AmendAnswer) -> wire.AttachRequest:
    """Return the message that gives the reply `answer` to the amendment with the id `ticket`."""
    return wire.AttachRequest(
        amended=resource_manager_pb2.RunAmended(ticket=ticket, accepted=answer.accepted, position=answer.position)
    )
