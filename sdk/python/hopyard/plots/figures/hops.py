"""Draws the plot `hops`: model hops of a search over partitioned data.

The upper axes have one row per slot: a bar per visit (a run on one partition), and how the slot spent its time. The lower axes show the
bytes of models transferred over time and the storage that the data uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from hopyard._runtime.datasets.usage import Storage
from hopyard.plots.data.hops import HopPlot, SlotUse
from hopyard.plots.figures import theme
from hopyard.plots.model import PlottedVisit

_COLOURS: Final = ("#9ccbea", "#f2c879", "#8fd3bf", "#e8b3cf", "#c9c9c9", "#f0a77f", "#b9d98a", "#b7b5e0")
"""Colours of the jobs, reused in turn. They are pale, so that text on them is readable."""

_DENSE: Final = 2_000
"""Above this number of bars, they have no outlines and hatches, which would hide the colours, and are drawn as pixels in an SVG."""

_NAMED: Final = 40
"""Up to this number of slots, each row is labelled with the slot's id."""

_DID: Final = (
    ("training", "training", theme.BLUE, ""),
    ("evaluating", "evaluating", theme.SKY, "////"),
    ("hopping", "hopping", theme.ORANGE, ""),
    ("starting", "starting", theme.PALE, "...."),
    ("idle", "idle", "#f2f2f2", ""),
)
"""How slots spend time: field of `SlotUse`, name in the legend, colour, hatch."""

_WIDE: Final = 0.28
"""Minimum share of a slot's bar that has room for a number."""

_MOVED: Final = (("from node to node", theme.BLUE), ("from the store", theme.VERMILLION), ("to the store", theme.GREEN))


def draw(data: HopPlot) -> Figure:
    """Draw the visits with the path of the best model, how slots spent their time, the bytes moved over time, and the storage used."""
    rows = len(data.slots)
    above = 0.24 * min(max(rows, 4), _NAMED)
    figure = Figure(figsize=(9.0, 1.1 + above + 2.2))
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.1 + above, 2.2))[:, 0]
    visits, use = upper.subplots(1, 2, sharey=True, width_ratios=(4.2, 1.0))
    moved, held = lower.subplots(1, 2, width_ratios=(2.6, 1.0))
    unit = theme.time_unit(data.time)
    _visits(visits, data, unit)
    _use(use, data.slots)
    _moved(moved, data, unit)
    _held(held, data.storage)
    return figure


# ---------------------------------------------------------------------------------------------------------------- visits


def _visits(axes: Axes, data: HopPlot, unit: theme.TimeUnit) -> None:
    rows = {use.slot: row for row, use in enumerate(data.slots)}
    jobs = {job: number for number, job in enumerate(dict.fromkeys(visit.job for visit in data.visits))}
    dense = len(data.visits) > _DENSE
    for evaluates in (False, True):
        shown = [visit for visit in data.visits if visit.evaluates is evaluates]
        if shown:
            bars = PolyCollection(
                [_corners(visit, rows[visit.slot], data.time, unit) for visit in shown],
                facecolors=[_COLOURS[jobs[visit.job] % len(_COLOURS)] for visit in shown],
                edgecolors="none" if dense else theme.INK, linewidths=0.0 if dense else 0.3,
                hatch="//////" if evaluates and not dense else None, gid="evaluations" if evaluates else "units",
            )  # fmt: skip
            bars.set_rasterized(dense)
            axes.add_collection(bars, autolim=False)
    before = PolyCollection(
        [_corners(replace(visit, end=visit.began), rows[visit.slot], data.time, unit) for visit in data.visits],
        facecolors="white", alpha=0.6, edgecolors="none", gid="before",
    )  # fmt: skip
    before.set_rasterized(dense)
    axes.add_collection(before, autolim=False)
    lost = [visit for visit in data.visits if visit.reason in ("LOST", "FAILED")]
    axes.plot(
        [(visit.end or 0.0) / unit.seconds for visit in lost], [rows[visit.slot] for visit in lost], "x",
        color=theme.VERMILLION, markersize=5.0, markeredgewidth=1.4, zorder=5, gid="lost",
    )  # fmt: skip
    _way(axes, data, rows, unit)
    axes.set_xlim(data.visits[0].start / unit.seconds, data.time / unit.seconds * 1.002 or 1.0)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(f"time since the start [{unit.name}]")
    axes.set_ylabel("slot (its partitions)")
    axes.grid(visible=False, axis="y")
    step = max(len(rows) // 10, 1) if len(rows) > _NAMED else 1
    axes.set_yticks(range(0, len(rows), step), [_row(use) for use in data.slots[::step]])
    if len(rows) <= _NAMED:
        _numbers(axes, data, rows, unit)
    handles: list[Patch | Line2D] = [
        Patch(facecolor=_COLOURS[0], edgecolor=theme.INK, linewidth=0.4, label=f"{_count(data, False)} units, by configuration"),
        Patch(facecolor="white", edgecolor=theme.INK, linewidth=0.4, hatch="//////", label=f"{_count(data, True)} evaluations"),
        Patch(facecolor="white", edgecolor=theme.INK, linewidth=0.4, label="pale: not begun yet"),
    ]  # fmt: skip
    if data.best in jobs:
        handles.append(Line2D([], [], color=theme.INK, linewidth=1.2, label=f"way of the best, job {data.best}"))
    if lost:
        cross = {"marker": "x", "linestyle": "none", "color": theme.VERMILLION, "markeredgewidth": 1.4}
        handles.append(Line2D([], [], label=f"{len(lost)} lost", **cross))  # type: ignore[arg-type]  # words of Line2D
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.2,
        handlelength=1.6, columnspacing=1.2,
    )  # fmt: skip


