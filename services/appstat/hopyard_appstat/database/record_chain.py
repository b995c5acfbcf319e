"""The checksums of journal records, which form a chain in each stream.

The checksum of a record covers its content and the checksum of the record before it. The row of a stream repeats the position and the
checksum of its last record (its head). A reader that compares both therefore finds each record that was changed, removed, doubled or
moved, also at the end of the stream. The chain finds damage by disks, file systems and tools. It is no protection from somebody who
can write the database, because the checksums need no secret.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import Final

from hopyard.errors import DataLoss
from hopyard_appstat.rows import Row

RESTORE: Final = "move the data directory away and restore a backup (`hopyard restore BACKUPS`)"

START: Final = ""
"""The checksum before the first record of a stream."""

_HEAD: Final = struct.Struct("<qdiqqq")


def checksum(previous: str, record: Row) -> str:
    """Return the checksum of a record: 32 hexadecimal digits of BLAKE2b.

    Args:
        previous: The checksum of the record before it in its stream; `START` for the first one.
        record: The record, as its row in the table `journal`; a checksum in it is ignored.
    """
    stream, kind = record["stream"].encode(), record["kind"].encode()
    # The lengths make the encoding unambiguous.
    head = _HEAD.pack(
        record["position"], record["at"], record["version"], len(stream), len(kind), len(record["payload"])
    )
    digest = hashlib.blake2b(previous.encode(), digest_size=16)
    for part in (head, stream, kind, record["payload"]):
        digest.update(part)
    return digest.hexdigest()


class ChainCheck:
    """Checks the records of one stream while they are read in order.

    Args:
        stream: Name of the stream, for messages.
        position: Position of the last record before those that are checked; 0: they begin with the first one.
        previous: The checksum of that record.
        advice: What messages tell the user to do; empty: nothing.

    Attributes:
        position: Position of the last checked record.
    """

    def __init__(self, stream: str, position: int = 0, previous: str = START, *, advice: str = RESTORE) -> None:
        self._stream = stream
        self.position = position
        self._previous = previous
        self._advice = f"; {advice}" if advice else ""

    def add(self, records: Iterable[Row]) -> None:
        """Check the next records.

        Raises:
            DataLoss: A record is missing, doubled, moved or changed. The message names the first position that is wrong.
        """
        for record in records:
            if record["position"] != self.position + 1:
                raise self._damaged(self.position + 1, f"is missing; found record {record['position']} after it")
            if record["checksum"] != checksum(self._previous, record):
                raise self._damaged(record["position"], "or the one before it was changed: its checksum differs")
            self.position, self._previous = record["position"], record["checksum"]

    def end(self, length: int, head: str) -> None:
        """Check that the last checked record is the last one of its stream.

        Args:
            length: Position of the last record, from the row of the stream.
            head: Checksum of the last record, from the row of the stream.

        Raises:
            DataLoss: It is not, so records at the end of the stream, or its row, were changed or removed.
        """
        if self.position < length:
            raise self._damaged(self.position + 1, f"is missing: the journal must have {length} records")
        if self.position > length or head != self._previous:
            raise self._damaged(self.position, "is not the last one that the stream's row names")

    def _damaged(self, position: int, what: str) -> DataLoss:
        return DataLoss(f"journal of {self._stream}: record {position} {what}{self._advice}")
