"""Draws the plot `capacity`: the time to the target over the number of slots."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from hopyard.plots.data.targets import Capacity, TargetScaling
from hopyard.plots.figures import theme


def draw(data: Capacity) -> Figure:
    """Draw one line per policy through the medians of the time to the target, in a band from the lower to the upper quartile."""
    several = len(data.panels) > 1
    figure, all_axes = theme.grid(len(data.panels), 3.4 if several else theme.WIDTH, theme.HEIGHT, columns=3)
    every = [times for panel in data.panels for policy in panel.policies for times in policy.times]
    unit = theme.time_unit(data.longest)
    never = theme.never_band(data.longest / unit.seconds or 1.0)
    band = any(times.upper == float("inf") for times in every)
    names = list(dict.fromkeys(policy.label for panel in data.panels for policy in panel.policies))
    for axes, panel in zip(all_axes, data.panels, strict=True):
        slots = sorted({count for policy in panel.policies for count in policy.slots})
        if slots[0] > 0 and slots[-1] >= 4 * slots[0]:
            axes.set_xscale("log", base=2)
            axes.set_xlim(slots[0] / 1.1, slots[-1] * 1.1)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(slots, [str(count) for count in slots])
        theme.time_axis(axes, never, band=band)
        labels = [
            _line(axes, policy, theme.style_of(names.index(policy.label)), never, unit) for policy in panel.policies
        ]
        theme.end_labels(axes, labels)
        axes.set_title(panel.title)
        axes.set_xlabel("slots")
    all_axes[0].set_ylabel(f"time to {data.metric} {theme.number(data.target)} [{unit.name}]")
    return figure


def _line(
    axes: Axes, policy: TargetScaling, style: theme.Style, never: theme.UnreachedMark, unit: theme.TimeUnit
) -> theme.EndLabel:
    median, lower, upper = (
        [never.place(getattr(times, name) / unit.seconds) for times in policy.times]
        for name in ("median", "lower", "upper")
    )
    axes.fill_between(
        policy.slots, lower, upper, color=style.color, alpha=0.16, linewidth=0.0, gid=f"band {policy.label}"
    )
    for edge in (lower, upper):
        axes.plot(policy.slots, edge, color=style.color, linestyle=style.line, linewidth=0.4)
    axes.plot(
        policy.slots, median, color=style.color, linestyle=style.line, marker=style.marker, markersize=4.5, gid=f"median {policy.label}"
    )  # fmt: skip
    return theme.EndLabel(policy.slots[-1], median[-1], policy.label)
