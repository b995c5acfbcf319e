"""Parser for durations."""

from __future__ import annotations

import re
from typing import Final

from hopyard.space import is_number, show

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_ONE = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def seconds(value: object) -> float:
    """Return the seconds of `90`, `30s`, `15m`, `2h`, `1d` or a sum such as `1h30m`.

    Raises:
        ValueError: The value has another form, or is not greater than 0.
    """
    if is_number(value):
        total = float(value)  # type: ignore[arg-type]  # is_number has just looked
    elif isinstance(value, str) and (parts := _ONE.findall(value)) and "".join(map("".join, parts)) == value:
        total = sum(float(count) * _UNITS[unit] for count, unit in parts)
    else:
        raise ValueError(f"needs a length of time such as 30s, 15m, 2h, 1d or 1h30m, found {show(value)}")
    if total <= 0:
        raise ValueError(f"needs a length of time above 0, found {show(value)}")
    return total
