"""Draws the plot `curves`: the learning curves of all jobs."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import Normal, Stroke

from hopyard.client.display.job_looks import LOOKS, STOPPED
from hopyard.plots.data.curves import CurvePlot, ProgressAxis
from hopyard.plots.figures import job_classes, theme
from hopyard.plots.model import Floats, JobCurve, JobEnd
from hopyard.policy.vocabulary import JobState

_MARKED: Final = 200
"""Maximum number of curves of one kind of end whose ends are marked: more marks would cover the plot."""


class _Look(NamedTuple):
    color: str
    line: tuple[int, tuple[float, ...]]
    width: float
    end: str


_LOOKS: Final = {
    JobEnd.OPEN: _Look(theme.BLUE, (0, ()), 0.9, ""),
    JobEnd.COMPLETED: _Look(LOOKS[JobState.COMPLETED].color, (0, ()), 0.9, ""),
    JobEnd.STOPPED: _Look(STOPPED.color, (0, (6.0, 1.2, 1.0, 1.2)), 0.9, ""),
    JobEnd.TERMINATED: _Look(LOOKS[JobState.TERMINATED].color, (0, (4.0, 1.5)), 0.8, "s"),
    JobEnd.FAILED: _Look(LOOKS[JobState.FAILED].color, (0, (1.2, 1.0)), 1.1, "x"),
}


def draw(data: CurvePlot) -> Figure:
    """Draw the learning curves of all jobs, with that of `data.best`, if any, highlighted on top, and a line at the target."""
    figure, axes = theme.new()
    longest = max((float(curve.times[-1]) for curve in data.curves if len(curve.times)), default=0.0)
    unit = theme.time_unit(longest)
    scale = unit.seconds if data.over is ProgressAxis.TIME else 1.0
    drawn = [curve for curve in data.curves if len(curve.values)]
    alpha = 0.85 * min(1.0, 60.0 / len(drawn)) ** 0.6
    pixels = sum(len(curve.values) for curve in drawn) > theme.RASTER
    plain = all(curve.end is JobEnd.OPEN for curve in drawn)
    promising = None
    if data.promising is not None:
        promising = [how for how in data.promising if len(how)]
        pieces = [_pieces(curve, data.over, scale) for curve in drawn]
        job_classes.lines(axes, drawn, pieces, promising, alpha, pixels=pixels)
    order = (JobEnd.TERMINATED, JobEnd.STOPPED, JobEnd.OPEN, JobEnd.COMPLETED, JobEnd.FAILED)
    for end in () if promising is not None else order:
        _lines(axes, [curve for curve in drawn if curve.end is end], end, data.over, scale, alpha, pixels)
    last = max(float(_x(curve, data.over)[-1]) for curve in drawn) / scale
    axes.set_xlim(0.0, last * 1.01 or 1.0)
    axes.set_ylim(data.low, data.high)
    labels = []
    if data.target is not None:
        axes.axhline(data.target, color=theme.INK, linewidth=0.8, linestyle=(0, (2.0, 1.5)), zorder=5.5, gid="target")
        labels.append(theme.EndLabel(last, data.target, f"target {theme.number(data.target)}"))
    best = next((curve for curve in drawn if curve.job == data.best), None)
    if best is not None:
        labels.append(_best(axes, best, data, scale))
    theme.end_labels(axes, labels)
    axes.set_ylabel(data.metric)
    if data.over is ProgressAxis.POSITION:
        theme.whole_numbers(axes, "x")
        axes.set_xlabel(data.unit)
    else:
        axes.set_xlabel(f"{'training time' if data.own_time else 'time since the start'} [{unit.name}]")
    handles = job_classes.handles(drawn, promising) if promising is not None else _handles(drawn, plain)
    _legend(axes, handles, data.beyond)
    return figure


def _x(curve: JobCurve, over: ProgressAxis) -> Floats:
    return curve.times if over is ProgressAxis.TIME else curve.positions


def _lines(
    axes: Axes,
    curves: list[JobCurve],
    end: JobEnd,
    over: ProgressAxis,
    scale: float,
    alpha: float,
    pixels: bool,
) -> None:
    if not curves:
        return
    shown = _LOOKS[end]
    segments, waits = [], []
    for curve in curves:
        trained, waited = _pieces(curve, over, scale)
        segments += trained
        waits += waited
    for lines, width, name in ((segments, shown.width, end.value), (waits, 0.3, f"{end.value} waits")):
        collection = LineCollection(
            lines, colors=shown.color, linewidths=width, linestyles=[shown.line], alpha=alpha, gid=name
        )
        collection.set_rasterized(pixels)
        axes.add_collection(collection, autolim=False)
    # A curve of one point has no line.
    dots = np.concatenate([np.empty((0, 2)), *(one for one in segments if len(one) == 1)])
    if len(dots):
        axes.plot(dots[:, 0], dots[:, 1], ".", color=shown.color, markersize=3.0, alpha=alpha, gid=f"{end.value} dots")
    if shown.end and len(curves) <= _MARKED:
        ends = np.array([_last_finite(_points(curve, over, scale)) for curve in curves])
        hollow = shown.end == "s"
        axes.plot(
            ends[:, 0], ends[:, 1], shown.end, color=shown.color, markersize=3.2 if hollow else 4.5,
            markerfacecolor="white" if hollow else shown.color, markeredgewidth=0.9, gid=f"{end.value} ends",
        )  # fmt: skip


def _points(curve: JobCurve, over: ProgressAxis, scale: float) -> Floats:
    return np.column_stack([_x(curve, over) / scale, curve.values])


def _pieces(curve: JobCurve, over: ProgressAxis, scale: float) -> tuple[list[Floats], list[Floats]]:
    """Return the parts of a curve as two lists of (x, y) arrays: one line per run, and one line across each gap between two runs.

    Over time, the job may have waited in such a gap. Over positions there are no gaps: the whole curve is one line. `scale` is the
    number of seconds per unit of the x axis; 1 over positions.
    """
    points = _points(curve, over, scale)
    if over is ProgressAxis.POSITION or not curve.resumed:
        return [points], []
    return np.split(points, curve.resumed), [points[index - 1 : index + 1] for index in curve.resumed]


def _last_finite(points: Floats) -> Floats:
    finite = points[np.isfinite(points[:, 1])]
    last: Floats = finite[-1] if len(finite) else points[-1]
    return last


def _best(axes: Axes, best: JobCurve, data: CurvePlot, scale: float) -> theme.EndLabel:
    x = _x(best, data.over) / scale
    halo = [Stroke(linewidth=3.4, foreground="white"), Normal()]
    trained, waited = _pieces(best, data.over, scale)
    for pieces, width in ((waited, 0.6), (trained, 1.8)):
        for one in pieces:
            effects = halo if width > 1 else None
            axes.plot(
                one[:, 0], one[:, 1], color=theme.INK, linewidth=width, zorder=5, path_effects=effects, gid="best"
            )
    place = int(np.flatnonzero(best.values == data.best_value)[0])
    axes.plot(x[place], best.values[place], "o", color=theme.INK, markersize=4.5, zorder=6, gid="best point")
    assert data.best_value is not None
    finite = np.flatnonzero(np.isfinite(best.values))[-1]
    text = f"best: job {best.job}, {theme.number(data.best_value)}"
    return theme.EndLabel(float(x[finite]), float(best.values[finite]), text)


def _handles(curves: list[JobCurve], plain: bool) -> list[Line2D]:
    """Return the legend entries that explain the line styles: one for each `JobEnd` of the curves, with the number of jobs.

    `plain`: no job has ended, and the entries say "jobs" instead of the end.
    """
    ends = [end for end in JobEnd if any(curve.end is end for curve in curves)]
    handles = []
    for end in ends:
        count = sum(curve.end is end for curve in curves)
        shown = _LOOKS[end]
        name = "job" if plain else end.value
        handles.append(
            Line2D(
                [], [], color=shown.color, linestyle=shown.line, linewidth=1.4, marker=shown.end or None, markersize=4.0,
                markerfacecolor="white", label=f"{count} {name}{'s' if name == 'job' and count != 1 else ''}",
            )
        )  # fmt: skip
    return handles


def _legend(axes: Axes, handles: list[Line2D], beyond: int) -> None:
    """Draw the legend: the entries `handles`, and the number `beyond` of curves that leave the axis limits, if there are any."""
    if beyond:
        handles.append(Line2D([], [], linestyle="none", label=f"({beyond} beyond the axis)"))
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(handles), borderaxespad=0.2,
        handlelength=2.2, columnspacing=1.4,
    )  # fmt: skip
