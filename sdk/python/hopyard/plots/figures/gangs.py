"""Draws the plot `gangs`: the number of slots of each job over time.

The upper axes have one row per job and one bar per run, whose height and colour show the run's number of slots. The lower axes show the
number of slots in use.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from hopyard.plots.data.gangs import GangPlot, GangRun
from hopyard.plots.figures import theme
from hopyard.policy.vocabulary import RunEndReason, RunMode

_NAMED: Final = 40
"""Up to this number of jobs, each row is labelled with the job's id."""

_DENSE: Final = 2_000
"""Above this number of bars, they have no outlines, which would hide the colours, and are drawn as pixels in an SVG."""

_SHADES: Final = LinearSegmentedColormap.from_list("slots", ["#cfe5f5", "#4c9bcd", "#00507d"])
_CUT: Final = (RunEndReason.FAILED.value, RunEndReason.LOST.value)


def draw(data: GangPlot) -> Figure:
    """Draw one bar per run, labelled with its number of slots if there is room, and below it the number of slots in use over time."""
    few = len(data.jobs) <= _NAMED
    height = 0.24 * max(len(data.jobs), 3) if few else 5.0
    figure = Figure(figsize=(7.0, height + 2.3))
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(height + 0.5, 1.1))
    unit = theme.time_unit(data.time)
    _runs(upper, data, unit, few)
    _used(lower, data, unit)
    lower.set_xlim(0.0, (data.time / unit.seconds or 1.0) * 1.005)
    lower.set_xlabel(f"time since the start [{unit.name}]")
    return figure


def _runs(axes: Axes, data: GangPlot, unit: theme.TimeUnit, few: bool) -> None:
    rows = {job: row for row, job in enumerate(data.jobs)}
    widest = max(run.slots for run in data.runs)
    dense = len(data.runs) > _DENSE
    trained = [run for run in data.runs if run.mode != RunMode.PROFILE.value]
    measured = [run for run in data.runs if run.mode == RunMode.PROFILE.value]
    for runs, gid, hatch in ((trained, "runs", None), (measured, "measured", "....")):
        bars = PolyCollection(
            [_corners(run, rows[run.job], widest, data, unit) for run in runs],
            facecolors=[theme.PALE if hatch else _shade(run.slots, widest) for run in runs],
            edgecolors="none" if dense else theme.INK, linewidths=0.0 if dense else 0.3,
            hatch=None if dense else hatch, gid=gid,
        )  # fmt: skip
        bars.set_rasterized(dense)
        axes.add_collection(bars, autolim=False)
    cut = [run for run in data.runs if run.reason in _CUT]
    axes.plot(
        [(run.end or 0.0) / unit.seconds for run in cut], [rows[run.job] for run in cut], "x", color=theme.VERMILLION,
        markersize=4.5, markeredgewidth=1.2, zorder=4, gid="cut off",
    )  # fmt: skip
    axes.set_ylim(len(data.jobs) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.set_ylabel("job")
    step = 1 if few else len(data.jobs) // 10
    axes.set_yticks(range(0, len(data.jobs), step), data.jobs[::step])
    if few:
        _numbers(axes, data, rows, widest, unit)
    total = sum(data.seconds.values()) or 1.0
    handles = [
        Patch(facecolor=_shade(count, widest), edgecolor=theme.INK, linewidth=0.4, label=f"{count}: {_part(spent / total)}")
        for count, spent in data.seconds.items()
    ]  # fmt: skip
    if measured:
        handles.append(
            Patch(
                facecolor=theme.PALE,
                edgecolor=theme.INK,
                linewidth=0.4,
                hatch="....",
                label=f"{len(measured)} measured",
            )
        )
    axes.legend(
        handles=handles, title="slots at once: part of all slot time", title_fontsize=8.0, alignment="left",
        loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=min(len(handles), 7), borderaxespad=0.2, handlelength=1.6,
        columnspacing=1.2,
    )  # fmt: skip


def _used(axes: Axes, data: GangPlot, unit: theme.TimeUnit) -> None:
    at = [*(at / unit.seconds for at, _ in data.used), data.time / unit.seconds]
    count = [*(count for _, count in data.used), data.used[-1][1]]
    axes.fill_between(at, count, step="post", color=theme.SKY, alpha=0.6, linewidth=0.0, gid="used")
    axes.step(at, count, where="post", color=theme.BLUE, linewidth=1.0)
    axes.set_ylim(0.0, max(data.most, 1) * 1.08)
    theme.whole_numbers(axes, "y")
    axes.set_ylabel("slots used")


def _shade(slots: int, widest: int) -> tuple[float, float, float, float]:
    """Return the colour of a run with a number of slots, on a logarithmic scale: more slots are darker. `widest` is the maximum."""
    return _SHADES(np.log2(slots) / np.log2(widest) if widest > 1 else 0.3)


def _half(slots: int, widest: int) -> float:
    """Return half the height of the bar of a run with `slots` slots, as a fraction of a row's height; it grows linearly with `slots`.

    `widest` is the largest number of slots of any run.
    """
    return 0.18 + 0.26 * (slots / widest)


def _corners(run: GangRun, row: int, widest: int, data: GangPlot, unit: theme.TimeUnit) -> np.ndarray:
    left, right = run.start / unit.seconds, (data.time if run.end is None else run.end) / unit.seconds
    half = _half(run.slots, widest)
    return np.array([(left, row - half), (right, row - half), (right, row + half), (left, row + half)])


def _numbers(axes: Axes, data: GangPlot, rows: dict[str, int], widest: int, unit: theme.TimeUnit) -> None:
    """Write the number of slots into the bar of each run, if there is room.

    Args:
        axes: The axes with the bars.
        data: The data of the plot.
        rows: The row of each job by its id.
        widest: The largest number of slots of any run.
        unit: The unit of the x axis.
    """
    for run in data.runs:
        end = data.time if run.end is None else run.end
        text = str(run.slots)
        if (end - run.start) / (data.time or 1.0) * 6.0 * 72.0 >= 5.0 * len(text) + 3.0:
            measured = run.mode == RunMode.PROFILE.value
            dark = run.slots > 1 and widest < run.slots**2 and not measured
            axes.text(
                (run.start + end) / 2 / unit.seconds, rows[run.job], text, ha="center", va="center_baseline", fontsize=6.5,
                color="white" if dark else theme.INK, clip_on=True,
                bbox={"facecolor": theme.PALE, "edgecolor": "none", "pad": 0.6} if measured else None,
            )  # fmt: skip


def _part(part: float) -> str:
    return f"{part:.0%}".replace("%", " %")
