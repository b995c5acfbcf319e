"""Recognizes folders with the data of a cluster, which must not leave its computer: they contain tokens, the database or blobs."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DATA: Final = "the data directory of a cluster"
TOKENS: Final = "the folder of a cluster's tokens"
BACKUPS: Final = "a folder of backups"

_LOCKS: Final = ("scheduler.lock", "hpgen.lock")
_DATA_MARKS: Final = ("cluster.lock", "appstat.sqlite", "appstat.lock", "agent.lock", *_LOCKS)
"""File names that identify a folder as the data directory of a cluster, an agent, or a service, or as its folder of sockets."""

_SOCKETS: Final = "run"
_SECRETS: Final = "secrets"
_ACCEPTED: Final = "accepted"
_TOKEN_FILES: Final = ("user.token", "node.token", "service.token", "ticket.key")
_HEAD: Final = "hopyard-backup.json"
_GENERATIONS: Final = ("generations", "databases", "blobs")


@dataclass(frozen=True, slots=True)
class ClusterFolder:
    """What a folder was recognized as.

    Attributes:
        mark: The file or folder by which it was recognized, as a path relative to it.
        what: `DATA`, `TOKENS` or `BACKUPS`, for messages: "... is WHAT".
    """

    mark: str
    what: str


def recognize(folder: Path, names: Collection[str] | None = None) -> ClusterFolder | None:
    """Return as what a folder with the data of a cluster is recognized; None: it is another folder.

    A data directory is recognized by the files that its services lock, the database, or the file `secrets/accepted`. A folder of
    backups is recognized by its head file, or, because that file may be lost, by its folders. The folder of tokens is recognized
    by its name and one of its files, or, as it may have been copied, by `accepted` and one more of them.

    Args:
        folder: The folder.
        names: The names of its entries, if they are known.

    Raises:
        OSError: The folder cannot be read. Not raised if `names` is given.
    """
    found = set(os.listdir(folder) if names is None else names)
    if mark := _first(_DATA_MARKS, found):
        return ClusterFolder(mark, DATA)
    if _HEAD in found:
        return ClusterFolder(_HEAD, BACKUPS)
    if found.issuperset(_GENERATIONS):
        return ClusterFolder(", ".join(_GENERATIONS), BACKUPS)
    tokens = _first(_TOKEN_FILES, found)
    if _ACCEPTED in found and (tokens or folder.name == _SECRETS):
        return ClusterFolder(_ACCEPTED, TOKENS)
    if tokens and folder.name == _SECRETS:
        return ClusterFolder(tokens, TOKENS)
    inner = [f"{_SECRETS}/{_ACCEPTED}"] if _SECRETS in found else []
    inner += [f"{_SOCKETS}/{name}" for name in _LOCKS] if _SOCKETS in found else []
    below = next((name for name in inner if os.path.lexists(folder / name)), None)
    return None if below is None else ClusterFolder(below, DATA)


def _first(marks: Collection[str], names: Collection[str]) -> str | None:
    return next((mark for mark in marks if mark in names), None)
