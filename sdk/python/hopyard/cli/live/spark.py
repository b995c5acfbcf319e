"""Curves in one line of text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-=*#"
_GAP = "✗"


def resample(values: Sequence[float], width: int) -> list[float]:
    """At most `width` values: each is the newest of its equal share of `values`."""
    if len(values) <= width:
        return list(values)
    return [values[(index + 1) * len(values) // width - 1] for index in range(width)]


def scale(rows: Iterable[Sequence[float]]) -> tuple[float, float]:
    """The range that shows all rows, but for a fiftieth at each end: one outlier shall not flatten the rest."""
    finite = sorted(value for row in rows for value in row if math.isfinite(value))
    if not finite:
        return (0.0, 1.0)
    cut = len(finite) // 50
    return finite[cut], finite[-1 - cut]


def sparkline(values: Sequence[float], low: float, high: float, *, ascii_only: bool = False) -> str:
    """One character a value, by its height between `low` and `high`; what is not finite is a cross."""
    levels = _ASCII if ascii_only else _BLOCKS
    # Halves, because the difference of two floats may not be one.
    span = high / 2 - low / 2
    drawn = []
    for value in values:
        if not math.isfinite(value):
            drawn.append("x" if ascii_only else _GAP)
            continue
        part = min(1.0, max(0.0, (value / 2 - low / 2) / span)) if span > 0 else 0.5
        drawn.append(levels[min(len(levels) - 1, int(part * len(levels)))])
    return "".join(drawn)


def bar(part: float, width: int, *, ascii_only: bool = False) -> str:
    """A bar of `width` characters, filled to `part` (0..1), in eighths of a character."""
    part = min(1.0, max(0.0, part))
    if ascii_only:
        filled = round(part * width)
        return "#" * filled + "." * (width - filled)
    eighths = round(part * width * 8)
    full, rest = divmod(eighths, 8)
    partial = "▏▎▍▌▋▊▉"[rest - 1] if rest else ""
    return ("█" * full + partial).ljust(width, " ")
