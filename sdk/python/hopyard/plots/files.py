"""Reads files that can be plotted: results of simulations, and traces (`hopyard.traces`)."""

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
    """Return the searches in a file.

    A file of traces (`hopyard.traces`) is one search. Any other file is read as results of simulations by `read_results`.

    Raises:
        NotFound: The file does not exist.
        InvalidInput: The file has neither format; the message names the place in the file, what is there and what is allowed.
    """
    return [of_traces(path, read_traces(path))] if _holds_traces(path) else read_results(path)


def of_traces(path: Path, traces: Iterable[Trace]) -> Search:
    """Return traces as one search in which every job trains from the beginning to the end of its trace, independently of the others.

    Args:
        path: Path of the file of the traces, which appears in titles and messages; the file is not read.
        traces: At least one trace.
    """
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
    """Return whether a file probably contains traces, judged by its name and its first line.

    A first line that is damaged makes it a file of traces, too: the reader of traces then raises an error that says what is wrong.
    """
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
