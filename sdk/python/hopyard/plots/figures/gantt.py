"""Draws the plot `gantt`: the runs on each slot over time, with one row per slot and one bar per run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from hopyard.plots.data.timeline import Gantt
from hopyard.plots.figures import theme
from hopyard.plots.model import PlottedRun
from hopyard.policy.vocabulary import RunEndReason, RunMode

_NAMED: Final = 40
"""Up to this number of slots, each row is labelled with the slot's id, and rows have gaps between them."""

_OUTLINED: Final = 2_000
"""Above this number of bars, they have no outlines and hatches, which would hide the colours, and are drawn as pixels in an SVG."""


_PART: Final = "PART"
"""Key of `_LOOKS` for a run that ended as planned before its job was complete."""

_MEASURED: Final = "MEASURED"
"""Key of `_LOOKS` for a run that only measured the speed of training (mode PROFILE)."""


class _Look(NamedTuple):
    name: str
    color: str
    edge: str
    hatch: str
    text: str


_LOOKS: Final[dict[str | None, _Look]] = {
    RunEndReason.UNTIL.value: _Look("trained to the end", theme.BLUE, theme.INK, "", "white"),
    _PART: _Look("part of the way", "#9ccbea", theme.INK, "", theme.INK),
    _MEASURED: _Look("measured", theme.PALE, theme.GREY, "....", theme.INK),
    RunEndReason.SUSPENDED.value: _Look("suspended", "#b7dcf4", "#3f86b8", "////", theme.INK),
    RunEndReason.PREEMPTED.value: _Look("preempted", theme.ORANGE, theme.INK, "\\\\\\\\", theme.INK),
    RunEndReason.TERMINATED.value: _Look("terminated", "#b0b0b0", theme.INK, "", theme.INK),
    RunEndReason.FAILED.value: _Look("failed", theme.VERMILLION, "#7a3300", "xxxx", theme.INK),
    RunEndReason.LOST.value: _Look("lost", "#333333", theme.INK, "", "white"),
    None: _Look("running", "white", theme.INK, "", theme.INK),
}
_CUT: Final = (RunEndReason.FAILED.value, RunEndReason.LOST.value)


def draw(data: Gantt) -> Figure:
    """Draw one bar per run, coloured by how the run ended and labelled with the job's id if there is room."""
    few = len(data.slots) <= _NAMED
    figure, axes = theme.new(7.0, 1.3 + 0.24 * max(len(data.slots), 3) if few else 6.0)
    unit = theme.time_unit(data.time)
    end = data.time / unit.seconds or 1.0
    rows = {slot: row for row, slot in enumerate(data.slots)}
    ends = _ends(data)
    handles = []
    for reason, shown in _LOOKS.items():
        runs = [run for run, how in zip(data.runs, ends, strict=True) if how == reason]
        if runs:
            _bars(axes, runs, shown, rows, unit, data)
            count = len({(run.job, run.attempt) for run in runs})  # A run on several slots has a bar on each.
            handles.append(
                Patch(facecolor=shown.color, edgecolor=shown.edge, linewidth=0.4, hatch=shown.hatch, label=f"{count} {shown.name}")
            )  # fmt: skip
    cut = [run for run in data.runs if run.reason in _CUT]
    if cut and len(cut) <= 500:
        axes.plot(
            [(run.end or 0.0) / unit.seconds for run in cut], [rows[run.slot] for run in cut], "x", color=theme.INK,
            markersize=4.0, markeredgewidth=1.0, zorder=4, gid="cut off",
        )  # fmt: skip
    axes.set_xlim(0.0, end * 1.005)
    axes.set_ylim(len(data.slots) - 0.4, -0.6)
    axes.set_xlabel(f"time since the start [{unit.name}]")
    axes.grid(visible=False, axis="y")
    if few:
        axes.set_yticks(range(len(data.slots)), data.slots)
        _names(axes, data, ends, rows, unit, end)
    else:
        step = len(data.slots) // 10
        axes.set_yticks(range(0, len(data.slots), step), data.slots[::step])
        axes.set_ylabel(f"{len(data.slots)} slots")
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(handles), borderaxespad=0.2,
        handlelength=1.6, columnspacing=1.2,
    )  # fmt: skip
    return figure


def _ends(data: Gantt) -> list[str | None]:
    """Return, for each run of the plot, how it ended: the key of its colour and legend entry in `_LOOKS`.

    It is the reason of the run's end, except for runs that ended as planned: _MEASURED for a PROFILE run, _PART for a run after which
    its job had another run or did not complete. None: the run has not ended, or the reason is unknown.
    """
    last: dict[str, int] = {}
    for run in data.runs:
        last[run.job] = max(run.attempt, last.get(run.job, 0))

    def ended(run: PlottedRun) -> str | None:
        planned = run.reason == RunEndReason.UNTIL.value
        if planned and run.mode == RunMode.PROFILE.value:
            return _MEASURED
        return _PART if planned and (run.attempt < last[run.job] or run.job in data.part) else run.reason

    return [ended(run) for run in data.runs]


def _bars(
    axes: Axes, runs: Sequence[PlottedRun], shown: _Look, rows: dict[str, int], unit: theme.TimeUnit, data: Gantt
) -> None:
    half = 0.4 if len(data.slots) <= _NAMED else 0.5
    left = np.array([run.start for run in runs]) / unit.seconds
    right = np.array([data.time if run.end is None else run.end for run in runs]) / unit.seconds
    row = np.array([rows[run.slot] for run in runs], float)
    corners = [(left, row - half), (right, row - half), (right, row + half), (left, row + half)]
    bars = np.stack([np.column_stack(corner) for corner in corners], axis=1)
    dense = len(data.runs) > _OUTLINED
    collection = PolyCollection(
        list(bars), facecolors=shown.color, edgecolors="none" if dense else shown.edge, linewidths=0.0 if dense else 0.3,
        hatch=None if dense else shown.hatch or None, gid=shown.name,
    )  # fmt: skip
    collection.set_rasterized(dense)
    axes.add_collection(collection, autolim=False)


def _names(
    axes: Axes, data: Gantt, ends: Sequence[str | None], rows: dict[str, int], unit: theme.TimeUnit, end: float
) -> None:
    inches = axes.figure.get_figwidth() * 0.86  # type: ignore[union-attr]  # no subfigures here
    for run, how in zip(data.runs, ends, strict=True):
        left, right = run.start / unit.seconds, (data.time if run.end is None else run.end) / unit.seconds
        room = (right - left) / end * inches * 72.0
        shown = _LOOKS[how]
        if room >= 5.0 * len(run.job) + 3.0:
            box = {"facecolor": shown.color, "edgecolor": "none", "pad": 0.6} if shown.hatch else None
            axes.text(
                (left + right) / 2, rows[run.slot], run.job, ha="center", va="center_baseline", fontsize=7.0,
                color=shown.text, bbox=box, clip_on=True,
            )  # fmt: skip
