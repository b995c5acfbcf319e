"""Draws the plot `pools`: the numbers of slots of promising and of opportunistic jobs over time (HyperDrive, figure 4c)."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.figure import Figure

from hopyard.plots.data.timeline import Pools
from hopyard.plots.figures import theme

_EDGED: Final = 100


def draw(data: Pools) -> Figure:
    """Draw the number of slots of promising jobs as an area from 0, and that of opportunistic jobs stacked on it."""
    figure, axes = theme.new()
    unit = theme.time_unit(data.time)
    points = np.array([*data.points, (data.time, *data.points[-1][1:])])
    x, promising, total = points[:, 0] / unit.seconds, points[:, 1], points[:, 1] + points[:, 2]
    edge = 0.4 if len(points) <= _EDGED else 0.0  # Edges that lie close together would hide what they enclose.
    axes.fill_between(
        x, 0.0, promising, step="post", facecolor="#4c9bcd", edgecolor=theme.INK, linewidth=edge, gid="promising", label="promising"
    )  # fmt: skip
    axes.fill_between(
        x, promising, total, step="post", facecolor="#f6d08a", edgecolor=theme.INK, linewidth=edge, hatch="////", gid="opportunistic",
        label="opportunistic",
    )  # fmt: skip
    axes.set_xlim(x[0], x[-1] if x[-1] > x[0] else x[0] + 1.0)
    axes.set_ylim(0.0, max(1.0, float(total.max())) * 1.03)
    theme.whole_numbers(axes, "y")
    axes.set_xlabel(f"time since the start [{unit.name}]")
    axes.set_ylabel("slots")
    # The legend is above the axes, where it hides no area.
    axes.legend(
        loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2, handlelength=1.6, columnspacing=1.2
    )
    return figure
