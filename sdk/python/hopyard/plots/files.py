"""Files that can be plotted: results of simulations, and traces."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from hopyard._common.formatting import printable
from hopyard.plots.model import JobCurve, JobEnd, Search, SearchSource
from hopyard.plots.results import read_results
from hopyard.traces import Trace, read_traces

_SUFFIXES: Final = (".jsonl", ".jsonl.gz")
_FIRST_BYTES: Final = 64 * 1024 * 1024


def read(path: Path) -> list[Search]:
    """The searches in a file: one, if it holds traces (`hopyard.traces`), else those of `read_results`.

    Raises:
        NotFound: There is no such file.
        InvalidInput: It is neither; the message names the place, what was found and what is allowed.
    """
    return [of_traces(path, read_traces(path))] if _holds_traces(path) else read_results(path)


def of_traces(path: Path, traces: Iterable[Trace]) -> Search:
    """Traces as something to plot: every job as if it had trained alone, from the beginning on."""
    known = list(traces)
    curves = []
    for trace in known:
        times, positions = np.cumsum(trace.seconds), np.array(trace.positions, float)
        curves.append(JobCurve(trace.job, JobEnd.OPEN, times, positions, np.array(trace.metrics, float)))
    return Search(
        where=str(path),
        source=SearchSource.TRACES,
        traces=(str(path),),
        metric=printable(known[0].metric),
        mode=known[0].mode,
        curves=tuple(curves),
        durations={curve.job: float(curve.times[-1]) for curve in curves},
    )


def _holds_traces(path: Path) -> bool:
    """Whether the first line is a trace's, if only nearly; readers of traces tell what is wrong with it."""
    if not path.name.endswith(_SUFFIXES) or not path.is_file():
        return False
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as opened:
            line = opened.readline(_FIRST_BYTES)
            if line.strip() == b"{":
                return False  # A document on several lines, as simulations print it.
            first = json.loads(line)
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error):
        return True
    return not (isinstance(first, dict) and "policy" in first)
