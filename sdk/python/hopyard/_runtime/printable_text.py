"""Text of programs, such as their errors, made fit for a terminal: it must not move its cursor or set its colours."""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """The text with its control characters written out in hexadecimal, except line breaks and tabs."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
