"""Hints of `hopyard init`: code after the training loop, and files that are sent to the nodes although they are not code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hopyard._common import formatting
from hopyard._common.code_files import is_code
from hopyard._runtime.bundle import DEFAULT_LIMIT_BYTES, IGNORE_FILE, packed_sizes
from hopyard.cli.init.script_analysis import Script

LARGE_BYTES: Final = 100 * 1024
"""Size from which a file, or all files of a folder that are not code, are named."""

_NAMED: Final = 3


def after_loop_hint(found: Script, stop: Mapping[str, Any]) -> str:
    """Return a sentence that says in which jobs the code after the training loop of a script runs.

    Args:
        found: The analysis of the script.
        stop: The section `stop` of the experiment file.
    """
    if "max_iterations" not in stop:
        return "the code after the loop runs in each job that trains to the end of the loop, and not in jobs that are stopped early"
    last, where = (
        ("report", "before hopyard.report, or into finally") if found.reports else ("iteration", "into the loop")
    )
    return (
        f"the code after the loop does not run, because a job ends at its last {last}; put what each job needs {where}"
    )


def large_files_hint(folder: Path) -> str:
    """Return a sentence on the data and results in a folder that are sent to the nodes with its code; empty: there are none.

    Files and folders at the top of `folder` are named, the largest first, if their files that are not code have `LARGE_BYTES` or more.

    Args:
        folder: The folder of the experiment file; if it is missing or cannot be read, the result is empty.

    Raises:
        BundleError: The folder contains something that cannot be packed, such as a link to a path outside of it.
    """
    if not folder.is_dir():
        return ""
    try:
        sizes = packed_sizes(folder)
    except OSError:
        return ""
    entries: Counter[str] = Counter()
    for name, size in sizes.items():
        if not is_code(name):
            top, slash, _ = name.partition("/")
            entries[top + slash] += size
    large = [(name, size) for name, size in entries.most_common() if size >= LARGE_BYTES]
    if not large:
        return ""
    named = [f"{name} ({formatting.size(size)})" for name, size in large[:_NAMED]]
    if len(large) > _NAMED:
        named.append(f"{len(large) - _NAMED} more")
    listed = f"{', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else named[0]
    limit = ""
    if sum(sizes.values()) > DEFAULT_LIMIT_BYTES:
        limit = f" (at most {formatting.size(DEFAULT_LIMIT_BYTES)} may)"
    return (
        f"{listed} {'travels' if len(large) == 1 else 'travel'} to the nodes with the code{limit}; leave out what no job reads by a "
        f"line in {IGNORE_FILE}, such as /{large[0][0]}"
    )
