"""Messages on a stream socket: four bytes of length, big-endian, then the message."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final

from hopyard._net.rpc.channel import MAX_MESSAGE_BYTES
from hopyard.errors import InvalidInput

_HEAD: Final = 4
_CHUNK: Final = 1 << 18


def framed(message: bytes) -> bytes:
    """A message as it travels.

    Raises:
        InvalidInput: It is larger than a message may be.
    """
    _check(len(message))
    return len(message).to_bytes(_HEAD, "big") + message


class Frames:
    """Takes bytes as they come and gives whole messages back."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The messages that are whole with these bytes.

        Raises:
            InvalidInput: One is larger than a message may be.
        """
        self._bytes += data
        while len(self._bytes) >= _HEAD:
            end = _HEAD + _check(int.from_bytes(self._bytes[:_HEAD], "big"))
            if len(self._bytes) < end:
                return
            message = bytes(self._bytes[_HEAD:end])
            del self._bytes[:end]
            yield message


def received(line: socket.socket) -> Iterator[bytes]:
    """The messages that come, until the other side ends.

    Raises:
        InvalidInput: One is larger than a message may be.
    """
    frames = Frames()
    while data := line.recv(_CHUNK):
        yield from frames.feed(data)


def _check(size: int) -> int:
    if size > MAX_MESSAGE_BYTES:
        raise InvalidInput(f"message: found {size} bytes, at most {MAX_MESSAGE_BYTES} are allowed")
    return size
