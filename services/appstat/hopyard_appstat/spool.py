"""Buffers a long request or answer of many messages in a file, so that only one of its messages is in memory at a time."""

from __future__ import annotations

import asyncio
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, TypeAlias

from hopyard.errors import Exhausted
from hopyard.v1 import appstat_pb2 as pb
from hopyard_appstat.projections import Append, append_of

_LENGTH: Final = struct.Struct("<Q")
_IN_MEMORY: Final = 8 * 1024 * 1024

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
        _write(self._file, message.SerializeToString(), "request")

    def parts(self) -> Iterator[Append]:
        """Yield the checked rows of each message, in order. Each call starts at the first message.

        Raises:
            InvalidInput: A projection message contains no row, or a value is out of range.
        """
        for data in _read(self._file):
            message = self._kind.FromString(data)
            message.epoch = self._epoch
            yield append_of(message)


class AnswerSpool:
    """The messages of one answer of `ReadProjections`, in memory up to 8 MiB, then in an unnamed temporary file.

    A client that reads slowly therefore keeps no transaction of the database open.

    Args:
        folder: Folder whose file system contains the file; None: that of temporary files.
    """

    def __init__(self, folder: Path | None) -> None:
        where = None if folder is None else str(folder)
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=where)  # noqa: SIM115 - lives as long as this

    def close(self) -> None:
        """Close the file, which deletes it. Safe to call twice."""
        self._file.close()

    def add(self, message: pb.ReadProjectionsResponse) -> None:
        """Append a message. Raise `Exhausted` if the disk is full."""
        _write(self._file, message.SerializeToString(), "answer")

    def messages(self) -> Iterator[pb.ReadProjectionsResponse]:
        """Yield the messages in order."""
        return map(pb.ReadProjectionsResponse.FromString, _read(self._file))


def _write(file: IO[bytes], data: bytes, what: str) -> None:
    try:
        file.write(_LENGTH.pack(len(data)) + data)
        file.flush()
    except OSError as error:
        raise Exhausted(f"the {what} cannot be kept on the disk: {error.strerror or error}; make room") from error


def _read(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while head := file.read(_LENGTH.size):
        yield file.read(_LENGTH.unpack(head)[0])
