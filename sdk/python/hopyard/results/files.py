"""Writes results to files and streams: CSV, JSON, Parquet."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

from hopyard._common.optional_import import need
from hopyard.results.rows import ColumnKind, Results

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def write_csv(results: Results, to: TextIO) -> None:
    """Write a table as CSV: a header, then one line per row.

    A missing value is an empty cell. Floats that are not finite are `NaN`, `inf` and `-inf`. A text that a spreadsheet would
    interpret as a formula gets a leading apostrophe.

    Args:
        results: The table.
        to: The text stream to write to.
    """
    to.write(",".join(map(_quoted, results.columns)) + "\n")
    for row in results.rows:
        to.write(",".join(_quoted(_csv_cell(row[name])) for name in results.columns) + "\n")


def json_document(results: Results) -> dict[str, Any]:
    """Return a table as the JSON document that `hopyard results --format json` prints.

    Its keys are `experiment` (the id), `metric` (the name), `columns` (the type of each column) and `rows` (a list of objects). Floats
    that are not finite become null.
    """
    return {
        "experiment": results.experiment.id,
        "metric": results.experiment.metric.name,
        "columns": {name: kind.value for name, kind in results.columns.items()},
        "rows": [{name: _finite(value) for name, value in row.items()} for row in results.rows],
    }


def write_parquet(results: Results, path: Path) -> None:
    """Write a table as a Parquet file. The types of the columns are those in `results.columns`. It needs the extra `parquet`.

    Missing values are nulls. The file is written completely or not at all. An existing file is replaced, and missing folders are
    created.

    Raises:
        Unsupported: pyarrow is not installed.
        OSError: The file cannot be written.
    """
    arrow, parquet = need("pyarrow", "parquet"), need("pyarrow.parquet", "parquet")
    types = {
        ColumnKind.BOOL: arrow.bool_(),
        ColumnKind.INT: arrow.int64(),
        ColumnKind.FLOAT: arrow.float64(),
        ColumnKind.TEXT: arrow.string(),
    }
    table = arrow.table(
        {name: arrow.array(results.column(name), types[kind]) for name, kind in results.columns.items()}
    )
    with whole(path) as partial:
        parquet.write_table(table, partial)


def write_text(results: Results, path: Path, form: str) -> None:
    """Write a table as a CSV or JSON file. The file is written completely or not at all. An existing file is replaced.

    Args:
        results: The table.
        path: The file; missing folders are created.
        form: "csv" (`write_csv`) or "json" (`json_document`).

    Raises:
        OSError: The file cannot be written.
    """
    with whole(path) as partial, partial.open("w", encoding="utf-8", newline="") as opened:
        if form == "csv":
            write_csv(results, opened)
        else:
            json.dump(json_document(results), opened, indent=2, ensure_ascii=False, allow_nan=False)
            opened.write("\n")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Return a context manager that yields the path of a temporary file in the folder of `path`.

    When the context ends without an error, the temporary file replaces `path`; otherwise it is deleted. Missing folders are
    created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _quoted(text: str) -> str:
    """Return a text as a CSV cell, quoted if necessary. Unlike Python's csv module, it also quotes carriage returns."""
    return '"' + text.replace('"', '""') + '"' if any(one in text for one in ',"\r\n') else text


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return "'" + value
    return str(value)
