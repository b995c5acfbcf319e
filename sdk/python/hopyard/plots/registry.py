"""The kinds of plots there are, and which one an input is shown as."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopyard._common.optional_import import need
from hopyard._runtime.bundle import DRAWN_MARK
from hopyard.errors import InvalidInput
from hopyard.plots.data import curves, durations, gangs, hops, slots, stages, targets, timeline
from hopyard.plots.data.curves import Over
from hopyard.plots.model import Search
from hopyard.results.files import whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class PlotKind:
    """A kind of plot.

    Attributes:
        about: What it shows, in words.
        module: Where it is drawn.
        shows: Class of the values that it shows; each kind has its own.
        gather: Makes these from searches.
        over: Whether it can be shown over positions and over time.
    """

    about: str
    module: str
    shows: type
    gather: Callable[..., Any]
    over: bool = False


KINDS: Final = {
    "curves": PlotKind(
        "learning curves of all jobs, the best one highlighted", "curves", curves.CurvePlot, curves.gather, over=True
    ),
    "durations": PlotKind(
        "how long jobs train, a distribution a policy", "durations", durations.Durations, durations.gather, over=True
    ),
    "boxes": PlotKind("time to the target over policies", "boxes", targets.Boxes, targets.boxes),
    "capacity": PlotKind("time to the target over numbers of slots", "capacity", targets.Capacity, targets.capacity),
    "orders": PlotKind(
        "time to the target over orders of configurations", "order_sensitivity", targets.TargetOrders, targets.orders
    ),
    "gantt": PlotKind("what ran where and when, and how it ended", "gantt", timeline.Gantt, timeline.gantt),
    "gangs": PlotKind(
        "on how many slots each job trained, and how many were used", "gangs", gangs.GangPlot, gangs.gather
    ),
    "hops": PlotKind(
        "which models visited which data where and when, how slots were used, what moved and what is held",
        "hops",
        hops.HopPlot,
        hops.gather,
    ),
    "pools": PlotKind(
        "slots of the promising and the opportunistic jobs over time", "pools", timeline.Pools, timeline.pools
    ),
    "slots": PlotKind(
        "slots that promising jobs want, and those that they deserve", "slots", slots.Slots, slots.gather
    ),
    "jobs_at_R": PlotKind("jobs trained to the end over time", "completed_jobs", timeline.AtFull, timeline.at_full),
}

_MODULES: Final = {**{kind.shows: kind.module for kind in KINDS.values()}, stages.Tree: "stages"}
"""Where what is shown is drawn. A stage tree is no kind of plot: only its experiment's policy knows it (`hopyard tree`)."""

SUFFIXES: Final = ("svg", "png")


def default_kind(searches: Sequence[Search]) -> str:
    """What is shown where no kind is named.

    One search is shown by its curves, else by what there is of it; several by their times to the target (over numbers of slots,
    if they have several), else by how long their jobs train.
    """
    first = searches[0]
    if len(searches) == 1:
        has = {"curves": first.curves, "gantt": first.runs, "jobs_at_R": first.jobs_at_full, "pools": first.pools}
        return next((kind for kind, found in has.items() if found), "boxes")
    if any(search.target is None for search in searches):
        return "durations"
    slots = {search.slots for search in searches}
    return "capacity" if len(slots) > 1 and None not in slots else "boxes"


def gather(searches: Sequence[Search], kind: str | None = None, over: str | None = None) -> Any:
    """What a plot shows, as plain values.

    Args:
        searches: At least one.
        kind: A name of `KINDS`; None: `default_kind`.
        over: "position" or "time"; None: what is usual for the kind.

    Raises:
        InvalidInput: There is no such kind, or it does not fit the searches; the message says why.
        NotFound: There is nothing to show yet.
    """
    name = kind or default_kind(searches)
    if name not in KINDS:
        raise InvalidInput(f"there is no kind {name!r} of plot; there are: {', '.join(KINDS)}")
    chosen = KINDS[name]
    if over is None:
        return chosen.gather(searches)
    if not chosen.over:
        able = ", ".join(other for other, one in KINDS.items() if one.over)
        raise InvalidInput(f"--over goes with --kind {able}; {name} is shown over one thing only")
    return chosen.gather(searches, Over(over))


def figure(data: Any) -> Figure:
    """A plot of what `gather` answered (extra `plot`), for a notebook or for more work on it.

    Raises:
        Unsupported: matplotlib is not installed.
    """
    need("matplotlib", "plot")
    from hopyard.plots.figures import theme

    with theme.applied():
        return _drawn(data)


def save(data: Any, path: Path) -> None:
    """Write a plot of what `gather` answered (extra `plot`), whole or not at all; a file that is there is replaced.

    The same values give the same bytes, with the same matplotlib.

    Args:
        data: What to show.
        path: The file, whose name ends in .svg or .png.

    Raises:
        InvalidInput: Its name ends otherwise.
        Unsupported: matplotlib is not installed.
    """
    form = form_of(path)
    need("matplotlib", "plot")
    from hopyard.plots.figures import theme

    metadata = {"Date": None, "Creator": DRAWN_MARK} if form == "svg" else {"Software": DRAWN_MARK}
    with whole(path) as partial, theme.applied():
        _drawn(data).savefig(partial, format=form, metadata=metadata)


def form_of(path: Path) -> str:
    """What a file of this name is to be: "svg" or "png".

    Raises:
        InvalidInput: Neither.
    """
    form = path.suffix.lower().removeprefix(".")
    if form not in SUFFIXES:
        raise InvalidInput(
            f"{path}: a plot's name ends in .svg or .png, and this one ends in {path.suffix or 'neither'}"
        )
    return form


def need_writable(path: Path) -> None:
    """Make sure, before the work for it, that a plot can be written to a file (extra `plot`).

    Raises:
        InvalidInput: It cannot, or its name is not a plot's.
        Unsupported: matplotlib is not installed.
    """
    form_of(path)
    need("matplotlib", "plot")
    if path.is_dir():
        raise InvalidInput(f"{path}: it is a folder; name a file in it")
    if not path.parent.is_dir():
        raise InvalidInput(f"a plot cannot be written to {path}: there is no folder {path.parent}; make it first")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InvalidInput(f"a plot cannot be written to {path}: {error.strerror or error}") from error


def document(data: Any) -> Any:
    """What a plot shows, as JSON knows it: floats that are not finite are null."""
    if is_dataclass(data) and not isinstance(data, type):
        return {field.name: document(getattr(data, field.name)) for field in fields(data)}
    if isinstance(data, np.ndarray):
        return [value if np.isfinite(value) else None for value in data.tolist()]
    if isinstance(data, list | tuple):
        return [document(item) for item in data]
    if isinstance(data, float):
        return data if np.isfinite(data) else None
    return data.value if isinstance(data, Enum) else data


def _drawn(data: Any) -> Figure:
    found: Figure = importlib.import_module(f"hopyard.plots.figures.{_MODULES[type(data)]}").draw(data)
    return found
