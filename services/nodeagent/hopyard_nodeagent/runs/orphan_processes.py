"""Ends processes that a killed agent left behind: live ones are recorded in files for the next agent in the same folder.

Most processes end together with their agent. A script that has not attached yet, and children of commands, do not.
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


class Leftovers:
    """One file for each live process that leads a session, in an existing folder."""

    def __init__(self, folder: Path) -> None:
        """Keep the files in `folder`."""
        self._folder = folder

    @contextmanager
    def starting(self, token: str) -> Iterator[None]:
        """Mark that a process with this token in its environment is being started, until its id is recorded."""
        named = _named(token)
        file = self._folder / f"{_STARTING}{named}"
        file.write_text(json.dumps({"host": socket.gethostname()}))
        try:
            yield
        finally:
            file.unlink(missing_ok=True)

    def note(self, pid: int) -> None:
        """Record a started process, unless it has ended."""
        with suppress(psutil.NoSuchProcess):
            began = psutil.Process(pid).create_time()
            (self._folder / str(pid)).write_text(json.dumps({"host": socket.gethostname(), "began": began}))

    def forget(self, pid: int) -> None:
        """Remove the record of a process whose session has ended."""
        (self._folder / str(pid)).unlink(missing_ok=True)

    def end_all(self) -> None:
        """End the processes that an earlier agent left on this host and wait until they are gone."""
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
    """Return the processes of the recorded session, if it still is the same session."""
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
    """Return a file name derived from a token, which is secret."""
    return hashlib.sha256(token.encode()).hexdigest()[:32]


def _with_token(named: str) -> list[int]:
    """Return processes whose environment has a token: their agent was killed before it recorded their ids."""
    found = []
    for process in psutil.process_iter():
        try:
            token = process.environ().get("HOPYARD_TOKEN")
        except psutil.Error:  # The process belongs to another user or has ended.
            continue
        if token is not None and _named(token) == named:
            found.append(process.pid)
    return found
