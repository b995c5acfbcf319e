"""Results in files and on streams: CSV, JSON, Parquet."""

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
    """Write CSV: a header, a line a row, an empty cell for what is missing, `NaN`, `inf` and `-inf` for such floats.

    A text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    to.write(",".join(map(_quoted, results.columns)) + "\n")
    for row in results.rows:
        to.write(",".join(_quoted(_csv_cell(row[name])) for name in results.columns) + "\n")


def json_document(results: Results) -> dict[str, Any]:
    """What `--format json` prints; floats that are not finite are null there, as everywhere in Hopyard's JSON."""
    return {
        "experiment": results.experiment.id,
        "metric": results.experiment.metric.name,
        "columns": {name: kind.value for name, kind in results.columns.items()},
        "rows": [{name: _finite(value) for name, value in row.items()} for row in results.rows],
    }


def write_parquet(results: Results, path: Path) -> None:
    """Write a Parquet file (extra `parquet`), whose columns have the types that `columns` says.

    Raises:
        Unsupported: pyarrow is not installed.
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
    """Write a `csv` or `json` file, whole or not at all; one that is there is replaced."""
    with whole(path) as partial, partial.open("w", encoding="utf-8", newline="") as opened:
        if form == "csv":
            write_csv(results, opened)
        else:
            json.dump(json_document(results), opened, indent=2, ensure_ascii=False, allow_nan=False)
            opened.write("\n")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to, which takes its place when all went well."""
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
    """A cell. Python's own writer leaves carriage returns bare where lines end without them."""
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
