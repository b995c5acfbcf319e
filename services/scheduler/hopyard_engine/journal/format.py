"""The version of the journal format, and the upgrade of older records.

Each record has the version of the format in which it was written. The version is read before the kind and the payload. docs/recovery.md
describes how to change the format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import StreamId


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A journal record as stored in AppStat or in an exported file.

    Attributes:
        stream: Id of the stream.
        number: Number of the record in its stream, from 1.
        version: Version of the format in which it was written; 0: it has none.
        kind: Class name of its event.
        payload: Its event as JSON.
    """

    stream: StreamId
    number: int
    version: int
    kind: str
    payload: bytes


FORMAT: Final = 2
"""The version that this code writes. Increase it when the meaning or the form of a recorded event changes."""

UPGRADES: Final[Mapping[int, Callable[[StoredRecord], StoredRecord]]] = {}
"""For each older version, a function that converts a record to the next version. It is empty, because no older version was released."""


class RecordError(InvalidInput):
    """Raised if this version of Hopyard cannot read a record. The message names the stream, the record and the reason, in one line.

    Args:
        record: The record.
        reason: Why it cannot be read.
    """

    def __init__(self, record: StoredRecord, reason: str) -> None:
        super().__init__(f"journal of {record.stream}, record {record.number}: {reason}")


def check_sequence(record: StoredRecord, previous: int) -> None:
    """Raise an error unless a record directly follows the previous record of its stream.

    Args:
        record: The record.
        previous: Number of the record that was read before it; 0: none was read.

    Raises:
        RecordError: Records between the two are missing, or the record's number is not higher than `previous`.
    """
    if record.number <= previous:
        raise RecordError(record, f"found it after record {previous}; the records are out of order")
    if record.number != previous + 1:
        missing = (
            f"record {previous + 1}"
            if record.number == previous + 2
            else f"records {previous + 1} to {record.number - 1}"
        )
        verb = "is" if record.number == previous + 2 else "are"
        raise RecordError(record, f"{missing} before it {verb} missing; restore the data directory from a backup")


def upgrade(record: StoredRecord) -> StoredRecord:
    """Return a record converted to the current version of the format.

    Raises:
        RecordError: The record has no version, a version newer than `FORMAT`, or an older one that `UPGRADES` cannot convert.
    """
    if type(record.version) is not int or record.version < 1:
        found = f"format version {record.version!r:.40}" if record.version else "no format version"
        raise RecordError(record, f"found {found}, {_supported()}; {_THE_WRITER}")
    if record.version > FORMAT:
        newer = f"version {record.version!r:.40}"
        raise RecordError(record, f"found format {newer}, {_supported()}; install a Hopyard that supports {newer}")
    upgraded = record
    while upgraded.version < FORMAT:
        step = UPGRADES.get(upgraded.version)
        if step is None:
            raise RecordError(record, f"found format version {record.version}, {_supported()}; {_THE_WRITER}")
        version = upgraded.version + 1
        try:
            upgraded = replace(step(upgraded), version=version)
        except Exception as error:  # an upgrade may raise any error on an unexpected payload
            reason = f"the upgrade to format version {version} failed: {type(error).__name__}: {error}"
            raise RecordError(record, reason) from error
    return upgraded


_THE_WRITER: Final = "use the version of Hopyard that wrote it"


def _supported() -> str:
    """Return a text that names the supported versions: those that a chain of upgrades converts to the current one."""
    oldest = FORMAT
    while oldest - 1 in UPGRADES:
        oldest -= 1
    return f"supported is version {FORMAT}" if oldest == FORMAT else f"supported are versions {oldest} to {FORMAT}"
