"""Extracts an experiment's runs from its journal: their training, the snapshots from which they started, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from hopyard.errors import Internal
from hopyard.policy.vocabulary import Hyperparameters, Metrics, RunMode
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Record, Send, Start
from hopyard_engine.core.events import (
    ClusterEvent,
    DataChanged,
    Ended,
    Event,
    Reports,
    RunBody,
    RunMessage,
    SnapshotTaken,
    StreamCreated,
    StreamEvent,
)
from hopyard_engine.core.state.entities import Run
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import PlacedPartition, SnapshotInfo

T = TypeVar("T")

_FRAMEWORK: Final = "framework"
"""The provider of snapshots that programs write themselves."""


@dataclass(frozen=True, slots=True)
class NumberedMessage(Generic[T]):
    """A value from a message of a run.

    Attributes:
        event: The number of the event that recorded the message.
        value: The value, such as the metrics of a report or the hash of a snapshot.
    """

    event: int
    value: T


@dataclass(eq=False, slots=True)
class RecordedRun:
    """One run, as a journal records it.

    Attributes:
        number: The number of the event that started it.
        experiment: The id of its experiment.
        job: The id of its job.
        attempt: Its number within the job.
        mode: Train, evaluate or profile.
        start: The position from which it started.
        source: The run that took the snapshot from which it started; None: it started from scratch, or `foreign` is
            True.
        hyperparameters: The configuration.
        inputs: The input (data partition) of each rank; an empty text: the rank has none.
        parts: For an evaluation of one data partition: the number of partitions that are evaluated in total; 0:
            unknown, or the run is no such evaluation.
        reports: Its reports by position and data partition (empty: a training report, or an evaluation that is not
            divided by partitions).
        foreign: True if it started from a snapshot of an earlier experiment.
        on_gpus: True if its slots had GPUs, whether or not the program used them.
        snapshots: The hashes of its snapshots by position. The hash is empty for images of processes, which are never
            equal.
    """

    number: int
    experiment: str
    job: str
    attempt: int
    mode: RunMode
    start: int
    source: RecordedRun | None
    hyperparameters: Hyperparameters
    inputs: tuple[str, ...]
    parts: int = 0
    foreign: bool = False
    on_gpus: bool = False
    reports: dict[tuple[int, str], NumberedMessage[Metrics]] = field(default_factory=dict)
    snapshots: dict[int, NumberedMessage[str]] = field(default_factory=dict)

    @property
    def reached(self) -> int:
        """The highest position that the run reported or saved; `start` if it neither reported nor saved a snapshot."""
        return max([self.start, *self.snapshots, *(position for position, _ in self.reports)])


class Recorded:
    """Reads a journal by applying its events to a new core (the state machine of the engine).

    So it accepts exactly the messages that the core of the live scheduler accepted.

    Call `take` for each event in order, then use the attributes.

    Attributes:
        number: The number of the last event; 0 before the first event.
        stream: The state of the stream after the last event; None before the first event.
        runs: All runs in the order of their starts.
        data: The partitions of the data by name, as first recorded.
        places: For each partition, all paths at which nodes had replicas, by node.
    """

    def __init__(self) -> None:
        self.number = 0
        self.stream: Stream | None = None
        self.runs: list[RecordedRun] = []
        self.data: dict[str, PlacedPartition] = {}
        self.places: dict[str, dict[str, str]] = {}
        self._core = Core()
        self._attempts: dict[tuple[str, int], RecordedRun] = {}
        self._taken: dict[tuple[str, int], RecordedRun] = {}

    def take(self, event: Event) -> None:
        """Apply the next event of the stream.

        Raises:
            Internal: The event belongs to the stream of the cluster, or does not fit the events before it.
        """
        self.number += 1
        if isinstance(event, ClusterEvent):
            raise Internal(f"event {self.number}: {type(event).__name__} belongs to the stream of the cluster")
        speaker = self._speaker(event)
        effects = self._core.restore(event)
        self.stream = self._core.streams[event.stream]
        if not effects or not isinstance(effects[0], Record):
            return  # The core ignored a repeated message.
        if isinstance(event, StreamCreated) and event.data is not None:
            self._place(event.data.partitions)
        elif isinstance(event, DataChanged):
            self._place(event.partitions)
        elif isinstance(event, RunMessage) and speaker is not None:
            self._heard(speaker, event.body)
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.body, Start) and effect.run.rank == 0:
                self._started(self.stream, effect.body, self.stream.live[effect.run.job])

    def _speaker(self, event: StreamEvent) -> RecordedRun | None:
        """Return the run that sent a message, if the message determines results; else None.

        Only messages of rank 0 of the present run of a job do. Messages of other ranks and of earlier runs are ignored.
        """
        if self.stream is None or not isinstance(event, RunMessage) or event.rank:
            return None
        live = self.stream.live.get(event.job)
        return self._attempts[event.job, event.attempt] if live and live.attempt == event.attempt else None

    def _started(self, stream: Stream, start: Start, run: Run) -> None:
        source = self._taken.get(run.source) if run.source is not None else None
        made = RecordedRun(
            number=self.number,
            experiment=stream.jobs[run.job].experiment.id,
            job=run.job,
            attempt=run.attempt,
            mode=run.mode,
            start=run.start,
            source=source,
            foreign=run.source is not None and source is None,
            hyperparameters=start.hyperparameters,
            inputs=tuple(run.inputs.get(slot, "") for slot in run.slots),
            parts=run.parts,
            on_gpus=any(stream.slots[slot].gpus for slot in run.slots),
        )
        self.runs.append(made)
        self._attempts[run.job, run.attempt] = made

    def _heard(self, run: RecordedRun, body: RunBody) -> None:
        match body:
            case Reports():
                for report in body.reports:
                    if report.metrics:  # Without metrics, the report only repeats the position.
                        run.reports[report.position, report.part] = NumberedMessage(self.number, report.metrics)
            case SnapshotTaken():
                self._snapshot(run, body.snapshot)
            case Ended() if body.snapshot is not None and run.mode is RunMode.TRAIN:
                self._snapshot(run, body.snapshot)
            case _:
                pass

    def _snapshot(self, run: RecordedRun, info: SnapshotInfo) -> None:
        run.snapshots.setdefault(
            info.position, NumberedMessage(self.number, info.sha256 if info.provider == _FRAMEWORK else "")
        )
        self._taken[run.job, info.position] = run

    def _place(self, partitions: tuple[PlacedPartition, ...]) -> None:
        for one in partitions:
            self.data.setdefault(one.name, one)
            places: Mapping[str, str] = one.places
            self.places.setdefault(one.name, {}).update(places)
