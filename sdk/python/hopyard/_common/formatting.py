"""Formats numbers, durations, sizes and hyperparameters for people, and makes program output safe for a terminal."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

NOTHING = "-"
NEVER_SECONDS = 1e8


def number(value: float | None) -> str:
    """Return a metric value rounded for display; a dash for None, and "nan", "inf" or "-inf" for values that are not finite.

    The absolute value decides: from 0.001 to below 10 up to four decimals, from 10 to below 1e5 six significant digits, else three
    significant digits; 0 is "0".
    """
    if value is None:
        return NOTHING
    if not math.isfinite(value):
        return str(value)
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4f}".rstrip("0").rstrip(".") if abs(value) < 10 else f"{value:.6g}"
    return f"{value:.3g}"


def duration(seconds: float | None) -> str:
    """Return a duration in its two largest units, such as `2h 05m` or `45s`; a dash for None and for values that are not finite.

    A negative duration is shown as `0s`.
    """
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d {whole % 86400 // 3600:02d}h"


def moment(at: float, pattern: str = "%Y-%m-%d %H:%M") -> str:
    """Return a time in seconds since the Unix epoch as local time in a pattern of `strftime`; the number if no calendar has it."""
    try:
        return datetime.fromtimestamp(at).astimezone().strftime(pattern)
    except (OSError, OverflowError, ValueError):
        return number(at)


def short_time(seconds: float) -> str:
    """Return a duration as text: `12.3ms` below 0.1 s, `4.56s` below one minute, longer ones in the format of `duration`.

    Milliseconds have one decimal, seconds three significant digits.
    """
    if seconds < 0.0995:
        return f"{seconds * 1000:.1f}ms"
    return f"{seconds:.3g}s" if seconds < 59.95 else duration(seconds)


def size(count: int) -> str:
    """Return a size of `count` bytes as text with a binary unit, such as `1.5 MiB`."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def value(given: object) -> str:
    """Return the hyperparameter value `given` as text.

    Strings are unchanged. Floats have three significant digits. Booleans become "true" and "false", None "null", a sequence a
    short text with its kind and fields, and a list or mapping JSON.
    """
    if isinstance(given, bool) or given is None:
        return str(given).lower() if given is not None else "null"
    if isinstance(given, float):
        return f"{given:.3g}"
    if isinstance(given, str | int):
        return str(given)
    from hopyard import sequences

    return (
        str(sequences.as_sequence(given))
        if sequences.is_written(given)
        else json.dumps(given, separators=(",", ":"), default=str)
    )


def hyperparameters(values: Mapping[str, Any], *, full: bool = False) -> str:
    """Return hyperparameters as `name=value` pairs, sorted by name and separated by spaces; with `full`, floats have all digits."""
    return " ".join(
        f"{name}={given!r}" if full and isinstance(given, float) else f"{name}={value(given)}"
        for name, given in sorted(values.items())
    )


def first_line(given: str) -> str:
    """Return the first line that is not blank of the error message `given`; empty if there is none.

    If that line only announces program output (it ends with a colon), the last line of `given` is appended, which is the last line
    of that output.
    """
    lines = [line.strip() for line in given.splitlines() if line.strip()]
    if len(lines) < 2 or not lines[0].endswith(":"):
        return lines[0] if lines else ""
    said, _, announced = lines[0].rpartition("; ")
    return f"{said}; its last line: {lines[-1]}" if said and "last lines" in announced else f"{lines[0]} {lines[-1]}"


def silence(seconds: float) -> str:
    """Return the time since the last message, given in seconds, as text such as `2.0s ago`.

    "never" for `NEVER_SECONDS` (1e8, about three years) or more, by which callers state that there was no message.
    """
    return "never" if seconds >= NEVER_SECONDS else f"{seconds:.1f}s ago"


def count(amount: int, noun: str) -> str:
    """Return an amount with its noun in singular or plural: `1 job`, `2 jobs`."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"


_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Return the text with control characters except line breaks and tabs replaced by hexadecimal escapes.

    Program output, such as an error, must not move the cursor of a terminal or set its colours.
    """
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
