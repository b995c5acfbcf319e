"""Processes that a killed agent left behind: written down while they live, and ended by the next agent in the same folder.

Most end with their agent by themselves. A script that has not attached yet does not, and neither does what a command has started.
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
"""How long processes may take to be gone that were killed."""
_SAME_SECONDS: Final = 2.0
"""The system tells when a process began by a clock that may be set meanwhile."""


class Leftovers:
    """A file for each living process that leads a session, in a folder that exists."""

    def __init__(self, folder: Path) -> None:
        """Keep them in `folder`."""
        self._folder = folder

    @contextmanager
    def starting(self, token: str) -> Iterator[None]:
        """A process with this token in its environment is being started; it is noted before this ends."""
        named = _named(token)
        file = self._folder / f"{_STARTING}{named}"
        file.write_text(json.dumps({"host": socket.gethostname()}))
        try:
            yield
        finally:
            file.unlink(missing_ok=True)

    def note(self, pid: int) -> None:
        """A process was started; one that is gone already is left out."""
        with suppress(psutil.NoSuchProcess):
            began = psutil.Process(pid).create_time()
            (self._folder / str(pid)).write_text(json.dumps({"host": socket.gethostname(), "began": began}))

    def forget(self, pid: int) -> None:
        """A process has ended, and all of its session."""
        (self._folder / str(pid)).unlink(missing_ok=True)

    def end_all(self) -> None:
        """End what an earlier agent has left on this host; its machines are free when that is gone."""
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
    """Processes of the session that a file tells of, if it is still that one."""
    if file.name.startswith(_STARTING):
        return _with_token(file.name.removeprefix(_STARTING))
    try:
        leader, noted = int(file.name), json.loads(file.read_text())
        host, began = str(noted["host"]), float(noted["began"])
    except (ValueError, TypeError, KeyError):  # half written: its process was just being started
        return []
    if host != socket.gethostname():
        return []
    try:
        present = psutil.Process(leader).create_time()
    except psutil.NoSuchProcess:
        present = began  # While any of a session is left, its number is given to no other.
    return of_session(leader) if abs(present - began) < _SAME_SECONDS else []


def _named(token: str) -> str:
    """What a file may be called after a token, which is a secret."""
    return hashlib.sha256(token.encode()).hexdigest()[:32]


def _with_token(named: str) -> list[int]:
    """Processes of the sessions whose leaders have a token: their agent was killed before it knew their numbers."""
    found = []
    for process in psutil.process_iter():
        try:
            token = process.environ().get("HOPYARD_TOKEN")
        except psutil.Error:  # another user's, or gone
            continue
        if token is not None and _named(token) == named:
            found.append(process.pid)
    return found
