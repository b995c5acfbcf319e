"""The layout of a snapshot, and the header that completes it.

::

    <snapshot>/hopyard.json     the header: format, position, hyperparameters in use, whether the job had finished
    <snapshot>/state/...        what Trainer.save() wrote

The header is written last, so a directory without a header is an incomplete snapshot. The header contains neither the
job nor the time, so equal training states produce equal snapshots.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hopyard.trainer.errors import SnapshotStateError

HEADER_NAME: Final = "hopyard.json"
STATE_FOLDER: Final = "state"
_FORMAT: Final = 1
_LARGEST_HEADER: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """The header of a snapshot, the content of its file `hopyard.json`.

    Attributes:
        position: The position of the job in the experiment's unit, 0 or more.
        hyperparameters: The values in use when the snapshot was saved (JSON values).
        finished: Whether the trainer had declared that nothing is left to train.
    """

    position: int
    hyperparameters: Mapping[str, Any]
    finished: bool = False


def write_header(directory: Path, header: SnapshotHeader) -> None:
    """Write the header of the snapshot in `directory` atomically, which completes the snapshot."""
    document = {
        "format": _FORMAT,
        "position": header.position,
        "hyperparameters": dict(header.hyperparameters),
        "finished": header.finished,
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=True)
    partial = directory / (HEADER_NAME + ".partial")
    partial.write_text(text + "\n", encoding="ascii")
    os.replace(partial, directory / HEADER_NAME)


def read_header(directory: Path) -> SnapshotHeader:
    """Read and check the header of the snapshot in `directory`.

    Raises:
        SnapshotStateError: There is no header, or it does not have this format.
    """
    path = directory / HEADER_NAME
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_HEADER + 1)
    except OSError as error:
        raise SnapshotStateError(f"{directory} is not a complete snapshot: {HEADER_NAME}: {error.strerror}") from error
    if len(content) > _LARGEST_HEADER:
        raise SnapshotStateError(f"{path} is larger than {_LARGEST_HEADER} bytes, the most a header may have")
    try:
        document = json.loads(content)
    except ValueError as error:
        raise SnapshotStateError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        found = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise SnapshotStateError(f"{path} has format {found!r}; this version of hopyard reads format {_FORMAT}")
    position, hyperparameters, finished = (document.get(key) for key in ("position", "hyperparameters", "finished"))
    if isinstance(position, bool) or not isinstance(position, int) or position < 0:
        raise SnapshotStateError(f"{path}: position is {position!r}; allowed: a whole number, 0 or more")
    if not isinstance(hyperparameters, dict):
        raise SnapshotStateError(f"{path}: hyperparameters is {hyperparameters!r}; allowed: an object")
    if not isinstance(finished, bool):
        raise SnapshotStateError(f"{path}: finished is {finished!r}; allowed: true, false")
    if not (directory / STATE_FOLDER).is_dir():
        raise SnapshotStateError(f"{directory} is not a complete snapshot: the folder {STATE_FOLDER} is missing")
    return SnapshotHeader(position=position, hyperparameters=hyperparameters, finished=finished)
