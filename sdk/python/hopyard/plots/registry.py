"""The registry of the kinds of plots, and the functions that gather the data of a plot, draw it and save it."""

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
from hopyard.plots.data.curves import ProgressAxis
from hopyard.plots.model import Search
from hopyard.results.files import whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class PlotKind:
    """A kind of plot, under its name in `KINDS`.

    Attributes:
        about: What the plot shows, in words for people.
        module: Name of the module of `hopyard.plots.figures` that draws it.
        shows: Class of the plot's data; no two kinds have the same class.
        gather: Function that returns the plot's data for a sequence of searches.
        over: Whether `gather` takes a `ProgressAxis`: the plot can show positions or time on its x axis.
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
    "jobs_at_R": PlotKind(
        "jobs trained to the end over time", "completed_jobs", timeline.CompletedJobs, timeline.at_full
    ),
}

_MODULES: Final = {**{kind.shows: kind.module for kind in KINDS.values()}, stages.Tree: "stages"}
"""The module that draws each class of data.

A stage tree has no entry in `KINDS`, because no search contains it: the policy of an experiment returns it (`hopyard tree`).
"""

SUFFIXES: Final = ("svg", "png")


def default_kind(searches: Sequence[Search]) -> str:
    """Return the kind of plot to show if the user names none.

    For one search: the first of "curves", "gantt", "jobs_at_R" and "pools" for which the search has data, else "boxes". For several
    searches: "durations" if one of them has no target, else "capacity" if they have known, different numbers of slots, else "boxes".
    """
    first = searches[0]
    if len(searches) == 1:
        has = {"curves": first.curves, "gantt": first.runs, "jobs_at_R": first.completed_jobs, "pools": first.pools}
        return next((kind for kind, found in has.items() if found), "boxes")
    if any(search.target is None for search in searches):
        return "durations"
    slots = {search.slots for search in searches}
    return "capacity" if len(slots) > 1 and None not in slots else "boxes"


def gather(searches: Sequence[Search], kind: str | None = None, over: str | None = None) -> Any:
    """Return the data of a plot, as an instance of the class `PlotKind.shows` of its kind.

    Args:
        searches: At least one search.
        kind: A key of `KINDS`; None: `default_kind`.
        over: Quantity on the x axis, "position" or "time"; None: the default of the kind.

    Raises:
        InvalidInput: The kind does not exist, it does not support `over`, it needs a single search, a search lacks a field that the
            kind shows (the field is None), or all searches are equal in the quantity that the kind compares.
        NotFound: The searches have the fields, but these are still empty, for example because no job has reported.
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
    axes = [axis.value for axis in ProgressAxis]
    if over not in axes:
        raise InvalidInput(f"over: found {over!r:.80}, allowed are {', '.join(axes)}")
    return chosen.gather(searches, ProgressAxis(over))


def figure(data: Any) -> Figure:
    """Return a plot as a matplotlib figure, for a notebook or for further changes. Needs the extra `plot`.

    Args:
        data: The result of `gather`, or a stage tree.

    Raises:
        Unsupported: matplotlib is not installed.
    """
    need("matplotlib", "plot")
    from hopyard.plots.figures import theme

    with theme.applied():
        return _drawn(data)


def save(data: Any, path: Path) -> None:
    """Write a plot to a file, replacing an existing one. If writing fails, no partial file remains. Needs the extra `plot`.

    With the same version of matplotlib, the same data gives the same bytes.

    Args:
        data: The result of `gather`, or a stage tree.
        path: The file; its name must end in .svg or .png.

    Raises:
        InvalidInput: The name of the file has another ending.
        Unsupported: matplotlib is not installed.
    """
    form = form_of(path)
    need("matplotlib", "plot")
    from hopyard.plots.figures import theme

    metadata = {"Date": None, "Creator": DRAWN_MARK} if form == "svg" else {"Software": DRAWN_MARK}
    with whole(path) as partial, theme.applied():
        _drawn(data).savefig(partial, format=form, metadata=metadata)


def form_of(path: Path) -> str:
    """Return the format of an image file by its name: "svg" or "png".

    Raises:
        InvalidInput: The name has another ending.
    """
    form = path.suffix.lower().removeprefix(".")
    if form not in SUFFIXES:
        raise InvalidInput(
            f"{path}: a plot's name ends in .svg or .png, and this one ends in {path.suffix or 'neither'}"
        )
    return form


def need_writable(path: Path) -> None:
    """Check that a plot can be written to a file, before any work is spent on the plot. Needs the extra `plot`.

    Raises:
        InvalidInput: The folder does not exist or is not writable, `path` is a folder, or its name does not end in .svg or .png.
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
    """Return the data of a plot as values that JSON can represent.

    Dataclasses become objects, arrays and tuples lists, enumeration members their values, and floats that are not finite None.
    """
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
