"""Draws learning curves coloured by the class that the policy gave to the job: promising or opportunistic (HyperDrive, section 3)."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from hopyard.client.display.job_looks import LOOKS
from hopyard.plots.figures import theme
from hopyard.plots.model import Floats, JobCurve, JobEnd
from hopyard.policy.vocabulary import JobState

PROMISING: Final = theme.BLUE
OPPORTUNISTIC: Final = theme.ORANGE
_LINES: Final = {True: (0, ()), False: (0, (4.0, 1.5))}
_WIDTHS: Final = {True: 1.3, False: 0.8}
_FAILED: Final = LOOKS[JobState.FAILED].color
_ENDS: Final = {
    JobEnd.TERMINATED: ("s", LOOKS[JobState.TERMINATED].color, "white"),
    JobEnd.FAILED: ("x", _FAILED, _FAILED),
}


def lines(
    axes: Axes,
    curves: list[JobCurve],
    pieces: list[tuple[list[Floats], list[Floats]]],
    promising: list[Floats],
    alpha: float,
    *,
    pixels: bool,
) -> None:
    """Draw the curves, each segment between two reports in the colour of the class that the job had then. Mark the ends of ended jobs.

    Args:
        axes: The axes to draw in.
        curves: The jobs' curves, each with at least one point.
        pieces: For each curve, its lines while the job trained, in order, and its lines across gaps between two runs, as arrays of (x,
            y).
        promising: For each curve, one number per point: 1 if the job was promising while it trained to that point, else 0.
        alpha: Opacity of the lines, from 0 to 1.
        pixels: Whether to draw the lines as pixels in an SVG, which keeps the file small.
    """
    segments: dict[bool, list[Floats]] = {False: [], True: []}
    for (trained, _), how in zip(pieces, promising, strict=True):
        first = 0
        for xy in trained:
            for good in segments:
                segments[good] += _stretches(xy, how[first : first + len(xy)], good)
            first += len(xy)
    for good, found in segments.items():
        collection = LineCollection(
            found, colors=PROMISING if good else OPPORTUNISTIC, linewidths=_WIDTHS[good], linestyles=[_LINES[good]],
            alpha=alpha, gid="promising" if good else "opportunistic", zorder=3 if good else 2,
        )  # fmt: skip
        collection.set_rasterized(pixels)
        axes.add_collection(collection, autolim=False)
    waits = LineCollection(
        [one for _, waited in pieces for one in waited], colors=theme.GREY, linewidths=0.3, gid="waits"
    )
    waits.set_rasterized(pixels)
    axes.add_collection(waits, autolim=False)
    points = [np.concatenate(trained) for trained, _ in pieces]
    for end, (marker, edge, face) in _ENDS.items():
        last = [xy[np.isfinite(xy[:, 1])][-1:] for curve, xy in zip(curves, points, strict=True) if curve.end is end]
        ends = np.concatenate([np.empty((0, 2)), *last])
        axes.plot(
            ends[:, 0], ends[:, 1], marker, color=edge, markerfacecolor=face, markersize=3.4, markeredgewidth=0.9,
            linestyle="none", zorder=4, gid=f"{end.value} ends",
        )  # fmt: skip


def _stretches(points: Floats, promising: Floats, good: bool) -> list[Floats]:
    """Return the parts of one run's line in which the job belonged to one class, each as an array of points.

    The segment before a point has the class of the point; so a part begins at the point before its first one of the class.

    Args:
        points: The points (x, y) of the run.
        promising: One number per point: 1 if the job was promising while it trained to that point, else 0.
        good: True: return the parts in which it was promising. False: the other parts.
    """
    if len(points) == 1:
        return [points] if bool(promising[0]) is good else []
    found = []
    begin: int | None = None
    for index in range(1, len(points) + 1):
        inside = index < len(points) and bool(promising[index]) is good
        if inside and begin is None:
            begin = index - 1
        elif not inside and begin is not None:
            found.append(points[begin:index])
            begin = None
    return found


def handles(curves: list[JobCurve], promising: list[Floats]) -> list[Line2D]:
    """Return the legend entries: how many jobs were ever promising, how many never, and how many were terminated or failed."""
    once = sum(bool(how.any()) for how in promising)
    found = [
        Line2D([], [], color=PROMISING, linestyle=_LINES[True], linewidth=1.6, label=f"{once} promising"),
        Line2D(
            [], [], color=OPPORTUNISTIC, linestyle=_LINES[False], linewidth=1.2, label=f"{len(curves) - once} opportunistic only"
        ),
    ]  # fmt: skip
    for end, (marker, edge, face) in _ENDS.items():
        count = sum(curve.end is end for curve in curves)
        if count:
            found.append(
                Line2D(
                    [], [], color=edge, marker=marker, markerfacecolor=face, markersize=4.0, linestyle="none",
                    label=f"{count} {end.value}",
                )
            )  # fmt: skip
    return found
