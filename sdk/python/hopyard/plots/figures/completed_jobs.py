"""Draws the plot `jobs_at_R`: the number of completed jobs over time."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.figure import Figure

from hopyard.plots.data.timeline import CompletedJobs
from hopyard.plots.figures import theme

_FEW: Final = 7
_COLUMNS: Final = 4


def draw(data: CompletedJobs) -> Figure:
    """Draw the number of completed jobs over time, as one step line per search.

    Searches of the same policy have one colour and one entry in the legend.
    """
    figure, axes = theme.new()
    longest = max(steps.time for steps in data.searches)
    unit = theme.time_unit(longest)
    names = list(dict.fromkeys(steps.label for steps in data.searches))
    few = len(data.searches) <= _FEW and len(names) == len(data.searches)
    top = 1.0
    for steps in data.searches:
        style = theme.style_of(names.index(steps.label))
        points = np.array([(0.0, 0.0), *steps.points, (steps.time, steps.points[-1][1] if steps.points else 0.0)])
        again = any(line.get_label() == steps.label for line in axes.lines)
        axes.step(
            points[:, 0] / unit.seconds, points[:, 1], where="post", color=style.color, linestyle=style.line,
            linewidth=1.4 if few else 0.9, alpha=1.0 if few else 0.7, label="_again" if again else steps.label,
        )  # fmt: skip
        top = max(top, float(points[:, 1].max()))
    axes.set_xlim(0.0, longest * 1.01 / unit.seconds or 1.0)
    axes.set_ylim(0.0, top * 1.05)
    theme.whole_numbers(axes, "y")
    axes.set_xlabel(f"time since the start [{unit.name}]")
    axes.set_ylabel(f"jobs trained to {_end(data)}")
    if not any(at for steps in data.searches for _, at in steps.points):
        axes.text(
            0.5, 0.5, f"no job was trained to {_end(data)}", transform=axes.transAxes, ha="center", va="center", color=theme.GREY,
            gid="nobody",
        )  # fmt: skip
    if len(names) > 1:
        # The legend is above the axes: inside them, it could hide lines of searches that end early.
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            ncols=min(len(names), _COLUMNS),
            borderaxespad=0.2,
            handlelength=3.0,
        )
    return figure


def _end(data: CompletedJobs) -> str:
    return "the end" if data.position is None else f"{data.position} {data.unit}"
