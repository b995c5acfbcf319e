"""The common frame of all figures: samples, and their summary over several runs."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

FIGURES: Final = {
    "reports": "figures.reports",
    "jobs": "figures.jobs",
    "decision": "figures.decision",
    "calls": "figures.calls",
    "watches": "figures.watches",
    "start": "figures.start",
    "fidelity": "figures.fidelity",
    "suspend": "figures.suspend",
    "memory": "figures.memory",
    "scale": "figures.scale",
}
"""The module of each figure, in the order of measurement. It defines `async def measure(folder: Path) -> list[Sample]`."""

Measure = Callable[[Path], Awaitable[list["Sample"]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured number, with its baseline from the same run.

    Attributes:
        name: What was measured; the same in every run.
        value: The number.
        unit: Unit of the number and of its baseline.
        least: Target: the number should be at least this; None: no such target.
        most: Target: the number should be at most this; None: no such target.
        baseline: The same quantity without Hopyard; None: no baseline.
        against: What the baseline is.
        beside: Further numbers of the run, by name.
    """

    name: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None
    baseline: float | None = None
    against: str = ""
    beside: Mapping[str, float] = field(default_factory=dict)


def figure(name: str) -> Measure:
    """Return the function that measures a figure once, in an empty folder."""
    measure: Measure = import_module(FIGURES[name]).measure
    return measure


def summary(figure: str, runs: list[list[Sample]]) -> list[dict[str, Any]]:
    """Return one row per number, with its median over runs, its target and whether it is met, its baseline and their ratio.

    Args:
        figure: Name of the figure.
        runs: The samples of each run, in the same order.

    Raises:
        ValueError: The runs have different samples.
    """
    rows: list[dict[str, Any]] = []
    for same in zip(*runs, strict=True):
        first = same[0]
        if any(other.name != first.name for other in same):
            raise ValueError(f"figure {figure}: the runs have different samples: {[one.name for one in same]}")
        value = statistics.median(one.value for one in same)
        bases = [one.baseline for one in same if one.baseline is not None]
        baseline = statistics.median(bases) if bases else None
        met = None
        if first.least is not None or first.most is not None:
            met = (first.least is None or value >= first.least) and (first.most is None or value <= first.most)
        rows.append(
            {
                "figure": figure,
                "name": first.name,
                "unit": first.unit,
                "median": value,
                "runs": [one.value for one in same],
                "least": first.least,
                "most": first.most,
                "met": met,
                "baseline": baseline,
                "against": first.against,
                "ratio": value / baseline if baseline else None,
                "beside": {name: statistics.median(one.beside[name] for one in same) for name in first.beside},
            }
        )
    return rows


def host() -> dict[str, Any]:
    """Return a description of the computer: CPU, memory, system, Python and load."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": [round(one, 2) for one in os.getloadavg()],
    }
