"""Frames on a stream socket: each message is preceded by its length in bytes, as four bytes, big-endian."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final

from hopyard._net.rpc.options import MAX_MESSAGE_BYTES
from hopyard.errors import InvalidInput

_HEAD: Final = 4
_CHUNK: Final = 1 << 18


def framed(message: bytes) -> bytes:
    """Return a message as a frame: its length, then the message.

    Raises:
        InvalidInput: The message is larger than `MAX_MESSAGE_BYTES`.
    """
    _check(len(message))
    return len(message).to_bytes(_HEAD, "big") + message


class Frames:
    """Splits a stream of bytes into messages: pass received bytes to `feed`, which yields the complete messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Append the received bytes `data`, and yield the messages that are complete now, without their lengths.

        Raises:
            InvalidInput: A message is larger than `MAX_MESSAGE_BYTES`.
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
    """Yield the messages received from the socket `line` until the peer closes it; an incomplete last message is dropped.

    Raises:
        InvalidInput: A message is larger than `MAX_MESSAGE_BYTES`.
    """
    frames = Frames()
    while data := line.recv(_CHUNK):
        yield from frames.feed(data)


def _check(size: int) -> int:
    if size > MAX_MESSAGE_BYTES:
        raise InvalidInput(f"message: found {size} bytes, at most {MAX_MESSAGE_BYTES} are allowed")
    return size
