"""Processes that the agent has adopted: their parents have ended, and the agent is the subreaper of all processes of its runs.

A process belongs to the training process or predictor (*leader*) whose mark is in its environment. It ends with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from hopyard._runtime.criu import procfs
from hopyard._runtime.processes import process_family

_SIGHTINGS: Final = 3
"""Number of looks after which a process counts as adopted. A process that was just started by the agent is not registered at once."""


@dataclass(slots=True)
class _Sighting:
    """An adopted process.

    Attributes:
        began: Its start time.
        owners: The leaders to which it may belong: those that were alive when it was first seen.
        looks: How often it was seen.
        dead: How often it was seen as a zombie.
    """

    began: int
    owners: set[int]
    looks: int = 0
    dead: int = 0


class AdoptedProcesses:
    """Ends adopted processes whose leaders have ended, and reaps those that have ended.

    Args:
        leaders: The live leaders of the agent with their marks, by process id. The caller changes it.
        children: Returns the ids of the children of this process.
    """

    def __init__(self, leaders: Mapping[int, str], children: Callable[[], list[int]] | None = None) -> None:
        self._leaders = leaders
        self._children = children or _children
        self._seen: dict[int, _Sighting] = {}

    def any(self) -> bool:
        """Return whether there may be adopted processes that run. It is quick."""
        return bool(self._among_children())

    def look(self) -> list[int]:
        """Kill the adopted processes without a leader, and reap those that have ended.

        Call it about once per second, in the event loop. A process with a mark belongs to the leader with this mark. One without a mark
        may belong to any leader that was alive when it was first seen.

        Returns:
            The ids of the processes that were killed.
        """
        present = self._among_children()
        self._seen = {pid: seen for pid, seen in self._seen.items() if present.get(pid, (0, ""))[0] == seen.began}
        killed, marks = [], set(self._leaders.values())
        for pid, (began, state) in present.items():
            seen = self._seen.setdefault(pid, _Sighting(began, set(self._leaders)))
            seen.owners &= self._leaders.keys()
            seen.looks += 1
            if state == "Z":
                seen.dead += 1
                if seen.dead >= _SIGHTINGS:
                    with suppress(ChildProcessError):
                        os.waitpid(pid, os.WNOHANG)
            elif seen.looks >= _SIGHTINGS:
                mark = process_family.mark_of(pid)
                if (mark not in marks) if mark else not seen.owners:
                    procfs.kill([pid])
                    killed.append(pid)
        return killed

    def _among_children(self) -> dict[int, tuple[int, str]]:
        """Return the start times and states of the adopted processes by id: children in another session, leaders excepted."""
        own, found = os.getsid(0), {}
        for pid in self._children():
            if pid not in self._leaders:
                status = process_family.status_of(pid)
                if status is not None and status.session != own:
                    found[pid] = (status.began, status.state)
        return found


def _children() -> list[int]:
    return procfs.children(os.getpid())
