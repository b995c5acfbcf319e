"""Who trained a forked job from where to where, and with which hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from hopyard import formatting
from hopyard.client.curve_lineage import ancestor
from hopyard.client.types import Job


@dataclass(frozen=True, slots=True)
class LineageStretch:
    """A part of a training.

    Attributes:
        job: Who trained it.
        start: The position from which on.
        end: The position up to which: where the next one was forked, or where the job is now.
        hyperparameters: What was in force meanwhile.
    """

    job: str
    start: int
    end: int
    hyperparameters: Mapping[str, Any]


def lineage(jobs: Mapping[str, Job], job: Job) -> list[LineageStretch]:
    """The training behind a job, from its beginning: stretches that follow each other.

    Args:
        jobs: Those of the experiment, by id.
        job: One of them.
    """
    found: list[LineageStretch] = []
    passed = set[str]()
    end, here = job.position, job
    while True:
        parent = ancestor(here, end, passed)
        start = here.fork_position if parent is not None else 0
        # Forked before its parent had trained any further than where that one began: the parent trained nothing of it.
        if start < end or not passed:
            found.append(LineageStretch(here.id, start, max(start, end), here.hyperparameters))
        if parent is None or parent not in jobs:
            return found[::-1]
        passed.add(here.id)
        end, here = min(start, end), jobs[parent]


def lineage_table(stretches: list[LineageStretch]) -> RenderableType:
    """A line for each stretch; only hyperparameters that are not the same in all of them."""
    names = sorted({name for one in stretches for name in one.hyperparameters})
    values = {name: [one.hyperparameters.get(name) for one in stretches] for name in names}
    changing = [name for name, given in values.items() if any(value != given[0] for value in given)]
    if not changing:
        return Text(f"trained by jobs {', '.join(one.job for one in stretches)}, with the same hyperparameters")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("from", "to", "by job"):
        table.add_column(column, justify="right", no_wrap=True)
    for name in changing:
        table.add_column(name, justify="right")
    for one in stretches:
        given = (
            formatting.value(one.hyperparameters[name]) if name in one.hyperparameters else formatting.NOTHING
            for name in changing
        )
        table.add_row(str(one.start), str(one.end), one.job, *given)
    return table
