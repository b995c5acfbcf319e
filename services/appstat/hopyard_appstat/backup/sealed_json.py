"""JSON files with a checksum of their content, so that a changed byte in them is found."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from hopyard._common.private_files import write_private
from hopyard.errors import Conflict, DataLoss
from hopyard_appstat.backup.files import content_of

FORMAT: Final = 1
"""The version of the format of a target folder."""

_SEAL: Final = "checksum"


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """Write a file atomically and durably: `content`, the format version and the checksum."""
    document = {"format": FORMAT, **content}
    write_private(path, json.dumps({**document, _SEAL: _checksum(document)}, indent=1).encode())


def read_sealed(path: Path) -> dict[str, Any]:
    """Return the content of a file that `write_sealed` wrote.

    Raises:
        FileNotFoundError: There is no such file.
        DataLoss: The file was changed, or cannot be read.
        Conflict: The file has another format version.
    """
    raw = content_of(path)
    try:
        document: Any = json.loads(raw)
        seal = document.pop(_SEAL)
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise DataLoss(f"{path}: is damaged: it is not a JSON document with a checksum") from error
    if seal != _checksum(document):
        raise DataLoss(f"{path}: is damaged: its content does not match its checksum")
    found = document.pop("format", None)
    if found != FORMAT:
        raise Conflict(
            f"{path}: found format {found}, this version of Hopyard reads {FORMAT}; use the version that wrote it"
        )
    return dict(document)


def _checksum(document: dict[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
