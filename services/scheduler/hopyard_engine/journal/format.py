"""The version of the journal format, and the upgrade of records that have an older one.

Each record has a version, which is read before its kind and its payload. docs/recovery.md describes how to change the format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import StreamId


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as AppStat or an exported file has it.

    Attributes:
        stream: The stream.
        number: Its position in the stream: 1, 2, 3, ...
        version: The version of its format; 0: it has none.
        kind: The kind of its event.
        payload: Its event as JSON.
        checksum: A checksum of the record; empty: it has none.
    """

    stream: StreamId
    number: int
    version: int
    kind: str
    payload: bytes
    checksum: str = ""


FORMAT: Final = 2
"""The version that this code writes. Raise it when a recorded event changes its meaning or its form."""

UPGRADES: Final[Mapping[int, Callable[[StoredRecord], StoredRecord]]] = {}
"""For each older version a function that converts a record to the next version. It is empty: no older version was released."""


class RecordError(InvalidInput):
    """A record that this version cannot read. The message names the stream, the record and the reason, in one line."""

    def __init__(self, record: StoredRecord, reason: str) -> None:
        super().__init__(f"journal of {record.stream}, record {record.number}: {reason}")


def upgrade(record: StoredRecord) -> StoredRecord:
    """Return the record in the present version.

    An upgraded record has no checksum: its content is no longer the one of which the checksum was made.

    Raises:
        RecordError: The record has no version, one that is newer than `FORMAT`, or an older one that `UPGRADES` lacks.
    """
    if record.version == FORMAT:
        return record
    if type(record.version) is not int or record.version < 1:
        found = f"format version {record.version!r}" if record.version else "no format version"
        raise RecordError(record, f"found {found}, {_supported()}; {_THE_WRITER}")
    if record.version > FORMAT:
        need = f"install a Hopyard that supports version {record.version}"
        raise RecordError(record, f"found format version {record.version}, {_supported()}; {need}")
    upgraded = record
    while upgraded.version < FORMAT:
        step = UPGRADES.get(upgraded.version)
        if step is None:
            raise RecordError(record, f"found format version {record.version}, {_supported()}; {_THE_WRITER}")
        version = upgraded.version + 1
        try:
            upgraded = replace(step(upgraded), version=version, checksum="")
        except Exception as error:  # whatever the function says to a payload that it does not expect
            reason = f"the upgrade to format version {version} failed: {type(error).__name__}: {error}"
            raise RecordError(record, reason) from error
    return upgraded


_THE_WRITER: Final = "use the version of Hopyard that wrote it"


def _supported() -> str:
    """The versions that can be read, as text: those from which a chain of upgrades leads to the present one."""
    oldest = FORMAT
    while oldest - 1 in UPGRADES:
        oldest -= 1
    return f"supported is version {FORMAT}" if oldest == FORMAT else f"supported are versions {oldest} to {FORMAT}"
