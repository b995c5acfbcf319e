"""The common look of all plots: sizes, fonts, colours that colour-blind people can distinguish, and line styles for black and white."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from matplotlib import style as mpl_style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

WIDTH: Final = 6.0
HEIGHT: Final = 3.6
GREY: Final = "#7f7f7f"
PALE: Final = "#d9d9d9"
INK: Final = "#222222"

# The palette of Okabe and Ito, without yellow, which is hard to see on paper.
BLUE: Final = "#0072b2"
VERMILLION: Final = "#d55e00"
GREEN: Final = "#009e73"
ORANGE: Final = "#e69f00"
SKY: Final = "#56b4e9"
PURPLE: Final = "#cc79a7"

RASTER: Final = 20_000
"""Above this number of points, curves are drawn as pixels in an SVG."""

_RC: Final[dict[str, Any]] = {
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.labelsize": 9.0,
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 3.0,
    "ytick.major.size": 3.0,
    "text.color": INK,
    "text.parse_math": False,
    "hatch.linewidth": 0.5,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "savefig.dpi": 200.0,
    "svg.hashsalt": "hopyard",
    "svg.fonttype": "path",
}


class Style(NamedTuple):
    """The look of one of several compared things, such as a policy: colour, line style, marker and hatch."""

    color: str
    line: tuple[int, tuple[float, ...]]
    marker: str
    hatch: str


_SOLID: Final = (0, ())
_STYLES: Final = (
    Style(BLUE, (0, ()), "o", ""),
    Style(VERMILLION, (0, (5.0, 1.6)), "s", "////"),
    Style(GREEN, (0, (5.0, 1.4, 1.0, 1.4)), "^", "\\\\\\\\"),
    Style(ORANGE, (0, (1.2, 1.2)), "D", "xxxx"),
    Style(PURPLE, (0, (8.0, 2.0)), "v", "||||"),
    Style(SKY, (0, (3.0, 1.2, 1.0, 1.2, 1.0, 1.2)), "P", "----"),
    Style(INK, (0, (2.4, 1.0)), "X", "++++"),
)


def style_of(number: int) -> Style:
    """Return the style of the compared thing (such as a policy) with the index `number`, from 0. Styles repeat after seven."""
    return _STYLES[number % len(_STYLES)]


@contextmanager
def applied() -> Iterator[None]:
    """Return a context in which matplotlib uses this theme to draw and save, independently of the user's settings."""
    with mpl_style.context(["default", _RC]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


def new(width: float = WIDTH, height: float = HEIGHT) -> tuple[Figure, Axes]:
    """Return a new figure of a size in inches, and its axes."""
    figure = Figure(figsize=(width, height))
    return figure, figure.add_subplot()


def grid(count: int, width: float, height: float, *, columns: int = 4) -> tuple[Figure, list[Axes]]:
    """Return a figure with `count` axes that share the y axis, and these axes in reading order.

    Args:
        count: Number of axes, at least 1.
        width: Width of each of the axes in inches.
        height: Height of each of the axes in inches.
        columns: Maximum number of axes in a row.
    """
    rows = math.ceil(count / columns)
    across = math.ceil(count / rows)
    figure = Figure(figsize=(width * across, height * rows))
    axes = figure.subplots(rows, across, sharex=False, sharey=True, squeeze=False)
    flat = list(axes.flat)
    for spare in flat[count:]:
        spare.set_visible(False)
    return figure, flat[:count]


class TimeUnit(NamedTuple):
    """A unit of time: its name, and its length in seconds."""

    name: str
    seconds: float


def time_unit(longest: float) -> TimeUnit:
    """Return the unit (s, min, h or days) for showing times of up to `longest` seconds."""
    for unit, limit in ((TimeUnit("s", 1.0), 180.0), (TimeUnit("min", 60.0), 180.0), (TimeUnit("h", 3600.0), 72.0)):
        if longest < limit * unit.seconds:
            return unit
    return TimeUnit("days", 86400.0)


def span(seconds: float) -> str:
    """Format a duration in `seconds` with three significant digits, in the unit that `time_unit` selects."""
    unit = time_unit(seconds)
    return f"{seconds / unit.seconds:.3g} {unit.name}"


def number(value: float) -> str:
    """Format a metric with four significant digits."""
    return f"{value:.4g}"


def whole_numbers(axes: Axes, which: str) -> None:
    """Put ticks of an axis, "x" or "y", at whole numbers only."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(integer=True, nbins=8, steps=[1, 2, 5, 10]))


def percent(axes: Axes) -> None:
    """Scale the y axis from 0 to 1, and show these values as 0 % to 100 %."""
    axes.set_ylim(0.0, 1.02)
    axes.yaxis.set_major_locator(FixedLocator([0.0, 0.25, 0.5, 0.75, 1.0]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}".replace("%", " %")))


class EndLabel(NamedTuple):
    """The label of a line, with the coordinates of the line's end in data units."""

    x: float
    y: float
    text: str


def end_labels(axes: Axes, labels: Sequence[EndLabel]) -> None:
    """Write the labels of lines at the right margin so that they do not overlap. The limits of the axes must be final.

    A thin line connects a label to its line if the line ends close to the margin; a longer connection would look like a data line.
    """
    if not labels:
        return
    height = axes.get_position().height * axes.figure.get_figheight() * 72.0  # type: ignore[union-attr]  # no subfigures here
    within = axes.transData + axes.transAxes.inverted()
    ends = [within.transform((label.x, label.y)) for label in labels]
    places = spread([float(y) for _, y in ends], 12.0 / height)
    for label, (across, up), place in zip(labels, ends, places, strict=True):
        axes.annotate(
            label.text,
            xy=(min(across, 1.0), up),
            xycoords="axes fraction",
            xytext=(1.025, place),
            textcoords="axes fraction",
            va="center",
            fontsize=8.0,
            annotation_clip=False,
            arrowprops=None
            if across < 0.93
            else {"arrowstyle": "-", "linewidth": 0.4, "color": GREY, "shrinkA": 1.0, "shrinkB": 2.0},
        )


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Return the positions `places` of labels, moved as little as possible so that neighbours are at least `gap` apart.

    Neighbours keep their order, and the results are in the order of `places`. Positions and `gap` are fractions of the height of the
    axes. All results are from 0 to 1, unless there are too many labels for that.
    """
    order = sorted(range(len(places)), key=lambda index: places[index])
    # Neighbouring labels that touch form a block, which is centred on the mean of their places.
    blocks: list[tuple[list[int], float]] = []
    for index in order:
        members, centre = [index], min(max(places[index], 0.0), 1.0)
        while blocks:
            before, middle = blocks[-1]
            if middle + gap * (len(before) - 1) / 2 + gap <= centre - gap * (len(members) - 1) / 2 + 1e-9:
                break
            blocks.pop()
            members = before + members
            wish = sum(places[one] for one in members) / len(members)
            half = gap * (len(members) - 1) / 2
            centre = min(max(wish, half), max(1.0 - half, half))
        blocks.append((members, centre))
    moved = [0.0] * len(places)
    for members, centre in blocks:
        for number, index in enumerate(members):
            moved[index] = centre + gap * (number - (len(members) - 1) / 2)
    return moved


class UnreachedMark(NamedTuple):
    """The two levels of a time axis that also shows infinite times ("never"), in the unit of the axis.

    Attributes:
        top: The end of the scale for finite times.
        level: The coordinate, beyond `top`, at which infinite times are drawn.
    """

    top: float
    level: float

    def place(self, value: float) -> float:
        """Return the coordinate of a time: itself, or `level` if it is infinite."""
        return value if math.isfinite(value) else self.level


def never_band(longest: float) -> UnreachedMark:
    """Return the levels of an axis for finite times up to `longest` (> 0, in the unit of the axis) and for infinite times above."""
    return UnreachedMark(1.04 * longest, 1.13 * longest)


def time_axis(axes: Axes, never: UnreachedMark, *, band: bool, vertical: bool = True) -> None:
    """Set the limits, from 0, and the ticks of an axis for times.

    Args:
        axes: The axes.
        never: The levels of the axis.
        band: Whether to extend the axis beyond `never.top` by a band with the tick "never", for infinite times.
        vertical: True: set up the y axis. False: set up the x axis.
    """
    axis = axes.yaxis if vertical else axes.xaxis
    ticks = [
        float(tick)
        for tick in MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]).tick_values(0.0, never.top)
        if 0 <= tick <= never.top
    ]
    names = [f"{tick:g}" for tick in ticks]
    limit = never.top
    if band:
        limit = 2.0 * never.level - never.top
        line = axes.axhline if vertical else axes.axvline
        line(never.top, color=GREY, linewidth=0.6, linestyle=(0, (1.0, 2.0)))
        ticks, names = [*ticks, never.level], [*names, "never"]
    (axes.set_ylim if vertical else axes.set_xlim)(0.0, limit)
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(
        FuncFormatter(lambda value, _: names[min(range(len(ticks)), key=lambda i: abs(ticks[i] - value))])
    )
