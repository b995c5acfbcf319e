"""Prepares data directories of clusters that ended in the middle of their training. Cases damage copies of them."""

from __future__ import annotations

import json
import shutil
import signal
import stat
import threading
from pathlib import Path
from typing import Final

from damage_cases.cluster import STOP_SECONDS, CaseCluster, Way
from damage_cases.plan import End
from damage_cases.specs import CODE

_IDS: Final = "ids.json"
_FOREIGN_CODE: Final = '{"cluster": "foreign", "constants": [0.57721]}\n'


class Bases:
    """Prepares each kind of cluster once.

    Args:
        folder: Folder for the clusters. Those that are complete there are used again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks = {key: threading.Lock() for key in ("foreign", *(f"{a}-{e.value}" for a in _AGENTS for e in End))}

    def get(self, way: Way, end: End) -> Path:
        """Return the folder of a cluster whose agent has the folder that `way` uses; its data directory is `data`."""
        agents = "up" if way is Way.UP else "local"
        return self._prepared(f"{agents}-{end.value}", _AGENTS[agents], end, CODE)

    def foreign(self) -> Path:
        """Return the folder of a cluster with the same experiments and other code."""
        code = self._folder / "foreign-code"
        with self._locks["foreign"]:
            if not code.exists():
                shutil.copytree(CODE, code, ignore=shutil.ignore_patterns("__pycache__"))
                (code / "constants.json").write_text(_FOREIGN_CODE)
        return self._prepared("foreign", Way.LOCAL, End.KILLED, code)

    def _prepared(self, name: str, way: Way, end: End, code: Path) -> Path:
        folder = self._folder / name
        with self._locks[name]:
            if not (folder / _IDS).exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                _create(folder, way, end, code)
        return folder


_AGENTS: Final = {"local": Way.LOCAL, "up": Way.UP}


def _create(folder: Path, way: Way, end: End, code: Path) -> None:
    cluster = CaseCluster(f"base {folder}", folder)
    up = session = None
    try:
        up, session, ids = cluster.create(way, code)
        if end is End.STOPPED:
            session.communicate("", timeout=STOP_SECONDS)
            if up is not None:
                up.send_signal(signal.SIGINT)
                up.wait(STOP_SECONDS)
    finally:
        cluster.processes.kill()
        for process in (up, session):
            if process is not None:
                with process:  # closes its pipes
                    process.wait()
    (folder / _IDS).write_text(json.dumps(ids))


def copy_of(base: Path, data: Path) -> dict[str, str]:
    """Copy the data directory of a prepared cluster, without its sockets and the services' logs; return the ids of its experiments."""
    shutil.copytree(base / "data", data, symlinks=True, ignore=_sockets)
    for log in (data / "logs").glob("*.log"):
        log.unlink()
    found: dict[str, str] = json.loads((base / _IDS).read_text())
    return found


def _sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if stat.S_ISSOCK((Path(folder) / name).lstat().st_mode)]