def _corners(visit: PlottedVisit, row: int, time: float, unit: theme.TimeUnit) -> np.ndarray:
    left, right = visit.start / unit.seconds, (time if visit.end is None else visit.end) / unit.seconds
    return np.array([(left, row - 0.4), (right, row - 0.4), (right, row + 0.4), (left, row + 0.4)])


def _way(axes: Axes, data: HopPlot, rows: dict[str, int], unit: theme.TimeUnit) -> None:
    """Draw the path of the best job's model from slot to slot.

    A run on several slots is drawn in the row of the first one, with a vertical line to the rows of the others.

    Args:
        axes: The axes to draw in.
        data: The data of the plot.
        rows: The row of each slot by its id.
        unit: The unit of the x axis.
    """
    own = sorted((visit for visit in data.visits if visit.job == data.best), key=lambda visit: visit.start)
    way: list[tuple[float, int]] = []
    ties = []
    for start, together in groupby(own, key=lambda visit: visit.start):
        ranks = list(together)
        places = sorted(rows[visit.slot] for visit in ranks)
        ends = [data.time if visit.end is None else visit.end for visit in ranks]
        way += [(start / unit.seconds, places[0]), (max(ends) / unit.seconds, places[0])]
        if len(places) > 1:
            ties.append([(start / unit.seconds, places[0]), (start / unit.seconds, places[-1])])
    for gid, lines in (("way", [way]), ("ties", ties)):
        axes.add_collection(LineCollection(lines, colors=theme.INK, linewidths=1.2, zorder=4, gid=gid), autolim=False)


def _numbers(axes: Axes, data: HopPlot, rows: dict[str, int], unit: theme.TimeUnit) -> None:
    """Write the job's id into the bar of each visit, if there is room.

    `rows` contains the row of each slot by its id, and `unit` is the unit of the x axis.
    """
    length = (data.time - data.visits[0].start) or 1.0
    for visit in data.visits:
        end = data.time if visit.end is None else visit.end
        if (end - visit.start) / length * 6.0 * 72.0 >= 5.0 * len(visit.job) + 3.0:
            axes.text(
                (visit.start + end) / 2 / unit.seconds, rows[visit.slot], visit.job, ha="center", va="center_baseline",
                fontsize=7.0, color=theme.INK, clip_on=True, zorder=6,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.75},
            )  # fmt: skip


