"""Writes event files for TensorBoard: one run per job, with its curves and its hyperparameters. It needs the extra `tensorboard`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from hopyard._common.optional_import import need
from hopyard.client.types import Experiment, Job, Statistic
from hopyard.results.publisher import values
from hopyard.results.rows import flatten

SUFFIX: Final = ".hopyard"
"""Suffix of the names of the event files. By it, the files of an earlier export are recognized and replaced."""


@dataclass
class _Open:
    writer: Any
    written: set[tuple[str, int]] = field(default_factory=set)


class TensorBoardSink:
    """Writes the curves of an experiment's jobs to event files `FOLDER/EXPERIMENT/JOB/events...`.

    Event files of a job from an earlier export are deleted when the job is first updated.

    Args:
        folder: The log directory of TensorBoard. It is created if it is missing.
        experiment: The experiment.
        live: Whether unfinished jobs will be updated again, so that their files remain open.

    Raises:
        Unsupported: tensorboardX is not installed.
    """

    def __init__(self, folder: Path, experiment: Experiment, *, live: bool = False) -> None:
        need("tensorboardX", "tensorboard")
        self._files = need("tensorboardX.event_file_writer", "tensorboard")
        self._events = need("tensorboardX.proto.event_pb2", "tensorboard")
        self._summaries = need("tensorboardX.summary", "tensorboard")
        self._folder = folder / experiment.id
        self._metric = experiment.metric.name
        self._began = experiment.created_at
        self._live = live
        self._open: dict[str, _Open] = {}

    def __enter__(self) -> Self:
        """Return the sink."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all files."""
        for one in self._open.values():
            one.writer.close()
        self._open.clear()

    def update(self, job: Job, statistics: Sequence[Statistic]) -> int:
        """Write the points of a job's curves that were not written before.

        Args:
            job: The job in its current state.
            statistics: All its reports.

        Returns:
            Number of points written.
        """
        one = self._open.get(job.id) or self._begin(job)
        summary = self._summaries.Summary
        count = 0
        for point in values(statistics):
            if (point.metric, point.position) not in one.written:
                one.written.add((point.metric, point.position))
                told = summary(value=[summary.Value(tag=point.metric, simple_value=point.value)])
                one.writer.write_event(self._events.Event(wall_time=point.at, step=point.position, summary=told))
                count += 1
        if job.state.ended or not self._live:
            one.writer.close()
            del self._open[job.id]
        else:
            one.writer.flush()
        return count

    def _begin(self, job: Job) -> _Open:
        folder = self._folder / job.id
        for old in folder.glob(f"events.out.tfevents.*{SUFFIX}"):
            old.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        # The library's usual writer is not used: it has a queue and a thread for each file, and no method to wait for them.
        writer = self._files.EventsWriter(str(folder / "events"), SUFFIX)
        one = self._open[job.id] = _Open(writer)
        for part in self._summaries.hparams(_known(job), {self._metric: 0.0}):
            writer.write_event(self._events.Event(wall_time=self._began, summary=part))
        return one


def _known(job: Job) -> dict[str, bool | int | float | str]:
    """Return the hyperparameters of a job as values that TensorBoard supports.

    Nested names are joined by dots. Values of other types than bool, int, float and str are JSON texts; None is omitted.
    """
    return {
        name: value if isinstance(value, bool | int | float | str) else json.dumps(value, ensure_ascii=False)
        for name, value in flatten("", job.hyperparameters).items()
        if value is not None
    }
