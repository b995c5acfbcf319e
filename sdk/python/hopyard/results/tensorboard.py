"""TensorBoard's event files: a run a job, with its curves and its hyperparameters (extra `tensorboard`)."""

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
"""How the names of the event files end: by it those of an earlier export are known, and replaced."""


@dataclass
class _Open:
    writer: Any
    written: set[tuple[str, int]] = field(default_factory=set)


class TensorBoardSink:
    """Writes `FOLDER/EXPERIMENT/JOB/events...`, anew each time.

    Args:
        folder: The log directory; made where it is missing.
        experiment: Whose curves.
        live: Whether more is to come of jobs that have not ended.

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
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all files."""
        for one in self._open.values():
            one.writer.close()
        self._open.clear()

    def update(self, job: Job, statistics: Sequence[Statistic]) -> int:
        """Write what is not there yet of a job; answers how many points that were."""
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
        # Written at once: the library's own writer has a queue and a thread a file, and no way to wait for them.
        writer = self._files.EventsWriter(str(folder / "events"), SUFFIX)
        one = self._open[job.id] = _Open(writer)
        for part in self._summaries.hparams(_known(job), {self._metric: 0.0}):
            writer.write_event(self._events.Event(wall_time=self._began, summary=part))
        return one


def _known(job: Job) -> dict[str, bool | int | float | str]:
    """Hyperparameters as TensorBoard knows them."""
    return {
        name: value if isinstance(value, bool | int | float | str) else json.dumps(value, ensure_ascii=False)
        for name, value in flatten("", job.hyperparameters).items()
        if value is not None
    }
