"""Draws the plot `durations`: the distribution of the jobs' training durations."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from hopyard.plots.data.curves import ProgressAxis
from hopyard.plots.data.durations import Distribution, Durations
from hopyard.plots.figures import theme


def draw(data: Durations) -> Figure:
    """Draw, for each policy, the share of jobs whose training time (or last position) is at most x."""
    figure, axes = theme.new()
    longest = max(float(policy.durations[-1]) for policy in data.policies)
    unit = theme.time_unit(longest)
    scale = unit.seconds if data.over is ProgressAxis.TIME else 1.0
    for index, policy in enumerate(data.policies):
        style = theme.style_of(index)
        x = np.concatenate([[0.0], policy.durations, [longest]]) / scale
        y = np.concatenate([np.arange(len(policy.durations) + 1) / len(policy.durations), [1.0]])
        axes.step(x, y, where="post", color=style.color, linestyle=style.line, label=_label(policy, data))
    axes.set_xlim(0.0, longest * 1.01 / scale)
    theme.percent(axes)
    axes.set_ylabel("jobs")
    axes.set_xlabel(f"training time [{unit.name}]" if data.over is ProgressAxis.TIME else data.unit)
    axes.legend(loc="lower right", handlelength=3.0)
    return figure


def _label(policy: Distribution, data: Durations) -> str:
    count, median = len(policy.durations), float(np.median(policy.durations))
    middle = theme.span(median) if data.over is ProgressAxis.TIME else f"{median:g} {data.unit}"
    going_on = f", {policy.going_on} not ended" if policy.going_on else ""
    return f"{policy.label} ({count} job{'s' * (count != 1)}{going_on}; median {middle})"
