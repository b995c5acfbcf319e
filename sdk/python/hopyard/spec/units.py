"""Parses durations and sizes as people write them: `1h30m`, `2GiB`."""

from __future__ import annotations

import re
from typing import Final

from hopyard.errors import InvalidInput
from hopyard.space import is_number, show

_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def seconds(value: object, *, zero: bool = False) -> float:
    """Return a duration in seconds.

    Args:
        value: A number of seconds, or text such as `30s`, `15m`, `2h`, `1d` or a sum such as `1h30m`.
        zero: Whether 0 is allowed.

    Raises:
        ValueError: The value has another form, or is not above zero.
    """
    if is_number(value):
        total = float(value)  # type: ignore[arg-type]  # is_number has just looked
    elif isinstance(value, str) and (parts := _DURATION.findall(value)) and "".join(map("".join, parts)) == value:
        total = sum(float(count) * _SECONDS[unit] for count, unit in parts)
    else:
        raise ValueError(f"needs a length of time such as 30s, 15m, 2h, 1d or 1h30m, found {show(value)}")
    if total < 0 or (total == 0 and not zero):
        raise ValueError(f"needs a length of time above 0, found {show(value)}")
    return total


KEEP_UNKNOWN: Final = ("1d", "3650d")
"""The least and the largest value of the option --keep-unknown, the time for which nodes keep unknown snapshots."""


def option_seconds(option: str, given: str, *, zero: bool = False, allowed: tuple[str, str] | None = None) -> float:
    """Return the seconds that an option of a command specifies, above 0.

    Args:
        option: Name of the option, for the error message.
        given: Its text: a number of seconds such as `90`, or a form that `seconds` reads, such as `1h30m`.
        zero: Whether 0 is allowed.
        allowed: The least and the largest value, as texts that `seconds` reads; None: any.

    Raises:
        InvalidInput: The text has another form, or the time is not above zero or not allowed.
    """
    try:
        found = seconds(float(given) if given.replace(".", "", 1).isdecimal() else given, zero=zero)
    except ValueError as error:
        raise InvalidInput(f"{option}: {error}") from error
    if allowed is not None and not seconds(allowed[0]) <= found <= seconds(allowed[1]):
        raise InvalidInput(f"{option}: allowed are {allowed[0]} to {allowed[1]}, found {given}")
    return found


def option_bytes(option: str, given: str) -> int:
    """Return the number of bytes that an option of a command specifies, such as "50GiB"; 0 for "none".

    Args:
        option: Name of the option, for the error message.
        given: Its text.

    Raises:
        InvalidInput: The text is neither a number of bytes nor "none".
    """
    try:
        return size_or_none(given)
    except ValueError as error:
        raise InvalidInput(f"{option}: {error}") from error


_BYTES: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)")
_MOST_BYTES: Final = 2**62


def size_or_none(value: str) -> int:
    """Return a size in bytes, as `size_bytes` does, or 0 for the text `none` (no limit).

    Raises:
        ValueError: The value is not a valid size. The message adds that `none` is allowed.
    """
    if value.lower() == "none":
        return 0
    try:
        return size_bytes(value)
    except ValueError as error:
        raise ValueError(f"{error}; none takes the limit away") from error


def size_bytes(value: object) -> int:
    """Return a size in bytes, rounded down.

    Args:
        value: A number of bytes, or text such as `4096`, `500MB` (500 x 1000 x 1000) or `2GiB` (2 x 1024 x 1024 x
            1024).

    Raises:
        ValueError: The value has another form, is less than 1, or is larger than 2^62.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        size: float = value
    elif isinstance(value, str) and (found := _SIZE.fullmatch(value)) and found[2].lower() in _BYTES:
        size = float(found[1]) * _BYTES[found[2].lower()]
    else:
        raise ValueError(f"needs an amount of bytes such as 500MB, 2GiB or 1073741824, found {show(value)}")
    if not 1 <= size <= _MOST_BYTES:
        raise ValueError(f"needs an amount of bytes from 1 to {_MOST_BYTES}, found {show(value)}")
    return int(size)
