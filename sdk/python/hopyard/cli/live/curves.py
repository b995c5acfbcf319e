"""Draws curves as text: sparklines of block characters, and plots of braille characters with eight dots each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from hopyard._common.formatting import number

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-=*#"
_GAP = "✗"


def resample(values: Sequence[float], width: int) -> list[float]:
    """Return `values` if there are at most `width`, else `width` of them: the last value of each of `width` equal parts."""
    if len(values) <= width:
        return list(values)
    return [values[(index + 1) * len(values) // width - 1] for index in range(width)]


def scale(rows: Iterable[Sequence[float]]) -> tuple[float, float]:
    """Return the lowest and the highest value to draw: the range of the finite values in all `rows` without the lowest and highest 2%.

    Outliers therefore do not flatten the other curves. (0, 1) if there is no finite value.
    """
    finite = sorted(value for row in rows for value in row if math.isfinite(value))
    if not finite:
        return (0.0, 1.0)
    cut = len(finite) // 50
    return finite[cut], finite[-1 - cut]


def sparkline(values: Sequence[float], low: float, high: float, *, ascii_only: bool = False) -> str:
    """Return a line of block characters, one for each value, whose height shows the value between `low` and `high`.

    Values outside this range get the lowest or highest character. A value that is not finite is a cross. With
    `ascii_only`, the line consists of ASCII characters. If `low` is not below `high`, all characters have half the height.
    """
    levels = _ASCII if ascii_only else _BLOCKS
    # Halves, because the difference of two finite floats may overflow.
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
    """Return a bar of `width` characters, filled to the fraction `part` (0 to 1) in steps of an eighth of a character.

    With `ascii_only`, the bar consists of "#" and ".", in steps of a whole character.
    """
    part = min(1.0, max(0.0, part))
    if ascii_only:
        filled = round(part * width)
        return "#" * filled + "." * (width - filled)
    eighths = round(part * width * 8)
    full, rest = divmod(eighths, 8)
    partial = "▏▎▍▌▋▊▉"[rest - 1] if rest else ""
    return ("█" * full + partial).ljust(width, " ")


_BLANK = 0x2800
# Dot bits of a braille character by (row, column).
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def plot(points: Sequence[tuple[float, float]], width: int, height: int, *, title: str = "") -> list[str]:
    """Draw points joined by lines, with the range of both axes; return the lines of text. Without a finite y, one line says so.

    Args:
        points: (x, y) in order of x. A y that is not finite makes a gap.
        width: Maximum length of a line including the axis, at least 20.
        height: Number of lines of the plot without title and axis, at least 2.
        title: A line above the plot; empty: none.
    """
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    if not finite:
        return [title, "no finite values yet"] if title else ["no finite values yet"]
    low, high = min(y for _, y in finite), max(y for _, y in finite)
    span = high / 2 - low / 2  # halves, because the difference of two finite floats may overflow
    first, last = finite[0][0], finite[-1][0]
    labels = [number(high), number(low)]
    margin = max(len(label) for label in labels)
    columns = max(4, width - margin - 2)
    canvas = _Canvas(columns, max(2, height))
    previous: tuple[int, int] | None = None
    for x, y in points:
        if not math.isfinite(y):
            previous = None
            continue
        dot = (
            round((x - first) / (last - first) * (canvas.dots_across - 1)) if last > first else 0,
            round((high / 2 - y / 2) / span * (canvas.dots_down - 1)) if span > 0 else canvas.dots_down // 2,
        )
        canvas.line(previous or dot, dot)
        previous = dot
    rows = canvas.rows()
    lines = [title] if title else []
    for index, row in enumerate(rows):
        label = labels[0] if index == 0 else labels[1] if index == len(rows) - 1 else ""
        lines.append(f"{label:>{margin}} ┤{row}" if label else f"{'':>{margin}} │{row}")
    right = f"{last:g}"
    lines.append(f"{'':>{margin}}  {f'{first:g}':<{max(1, columns - len(right))}}{right}")
    return lines


class _Canvas:
    """A grid of dots that is printed as braille characters, each of which has two columns and four rows of dots.

    Args:
        columns: Number of characters per line.
        rows: Number of lines.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self.dots_across, self.dots_down = columns * 2, rows * 4
        self._cells = [[0] * columns for _ in range(rows)]

    def line(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Set the dots on the line between the dots `start` and `end` (x, y), both included. y = 0 is the top row."""
        steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
        for step in range(steps + 1):
            x = round(start[0] + (end[0] - start[0]) * step / steps)
            y = round(start[1] + (end[1] - start[1]) * step / steps)
            self._cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]

    def rows(self) -> list[str]:
        return ["".join(chr(_BLANK + cell) for cell in row) for row in self._cells]
