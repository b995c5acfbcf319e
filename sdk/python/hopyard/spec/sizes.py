"""Numbers of bytes as people write them."""

from __future__ import annotations

import re
from typing import Final

from hopyard.space import is_number, show

_UNITS: Final = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("kMGT", 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
    "KB": 1000,
}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)")
_MOST: Final = 2**62


def byte_count(value: object) -> int:
    """Bytes of `1048576`, `500MB` (powers of 1000) or `10GiB` (powers of 1024), rounded down.

    Raises:
        ValueError: another form, less than one byte, or more than 2**62.
    """
    if is_number(value) and float(value).is_integer():  # type: ignore[arg-type]  # is_number has just looked
        total = int(value)  # type: ignore[call-overload]
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())) and (match[2] or "B") in _UNITS:
        total = int(float(match[1]) * _UNITS[match[2] or "B"])
    else:
        raise ValueError(f"needs a number of bytes such as 500MB, 10GiB or 1048576, found {show(value)}")
    if not 1 <= total <= _MOST:
        raise ValueError(f"needs at least 1 byte and at most {_MOST}, found {show(value)}")
    return total
