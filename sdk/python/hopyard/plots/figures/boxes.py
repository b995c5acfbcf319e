"""Draws the plot `boxes`: the time to the target of each policy."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from hopyard.plots.data.targets import Boxes, TargetTimes
from hopyard.plots.figures import theme

_HALF = 0.26


def draw(data: Boxes) -> Figure:
    """Draw a box plot of the times to the target, with one box per policy.

    A box shows quartiles and median. Whiskers extend to the fastest and the slowest search, and each search has a ring. Searches that
    never reached the target are triangles at the mark "never" above the scale.
    """
    most = max(len(panel.policies) for panel in data.panels)
    several = len(data.panels) > 1
    figure, all_axes = theme.grid(len(data.panels), max(2.2 if several else 3.6, 0.6 + 0.8 * most), theme.HEIGHT)
    unit = theme.time_unit(data.longest)
    never = theme.never_band(data.longest / unit.seconds or 1.0)
    band = any(times.never for panel in data.panels for times in panel.policies)
    names = list(dict.fromkeys(times.label for panel in data.panels for times in panel.policies))
    for axes, panel in zip(all_axes, data.panels, strict=True):
        for place, times in enumerate(panel.policies):
            _box(axes, place, times, theme.style_of(names.index(times.label)), never, unit)
        axes.set_title(panel.title)
        axes.set_xticks(range(len(panel.policies)), [f"{times.label}\nn = {times.count}" for times in panel.policies])
        axes.set_xlim(-0.6, len(panel.policies) - 0.4)
        axes.grid(visible=False, axis="x")
        theme.time_axis(axes, never, band=band)
    all_axes[0].set_ylabel(f"time to {data.metric} {theme.number(data.target)} [{unit.name}]")
    return figure


def _box(
    axes: Axes, place: int, times: TargetTimes, style: theme.Style, never: theme.UnreachedMark, unit: theme.TimeUnit
) -> None:
    lower, median, upper = (never.place(one / unit.seconds) for one in (times.lower, times.median, times.upper))
    reached = np.array(times.times) / unit.seconds
    if len(reached):
        for ends in ([reached[0], lower], [upper, max(upper, reached[-1])]):
            axes.plot([place, place], ends, color=theme.INK, linewidth=0.8)
    if times.never:
        high = max(upper, *reached) if len(reached) else upper
        axes.plot([place, place], [high, never.level], color=theme.INK, linewidth=0.8, linestyle=(0, (1.0, 2.0)))
    red, green, blue = (0.65 + 0.35 * part for part in to_rgb(style.color))
    axes.add_patch(
        Rectangle(
            (place - _HALF, lower), 2 * _HALF, upper - lower, facecolor=(red, green, blue), edgecolor=style.color,
            hatch=style.hatch, linewidth=0.9, zorder=3, gid=f"box {times.label}",
        )
    )  # fmt: skip
    axes.plot([place - _HALF, place + _HALF], [median, median], color=theme.INK, linewidth=2.0, zorder=5)
    rings: dict[str, Any] = {
        "markerfacecolor": "white",
        "markeredgecolor": theme.INK,
        "markeredgewidth": 0.6,
        "zorder": 4,
    }
    axes.plot(place + _aside(len(reached)), reached, "o", markersize=2.8, gid=f"reached {times.label}", **rings)
    if times.never:
        aside = np.linspace(-_HALF, _HALF, times.never) if times.never > 1 else np.zeros(1)
        axes.plot(place + aside, [never.level] * times.never, "^", markersize=4.0, gid=f"never {times.label}", **rings)
        axes.annotate(
            f"{times.never} of {times.count}", (place, never.level), (0, 6), textcoords="offset points", ha="center", fontsize=7.0
        )  # fmt: skip


def _aside(count: int) -> np.ndarray:
    """Return horizontal offsets for `count` rings, so that rings of similar height do not overlap. They are the same for each call."""
    return (np.arange(count) * 0.381966 % 1.0 - 0.5) * 1.4 * _HALF
