"""Keeps the logs of jobs within the limits of their experiments while runs write them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hopyard._common.formatting import size as size_text
from hopyard._runtime.job_log import SMALLEST_LOG, position_of
from hopyard.v1 import resource_manager_pb2
from hopyard_nodeagent.runs.logs.cut import keep_within, kept_bytes

_CHECK_SECONDS: Final = 0.25
_FOLDER_CHECKS: Final = 20
"""Number of checks of the logs of live runs for each check of all logs of their experiments."""
OTHER_LOGS_BYTES: Final = 10 * 2**20
"""Limit of each log that belongs to no job: of training processes between runs, and of predictors."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogLimits:
    """The limits of the logs of an experiment on a node in bytes; 0: no limit.

    Attributes:
        per_job: Limit of the log of one job.
        per_experiment: Limit of all logs of the experiment.
    """

    per_job: int
    per_experiment: int


@dataclass(eq=False, slots=True)
class _LiveLog:
    """A log that a live run writes.

    Attributes:
        path: The log.
        limits: The limits of the experiment.
        position: The file in which the process that reads metrics from the log stores the offset that it has reached; None: none does.
        began: Size of the log in bytes when the run began.
    """

    path: Path
    limits: LogLimits
    position: Path | None
    began: int


class LogLimiter:
    """Cuts the middle out of logs that exceed their limits. Call `serve` as a background task, and `limited` around each run.

    Args:
        logs: The folder of all logs of the node.
        check_seconds: Interval in seconds at which the sizes of the logs of live runs are checked.
    """

    def __init__(self, logs: Path, *, check_seconds: float = _CHECK_SECONDS) -> None:
        self._logs = logs
        self._check_seconds = check_seconds
        self._live: set[_LiveLog] = set()
        self._due: dict[Path, int] = {}
        self._warned: set[Path] = set()
        self._cut_lock = threading.Lock()
        """Held while a log is cut: `check` and the end of a run, in different threads, may cut the same one."""

    @contextmanager
    def limited(self, log: Path, program: resource_manager_pb2.RunProgram, position: Path) -> Iterator[None]:
        """Keep the log of a run within the limits of its experiment until the context ends; enter it for as long as the run lives.

        `serve` checks the log meanwhile. When the context ends, whose run has then ended, the log is cut a last time if it is too
        large, and the next check of the sum of all logs of the experiment includes it.

        Args:
            log: The log of the run's job.
            program: The program of the run, with the limits in bytes; 0: no limit.
            position: The file in which the process that reads the metrics of a log program from the log stores the offset that it has
                reached. Bytes from there on are not cut before the context ends. Programs of other kinds do not use it.
        """
        limits = LogLimits(program.log_bytes_per_job, program.log_bytes_per_experiment)
        reads = program.WhichOneof("kind") == "log"
        began = log.stat().st_size if log.exists() else 0
        live = _LiveLog(log, limits, position if reads else None, began)
        self._live.add(live)
        try:
            yield
        finally:
            self._live.discard(live)
            live.position = None  # The process has ended.
            self._keep(live)
            if limits.per_experiment:
                self._due[log.parent] = max(limits.per_experiment, self._due.get(log.parent, 0))

    async def serve(self) -> None:
        """Call `check` every `check_seconds` seconds without end, every `_FOLDER_CHECKS`-th time with `everything`.

        A log that cannot be cut is reported once in the log of the agent.
        """
        checks = 0
        while True:
            await asyncio.sleep(self._check_seconds)
            checks += 1
            await asyncio.to_thread(self.check, everything=checks % _FOLDER_CHECKS == 0)

    def check(self, *, everything: bool) -> None:
        """Cut the logs of live runs that are too large.

        Args:
            everything: Whether to check also the sum of the logs of each experiment that had a live run since the last call with
                True, and the logs that belong to no job.
        """
        live = list(self._live)
        for one in live:
            self._keep(one)
        if not everything:
            return
        due, self._due = self._due, {}
        for one in live:
            if one.limits.per_experiment:
                due[one.path.parent] = max(one.limits.per_experiment, due.get(one.path.parent, 0))
        read = {one.path: _read_position(one) for one in live}
        for folder, limit in due.items():
            self._keep_folder(folder, limit, read)
        for log in (*self._logs.glob("runners/*.log"), *self._logs.glob("*.log")):
            self._cut(log, OTHER_LOGS_BYTES, f"this log keeps {size_text(OTHER_LOGS_BYTES)}", None)

    def _keep(self, live: _LiveLog) -> None:
        limit = live.limits.per_job
        if limit:
            setting = f"logs.per_job is {size_text(limit)}"
            self._cut(live.path, limit, setting, _read_position(live))

    def _keep_folder(self, folder: Path, limit: int, read: Mapping[Path, int | None]) -> None:
        """Cut the largest logs in a folder so that all together keep at most `limit` bytes. Each keeps at least `SMALLEST_LOG`.

        Args:
            folder: The folder of the logs of one experiment.
            limit: Maximum sum in bytes.
            read: For logs of live runs, the offset up to which a process has read the log; later bytes are not cut. None: no process
                reads it.
        """
        sizes = {log: kept_bytes(log) for log in folder.glob("*.log")}
        if sum(sizes.values()) <= limit:
            return
        level = level_of(sizes.values(), limit)
        setting = f"logs.per_experiment is {size_text(limit)}"
        for log, size in sizes.items():
            if size > level:
                self._cut(log, level, setting, read.get(log))

    def _cut(self, log: Path, limit: int, setting: str, read: int | None) -> None:
        try:
            with self._cut_lock:
                keep_within(log, limit, setting=setting, read=read)
        except OSError as error:
            if log not in self._warned:
                _log.warning("the log %s cannot be kept within its limit: %s", log, error)
            self._warned.add(log)


def level_of(sizes: Iterable[int], limit: int) -> int:
    """Return the largest size such that, if all larger logs are cut to it, the sum of all sizes is at most `limit`.

    It is at least `SMALLEST_LOG`, even if the sum is then larger than `limit`. If no cut is needed, it is at least the largest size.

    Args:
        sizes: Sizes of the logs in bytes.
        limit: Maximum sum in bytes.
    """
    ordered = sorted(sizes)
    left = limit
    for index, size in enumerate(ordered):
        level = left // (len(ordered) - index)
        if size > level:
            return max(level, SMALLEST_LOG)
        left -= size
    return max(limit, SMALLEST_LOG)


def _read_position(live: _LiveLog) -> int | None:
    """Return the offset up to which the process that reads metrics from a log has read it; None: no process does.

    Until that process has stored an offset, it is the size of the log when the run began.
    """
    if live.position is None:
        return None
    with suppress(OSError, ValueError):  # A damaged file counts as one that was never written.
        return position_of(live.position)
    return live.began
