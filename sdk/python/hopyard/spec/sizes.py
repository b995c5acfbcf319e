"""Amounts of bytes as people write them."""

from __future__ import annotations

import re
from typing import Final

from hopyard.space import show

_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)")
_MOST: Final = 2**62


def size_or_none(value: str) -> int:
    """Bytes as `size_bytes` reads them; 0 for `none`.

    Raises:
        ValueError: As there, and what else is allowed.
    """
    if value.lower() == "none":
        return 0
    try:
        return size_bytes(value)
    except ValueError as error:
        raise ValueError(f"{error}; none takes the limit away") from error


def size_bytes(value: object) -> int:
    """Bytes of `4096`, `500MB` (500 x 1000 x 1000) or `2GiB` (2 x 1024 x 1024 x 1024), rounded down to a whole byte.

    Raises:
        ValueError: another form, less than 1, or more than can be counted.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        size: float = value
    elif isinstance(value, str) and (found := _SIZE.fullmatch(value)) and found[2].lower() in _UNITS:
        size = float(found[1]) * _UNITS[found[2].lower()]
    else:
        raise ValueError(f"needs an amount of bytes such as 500MB, 2GiB or 1073741824, found {show(value)}")
    if not 1 <= size <= _MOST:
        raise ValueError(f"needs an amount of bytes from 1 to {_MOST}, found {show(value)}")
    return int(size)
