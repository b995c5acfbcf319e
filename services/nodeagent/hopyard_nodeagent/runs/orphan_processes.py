"""Ends processes that a killed agent left behind.

Most processes end together with their agent, but scripts that have not connected to it yet and child processes of commands do not. Each
agent therefore records its live processes in files, which the next agent with the same data folder reads.
"""

from __future__ import annotations

import hashlib
import json
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from hopyard._runtime.criu import procfs
from hopyard_nodeagent.runs.memory import of_session

_log = logging.getLogger(__name__)

_STARTING: Final = "starting-"
END_SECONDS: Final = 10.0
"""Time limit for killed processes to disappear."""
_SAME_SECONDS: Final = 2.0
"""Tolerance for the start time of a process, which is measured by an adjustable clock."""


class OrphanRegistry:
    """The records of the agent's live processes, one file for each; each of these processes leads a process session.

    A record contains the name of this host and, when the process has started, its start time. An agent calls `end_all` at its start,
    to kill what an earlier agent left, then `starting`, `note` and `forget` for each of its processes.

    Args:
        folder: Folder of the records; it must exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def starting(self, token: str) -> Iterator[None]:
        """Return a context that records that a process with this token in its environment is being started.

        If the agent is killed before it records the id of the process with `note`, the next agent finds the process by the token.
        """
        named = _named(token)
        file = self._folder / f"{_STARTING}{named}"
        file.write_text(json.dumps({"host": socket.gethostname()}))
        try:
            yield
        finally:
            file.unlink(missing_ok=True)

    def note(self, pid: int) -> None:
        """Record the id of a started process, unless it has ended already."""
        with suppress(psutil.NoSuchProcess):
            began = psutil.Process(pid).create_time()
            (self._folder / str(pid)).write_text(json.dumps({"host": socket.gethostname(), "began": began}))

    def forget(self, pid: int) -> None:
        """Delete the record of a process. Call it when all processes of its process session have ended."""
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
        return _with_token(file.name.removeprefix(_STARTING))
    try:
        leader, noted = int(file.name), json.loads(file.read_text())
        host, began = str(noted["host"]), float(noted["began"])
    except (ValueError, TypeError, KeyError):  # Incomplete: the agent was killed while it wrote the file.
        return []
    if host != socket.gethostname():
        return []
    try:
        present = psutil.Process(leader).create_time()
    except psutil.NoSuchProcess:
        present = began  # The session id is not reused while processes of the session exist.
    return of_session(leader) if abs(present - began) < _SAME_SECONDS else []


def _named(token: str) -> str:
    """Return a file name derived from a token by a hash, because the token is secret."""
    return hashlib.sha256(token.encode()).hexdigest()[:32]


def _with_token(named: str) -> list[int]:
    """Return the ids of processes whose environment contains the token with the file name `named`."""
    found = []
    for process in psutil.process_iter():
        try:
            token = process.environ().get("HOPYARD_TOKEN")
        except psutil.Error:  # The process belongs to another user or has ended.
            continue
        if token is not None and _named(token) == named:
            found.append(process.pid)
    return found
