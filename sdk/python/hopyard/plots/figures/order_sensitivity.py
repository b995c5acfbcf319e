"""Draws the plot `orders`: how the time to the target depends on the order of the configurations."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure

from hopyard.plots.data.targets import TargetOrders, TargetTimes
from hopyard.plots.figures import theme

_MARKED = 60
"""Maximum number of orders of a policy that get one mark each."""


def draw(data: TargetOrders) -> Figure:
    """Draw, for each policy, the share of orders whose search had reached the target by time x.

    A steep line means that the time hardly depends on the order.
    """
    several = len(data.panels) > 1
    figure, all_axes = theme.grid(len(data.panels), 3.4 if several else theme.WIDTH, theme.HEIGHT, columns=3)
    unit = theme.time_unit(data.longest)
    names = list(dict.fromkeys(times.label for panel in data.panels for times in panel.policies))
    for axes, panel in zip(all_axes, data.panels, strict=True):
        reached = [times.times[-1] for times in panel.policies if times.times]
        # Extend the x axis to the right: a horizontal line there shows that some searches never reached the target.
        wider = 1.15 if any(times.never for times in panel.policies) else 1.0
        longest = wider * max(reached) if reached else data.longest
        for times in panel.policies:
            style = theme.style_of(names.index(times.label))
            x = np.array([0.0, *times.times]) / unit.seconds
            y = np.arange(len(x)) / times.count
            axes.step(x, y, where="post", color=style.color, linestyle=style.line, label=_label(times, unit))
            if len(times.times) <= _MARKED:
                axes.plot(x[1:], y[1:], style.marker, color=style.color, markersize=2.6)
            if times.never:
                axes.plot([x[-1], longest / unit.seconds], [y[-1], y[-1]], color=style.color, linestyle=style.line)
        axes.set_title(panel.title)
        axes.set_xlim(0.0, longest * 1.02 / unit.seconds or 1.0)
        theme.percent(axes)
        axes.set_xlabel(f"time to {data.metric} {theme.number(data.target)} [{unit.name}]")
        axes.legend(loc="lower right", handlelength=3.0, fontsize=7.0 if several else 8.0)
    all_axes[0].set_ylabel("orders that reached it")
    return figure


def _label(times: TargetTimes, unit: theme.TimeUnit) -> str:
    if math.isinf(times.spread):
        return f"{times.label} ({times.never} of {times.count} never)"
    return f"{times.label} (spread {times.spread / unit.seconds:.3g} {unit.name})"
