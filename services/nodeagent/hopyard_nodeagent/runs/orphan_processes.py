"""The record of an agent's live processes, with which the next agent ends what a killed one left behind.

Most processes end together with their agent, but scripts that have not connected to it yet and child processes of commands do not. Each
agent therefore records its live processes in files, which the next agent with the same data folder reads.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from hopyard._runtime.criu import procfs
from hopyard._runtime.processes import process_family
from hopyard_nodeagent.runs.memory import of_session

_log = logging.getLogger(__name__)

_STARTING: Final = "starting-"
END_SECONDS: Final = 10.0
"""Time limit for killed processes to disappear."""
_SAME_SECONDS: Final = 2.0
"""Tolerance for the start time of a process, which is measured by an adjustable clock."""


class OrphanRegistry:
    """The records of the agent's live processes, one file for each; each of these processes leads a process session.

    A record contains the name of this host, the mark of the process (`hopyard._runtime.processes.process_family`) and, when it has
    started, its start time. An agent calls `end_all` at its start, to kill what an earlier agent left, then `starting`, `note` and
    `forget` for each of its processes.

    Args:
        folder: Folder of the records; it must exist.

    Attributes:
        leaders: The marks of the live processes, by process id.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.leaders: dict[int, str] = {}

    @contextmanager
    def starting(self, mark: str) -> Iterator[None]:
        """Return a context that records that a process with this mark in its environment is being started.

        If the agent is killed before it records the id of the process with `note`, the next agent finds the process by the mark.
        """
        file = self._folder / f"{_STARTING}{mark}"
        file.write_text(json.dumps({"host": socket.gethostname()}))
        try:
            yield
        finally:
            file.unlink(missing_ok=True)

    def note(self, pid: int, mark: str) -> None:
        """Record the id of a started process with the mark `mark` in its environment, unless it has ended already."""
        self.leaders[pid] = mark
        with suppress(psutil.NoSuchProcess):
            began = psutil.Process(pid).create_time()
            record = {"host": socket.gethostname(), "began": began, "mark": mark}
            (self._folder / str(pid)).write_text(json.dumps(record))

    def forget(self, pid: int) -> None:
        """Delete the record of a process. Call it when all processes of its family have ended."""
        self.leaders.pop(pid, None)
        (self._folder / str(pid)).unlink(missing_ok=True)

    def end_all(self) -> None:
        """Kill the processes that an earlier agent left on this host, wait until they have ended, and delete their records."""
        files = list(self._folder.iterdir())

        def left() -> list[int]:
            return [pid for file in files for pid in _left(file)]

        if found := left():
            stay = procfs.end(left, END_SECONDS)
            _log.warning("ended %d processes that an earlier agent left behind: %s", len(found), found)
            if stay:
                _log.error("of these %d are not gone after %g s: %s", len(stay), END_SECONDS, stay)
        for file in files:
            file.unlink()


def _left(file: Path) -> list[int]:
    """Return the ids of the live processes that the record in `file` stands for; empty: there are none.

    A damaged record, and a record of another host, stand for no processes.

    The start time in the record tells whether the process id has been reused by another process.
    """
    if file.name.startswith(_STARTING):
        return _marked(file.name.removeprefix(_STARTING))
    try:
        leader, noted = int(file.name), json.loads(file.read_text())
        host, began, mark = str(noted["host"]), float(noted["began"]), str(noted["mark"])
    except (ValueError, TypeError, KeyError):  # Incomplete: the agent was killed while it wrote the file.
        return []
    if host != socket.gethostname():
        return []
    try:
        present = psutil.Process(leader).create_time()
    except psutil.NoSuchProcess:
        present = began  # The session id is not reused while processes of the session exist.
    of_leader = of_session(leader) if abs(present - began) < _SAME_SECONDS else []
    return sorted({*of_leader, *_marked(mark)})


def _marked(mark: str) -> list[int]:
    """Return the ids of the processes whose environment contains the mark; none if it is empty."""
    if not mark:
        return []
    return [pid for pid in psutil.pids() if pid != os.getpid() and process_family.mark_of(pid) == mark]
