"""Buffers a long request of many messages in a file, so that only one of its messages is in memory at a time."""

from __future__ import annotations

import asyncio
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from hopyard.errors import Exhausted
from hopyard.v1 import appstat_pb2 as pb
from hopyard_appstat.projections import Append, append_of

_LENGTH: Final = struct.Struct("<Q")


Message: TypeAlias = pb.ImportJournalRequest | pb.ReplaceProjectionsRequest


class Spool:
    """The messages of one import of a journal or replacement of rows, in an unnamed temporary file, deleted when the process ends.

    Args:
        folder: Folder whose file system contains the file.
        kind: The type of the messages.
    """

    def __init__(self, folder: Path, kind: type[Message] = pb.ImportJournalRequest) -> None:
        self._kind = kind
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - lives as long as this
        self._epoch = 0

    def close(self) -> None:
        """Close the file, which deletes it. Safe to call twice."""
        self._file.close()

    def close_after(self, done: asyncio.Task[None]) -> None:
        """Close the file; called when the task `done`, which reads the file, has ended. An error of the task is ignored."""
        self.close()
        if not done.cancelled():
            done.exception()

    def add(self, message: Message) -> None:
        """Append a message. The scheduler's epoch in the first message applies to all messages.

        Raises:
            Exhausted: The disk is full.
        """
        self._epoch = self._epoch or message.epoch
        data = message.SerializeToString()
        try:
            self._file.write(_LENGTH.pack(len(data)) + data)
            self._file.flush()
        except OSError as error:
            raise Exhausted(f"the request cannot be kept on the disk: {error.strerror or error}; make room") from error

    def parts(self) -> Iterator[Append]:
        """Yield the checked rows of each message, in order. Each call starts at the first message.

        Raises:
            InvalidInput: A projection message contains no row, or a value is out of range.
        """
        self._file.seek(0)
        while head := self._file.read(_LENGTH.size):
            message = self._kind.FromString(self._file.read(_LENGTH.unpack(head)[0]))
            message.epoch = self._epoch
            yield append_of(message)
