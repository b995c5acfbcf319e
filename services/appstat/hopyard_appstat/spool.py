"""A long import on its way into the database: its messages lie in a file, and one of them at a time in memory."""

from __future__ import annotations

import asyncio
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hopyard.errors import Exhausted
from hopyard.v1 import appstat_pb2 as pb
from hopyard_appstat.projections import Append, append_of

_LENGTH: Final = struct.Struct("<Q")


class Spool:
    """Messages of one import. The file has no name: whatever is killed, nothing is left of it.

    Args:
        folder: On whose disk it lies.
    """

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - lives as long as this
        self._epoch = 0

    def close(self) -> None:
        """Let go of the file. Safe to call twice."""
        self._file.close()

    def close_after(self, done: asyncio.Task[None]) -> None:
        """Let go of the file when its last reader is done; nobody waits for the outcome."""
        self.close()
        if not done.cancelled():
            done.exception()

    def add(self, message: pb.ImportJournalRequest) -> None:
        """Keep a message; the first one says the epoch.

        Raises:
            Exhausted: The disk is full.
        """
        self._epoch = self._epoch or message.epoch
        data = message.SerializeToString()
        try:
            self._file.write(_LENGTH.pack(len(data)) + data)
            self._file.flush()
        except OSError as error:
            raise Exhausted(f"the import cannot be kept on the disk: {error.strerror or error}; make room") from error

    def parts(self) -> Iterator[Append]:
        """The rows of the messages in their order. May be called again.

        Raises:
            InvalidInput: A projection has no row, or a value is out of range.
        """
        self._file.seek(0)
        while head := self._file.read(_LENGTH.size):
            message = pb.ImportJournalRequest.FromString(self._file.read(_LENGTH.unpack(head)[0]))
            message.epoch = self._epoch
            yield append_of(message)
