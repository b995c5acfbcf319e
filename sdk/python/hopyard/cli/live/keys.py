"""Decodes the bytes that a terminal sends into keys."""

from __future__ import annotations

import enum
import re
from typing import Final


class SpecialKey(enum.Enum):
    """A key without a character."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    HOME = "home"
    END = "end"
    ENTER = "enter"
    ESCAPE = "escape"
    REDRAW = "ctrl-l"


Key = SpecialKey | str
"""A special key, or a printable ASCII character."""

ESCAPE_SECONDS: Final = 0.05
"""Seconds after which an escape byte that nothing follows is the key Esc. The bytes of other keys arrive together."""

_SEQUENCES: Final = {
    b"A": SpecialKey.UP,
    b"B": SpecialKey.DOWN,
    b"H": SpecialKey.HOME,
    b"F": SpecialKey.END,
    b"1~": SpecialKey.HOME,
    b"4~": SpecialKey.END,
    b"5~": SpecialKey.PAGE_UP,
    b"6~": SpecialKey.PAGE_DOWN,
    b"7~": SpecialKey.HOME,
    b"8~": SpecialKey.END,
}
_CONTROL_SEQUENCE: Final = re.compile(rb"\x1b(?:\[([0-?]*[ -/]*[@-~])|O(.))")
_INCOMPLETE: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")


class KeyDecoder:
    """Decodes a stream of bytes into keys. Bytes of unknown keys, such as F1 or letters that are not ASCII, are ignored."""

    def __init__(self) -> None:
        self._pending = b""

    @property
    def pending(self) -> bool:
        """Whether the bytes so far end within a sequence, which is complete or the key Esc after `ESCAPE_SECONDS`."""
        return bool(self._pending)

    def feed(self, data: bytes) -> list[Key]:
        """Decode further bytes and return the keys that they complete."""
        rest, keys = self._pending + data, list[Key]()
        self._pending = b""
        while rest:
            if found := _CONTROL_SEQUENCE.match(rest):
                key = _SEQUENCES.get(found[1] or found[2])
                keys += [key] if key is not None else []
                rest = rest[found.end() :]
            elif _INCOMPLETE.match(rest):
                self._pending = rest
                return keys
            else:
                byte, rest = rest[:1], rest[1:]
                if byte == b"\x1b":
                    keys.append(SpecialKey.ESCAPE)
                elif byte in b"\r\n":
                    keys.append(SpecialKey.ENTER)
                elif byte == b"\x0c":
                    keys.append(SpecialKey.REDRAW)
                elif b" " <= byte <= b"~":
                    keys.append(byte.decode("ascii"))
        return keys

    def flush(self) -> list[Key]:
        """End an incomplete sequence and return its key: Esc if it has only the escape byte, else none."""
        alone, self._pending = self._pending == b"\x1b", b""
        return [SpecialKey.ESCAPE] if alone else []
