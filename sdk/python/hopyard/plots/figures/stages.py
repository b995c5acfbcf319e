"""Draws a stage tree: positions from left to right, one bar per stage, branches below one another."""

from __future__ import annotations

from typing import Final, NamedTuple

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from hopyard.plots.data.stages import Tree
from hopyard.plots.figures import theme
from hopyard.policy.stages import StageState, StageView

_NAMED: Final = 60
"""Up to this number of rows, bars are labelled with trials and the values in which branches differ."""

_TALLEST: Final = 14.0
_OUTLINED: Final = 600
"""Above this number of stages, bars have no outlines and hatches, which would hide the colours."""


class _Look(NamedTuple):
    name: str
    color: str
    edge: str
    hatch: str


_SHARED: Final = _Look("done, for several", theme.BLUE, theme.INK, "")
_ALONE: Final = _Look("done, for one", "#9ccbea", theme.INK, "")
_RUNNING: Final = _Look("running", theme.ORANGE, theme.INK, "////")
_WAITING: Final = _Look("waiting", "white", theme.INK, "")
_UNWANTED: Final = _Look("not wanted", theme.PALE, theme.GREY, "")


def draw(data: Tree) -> Figure:
    """Draw one bar per stage, coloured by its state.

    If there is room, label bars with the trials that end there and with the values in which branches differ.
    """
    rows, count = _rows(data)
    few = count <= _NAMED
    figure, axes = theme.new(8.0, 1.2 + min(max(0.26 if few else 0.07, 0.02) * max(count, 4), _TALLEST))
    _ties(axes, data, rows, 0.8 if few else 0.4)
    handles = []
    for shown in (_SHARED, _ALONE, _RUNNING, _WAITING, _UNWANTED):
        stages = [stage for stage in data.stages if _look(stage) is shown]
        if stages:
            _bars(axes, stages, rows, shown, dense=len(data.stages) > _OUTLINED)
            positions = sum(stage.length for stage in stages)
            handles.append(
                Patch(facecolor=shown.color, edgecolor=shown.edge, linewidth=0.5, hatch=shown.hatch, label=f"{positions} {shown.name}")
            )  # fmt: skip
    last = max((stage.end for stage in data.stages), default=1)
    axes.set_xlim(0.0, last * 1.002)
    axes.set_ylim(count - 0.4, -0.6)
    axes.set_xlabel(data.unit if data.unit.endswith("s") else f"{data.unit}s")
    theme.whole_numbers(axes, "x")
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    if few:
        for stage in data.stages:
            _name(axes, stage, data, rows, last, figure.get_figwidth())
    else:
        axes.set_ylabel(f"{len({trial for stage in data.stages for trial in stage.trials})} trials")
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(handles), borderaxespad=0.2,
        handlelength=1.6, columnspacing=1.2,
    )  # fmt: skip
    return figure


def _look(stage: StageView) -> _Look:
    if stage.state is StageState.DONE:
        return _SHARED if stage.reused else _ALONE
    return {StageState.RUNNING: _RUNNING, StageState.WAITING: _WAITING, StageState.UNWANTED: _UNWANTED}[stage.state]


def _rows(data: Tree) -> tuple[dict[int, float], int]:
    """Return the row of each stage by its number, counted from the top, and the number of rows.

    Each leaf has a row, in the order of the stages. A parent is in the middle between its first and its last child.
    """
    children = data.children()
    rows: dict[int, float] = {}
    count = 0
    for stage in data.stages:  # Parents come before their children, and a branch's stages one after the other.
        if stage.number not in children:
            rows[stage.number] = float(count)
            count += 1
    for stage in reversed(data.stages):
        if stage.number in children:
            behind = children[stage.number]
            rows[stage.number] = (rows[behind[0].number] + rows[behind[-1].number]) / 2
    return rows, count


def _ties(axes: Axes, data: Tree, rows: dict[int, float], width: float) -> None:
    """Draw the vertical lines from parent stages to their children; pale lines to stages that no trial needs (UNWANTED).

    `rows` contains the row of each stage by its number. `width` is the width of the lines in points.
    """
    for unwanted, color in ((True, theme.PALE), (False, theme.INK)):
        lines = [
            [(stage.start, rows[stage.parent]), (stage.start, rows[stage.number])]
            for stage in data.stages
            if stage.parent is not None
            and rows[stage.parent] != rows[stage.number]
            and (stage.state is StageState.UNWANTED) is unwanted
        ]
        axes.add_collection(LineCollection(lines, colors=color, linewidths=width, zorder=1), autolim=False)


def _bars(axes: Axes, stages: list[StageView], rows: dict[int, float], shown: _Look, *, dense: bool) -> None:
    thin = shown is _UNWANTED
    half = 0.1 if thin else 0.34
    corners = [
        [
            (stage.start, rows[stage.number] - half),
            (stage.end, rows[stage.number] - half),
            (stage.end, rows[stage.number] + half),
            (stage.start, rows[stage.number] + half),
        ]
        for stage in stages
    ]
    axes.add_collection(
        PolyCollection(
            corners, facecolors=shown.color, edgecolors="none" if dense and shown is not _WAITING else shown.edge,
            linewidths=0.2 if dense else 0.0 if thin else 0.4, hatch=None if dense else shown.hatch or None, gid=shown.name, zorder=2,
        ),
        autolim=False,
    )  # fmt: skip


def _name(axes: Axes, stage: StageView, data: Tree, rows: dict[int, float], last: int, inches: float) -> None:
    """Label a stage: behind its bar the trials that end with it, inside the bar the values in which it differs from its siblings.

    The bar of a running stage also shows the trial that trains it and the slot. Texts inside a bar are omitted if there is no room.

    Args:
        axes: The axes to draw in.
        stage: The stage.
        data: The tree.
        rows: The row of each stage by its number.
        last: The last position of the tree.
        inches: Width of the figure.
    """
    row = rows[stage.number]
    if stage.ends:
        named = ", ".join(stage.ends[:6]) + (f" and {len(stage.ends) - 6} more" if len(stage.ends) > 6 else "")
        axes.annotate(
            named, xy=(stage.end, row), xytext=(4.0, 0.0), textcoords="offset points", va="center", fontsize=7.0,
            annotation_clip=False,
        )  # fmt: skip
    apart = " ".join(f"{name}={_value(value)}" for name, value in data.values.get(stage.number, {}).items())
    where = f"{stage.by} on {stage.slot}" if stage.state is StageState.RUNNING else ""
    room = stage.length / last * inches * 0.85 * 72.0
    fitting = (text for text in (f"{apart}  {where}".strip(), apart) if room >= 3.9 * len(text) + 6.0)
    text = next(fitting, "")
    if text:
        dark = _look(stage) is _SHARED
        box = {"facecolor": _look(stage).color, "edgecolor": "none", "pad": 0.4} if _look(stage).hatch else None
        axes.text(
            stage.start, row, f" {text}", va="center_baseline", ha="left", fontsize=6.5, color="white" if dark else theme.INK,
            bbox=box, clip_on=True, zorder=3,
        )  # fmt: skip


def _value(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