def _row(use: SlotUse) -> str:
    """Return the label of a slot's row: its id, and the numbers of the partitions on which jobs trained there.

    With more than three partitions, the label contains two of the numbers and the count of the others, such as "2 more".
    """
    names = [name.removeprefix("train/") for name in use.partitions if name.startswith("train/")]
    shown = names if len(names) <= 3 else [*names[:2], f"{len(names) - 2} more"]
    return f"{use.slot} ({', '.join(shown)})" if names else use.slot


def _count(data: HopPlot, evaluates: bool) -> int:
    return sum(visit.evaluates is evaluates for visit in data.visits)


# ------------------------------------------------------------------------------------------------------------------- use


def _use(axes: Axes, slots: Sequence[SlotUse]) -> None:
    left = np.zeros(len(slots))
    whole = np.array([use.training + use.evaluating + use.hopping + use.starting + use.idle or 1.0 for use in slots])
    for field, name, color, hatch in _DID:
        part = np.array([getattr(use, field) for use in slots]) / whole
        share = _percent(float(part.mean()))
        axes.barh(
            range(len(slots)), part, 0.8, left, color=color, hatch=hatch, edgecolor=theme.INK, linewidth=0.3,
            label=f"{name} {share}" if share != _percent(0.0) else "_nolegend_",
        )  # fmt: skip
        left += part
    if len(slots) <= _NAMED:
        for row, use in enumerate(slots):
            trained = use.training / whole[row]
            if trained >= _WIDE:
                axes.text(0.04, row, _percent(float(trained)), va="center_baseline", fontsize=7.0, color="white")
    axes.set_xlim(0.0, 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=2))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _percent(value)))
    axes.tick_params(axis="y", left=False, labelleft=False)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("of its time")
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.2,
        handlelength=1.2,
        fontsize=7.0,
        ncols=2,
        columnspacing=0.8,
    )


# --------------------------------------------------------------------------------------------------------- bytes


def _moved(axes: Axes, data: HopPlot, unit: theme.TimeUnit) -> None:
    start = data.visits[0].start
    points = [(start, 0, 0, 0), *data.moved]
    end = (max(data.time, points[-1][0]), *points[-1][1:])
    table = np.array([*points, end], float)
    scale, size = _size_unit(float(table[:, 1:].max()))
    for column, (name, color) in enumerate(_MOVED, 1):
        if table[-1, column] or column == 1:
            axes.step(
                table[:, 0] / unit.seconds, table[:, column] / scale, where="post", color=color,
                label=f"{name}: {_bytes(float(table[-1, column]))}",
            )  # fmt: skip
    axes.set_ylim(bottom=0.0)
    axes.set_xlim(start / unit.seconds, float(table[-1, 0]) / unit.seconds or 1.0)
    axes.set_xlabel(f"time since the start [{unit.name}]")
    axes.set_ylabel(f"models moved [{size}]")
    axes.legend(loc="upper left", title=f"{data.hops} hops", alignment="left", title_fontsize=8.0)


def _held(axes: Axes, storage: Storage) -> None:
    nodes = f"{storage.nodes} node{'s' * (storage.nodes != 1)}"
    bars = (
        ("the data", storage.data, theme.PALE),
        (f"held here,\n{nodes}", storage.held, theme.BLUE),
        (f"full copies on\n{nodes}", storage.copies, theme.ORANGE),
    )
    scale, size = _size_unit(float(max(amount for _, amount, _ in bars)))
    for place, (_, amount, color) in enumerate(bars):
        axes.bar(place, amount / scale, 0.65, color=color, edgecolor=theme.INK, linewidth=0.4)
        axes.annotate(
            _bytes(float(amount)),
            (place, amount / scale),
            (0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=8.0,
        )
    axes.set_xticks(range(len(bars)), [name for name, _, _ in bars], fontsize=7.0)
    axes.margins(y=0.18)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel(f"storage for data [{size}]")


def _size_unit(most: float) -> tuple[float, str]:
    """Return the largest of GiB, MiB and KiB that is at most `most` bytes, else B, as (bytes per unit, name)."""
    for power, name in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if most >= 1024**power:
            return float(1024**power), name
    return 1.0, "B"


def _bytes(amount: float) -> str:
    scale, name = _size_unit(amount)
    return f"{amount / scale:.3g} {name}"


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"
