"""Converts results to tables of plain values, in which all values of a column have the same type."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hopyard._common import formatting
from hopyard._common.optional_import import need
from hopyard.client.display import html
from hopyard.client.types import Experiment, Job, Statistic

if TYPE_CHECKING:
    import pandas as pd

HYPERPARAMETER: Final = "hp."
METRIC: Final = "metric."
_SHOWN: Final = 50
"""Maximum number of rows that a notebook and `str()` show."""

_LONGEST: Final = 40
"""Maximum number of characters of a value in a text table."""


class ColumnKind(enum.Enum):
    """The type of all values of a column: bool, int, float or text. Any value may also be missing (None)."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    TEXT = "text"


_JOB: Final = {
    "experiment": ColumnKind.TEXT,
    "job": ColumnKind.TEXT,
    "state": ColumnKind.TEXT,
    "best": ColumnKind.FLOAT,
    "best_position": ColumnKind.INT,
    "last": ColumnKind.FLOAT,
    "position": ColumnKind.INT,
    "seconds": ColumnKind.FLOAT,
    "attempt": ColumnKind.INT,
    "failures": ColumnKind.INT,
    "suspends": ColumnKind.INT,
    "priority": ColumnKind.FLOAT,
    "parent": ColumnKind.TEXT,
    "fork_position": ColumnKind.INT,
    "reason": ColumnKind.TEXT,
    "reason_code": ColumnKind.TEXT,
}
_REPORT: Final = {
    "experiment": ColumnKind.TEXT,
    "job": ColumnKind.TEXT,
    "attempt": ColumnKind.INT,
    "position": ColumnKind.INT,
    "part": ColumnKind.TEXT,
    "examples": ColumnKind.INT,
    "seconds": ColumnKind.FLOAT,
    "at": ColumnKind.FLOAT,
}
_DTYPES: Final = {
    ColumnKind.BOOL: "boolean",
    ColumnKind.INT: "Int64",
    ColumnKind.FLOAT: "float64",
    ColumnKind.TEXT: "string",
}


@dataclass(frozen=True)
class Results:
    """The results of an experiment as a table with one row per job, or one row per report.

    Attributes:
        experiment: The experiment.
        columns: The type of each column by its name, in order. Fixed columns come first, then those of the hyperparameters
            (`hp.NAME`) or metrics (`metric.NAME`), ordered by name.
        rows: The rows, each a mapping with all columns. A missing value is None. Floats may be NaN or infinite.
    """

    experiment: Experiment
    columns: Mapping[str, ColumnKind]
    rows: tuple[Mapping[str, Any], ...]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Iterate over the rows in order."""
        return iter(self.rows)

    def __repr__(self) -> str:
        """Return the experiment, the number of rows, and the names of the columns that have a value."""
        return f"<Results of {self.experiment.id}: {formatting.count(len(self), 'row')}; {', '.join(self._filled())}>"

    def __str__(self) -> str:
        """Return a text table of the first 50 rows and of the columns that have a value, with long values cut."""
        names = self._filled()
        if not names:
            return repr(self)
        lines = [names, *([_shown_value(row[name]) for name in names] for row in self.rows[:_SHOWN])]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        if len(self) > _SHOWN:
            text.append(f"... {_SHOWN} of {formatting.count(len(self), 'row')}")
        return "\n".join(text)

    def _repr_html_(self) -> str:
        names = self._filled()
        rows = [
            ["" if row[name] is None else formatting.value(row[name]) for name in names] for row in self.rows[:_SHOWN]
        ]
        note = f"{_SHOWN} of {formatting.count(len(self), 'row')}" if len(self) > _SHOWN else ""
        return html.table(names, rows, note)

    def _filled(self) -> list[str]:
        return [name for name in self.columns if any(row[name] is not None for row in self.rows)]

    def column(self, name: str) -> list[Any]:
        """Return the values of the column `name`, one for each row.

        Raises:
            KeyError: There is no such column. A table without rows returns an empty list instead.
        """
        return [row[name] for row in self.rows]

    def frame(self) -> pd.DataFrame:
        """Return the table as a pandas DataFrame. It needs the extra `pandas`.

        Integers, booleans and texts have the nullable types of pandas, in which a missing value is NA. A missing float is NaN.

        Raises:
            Unsupported: pandas is not installed.
        """
        pandas = need("pandas", "pandas")
        series = {name: pandas.Series(self.column(name), dtype=_DTYPES[kind]) for name, kind in self.columns.items()}
        frame: pd.DataFrame = pandas.DataFrame(series)
        return frame


def job_results(experiment: Experiment, jobs: Iterable[Job]) -> Results:
    """Return a table with one row per job, in the order of `jobs`.

    The columns are `experiment` (an id) and fields of `Job`: `job` (the id), `state`, `best` and `last` (values of the metric that the
    experiment optimizes), `best_position`, `position`, `seconds`, `attempt`, `failures`, `suspends`, `priority`, `parent`,
    `fork_position`, `reason`, `reason_code`, followed by one column `hp.NAME` for each hyperparameter, ordered by name.

    Nested hyperparameters have columns named by their path, such as `hp.optimizer.name`. A dot in a name is escaped with a
    backslash. Values that a job does not have are missing. In a column with lists or with values of several types, values
    that are not texts are written as JSON.

    Args:
        experiment: The experiment of the jobs, which becomes `Results.experiment`.
        jobs: The jobs.
    """
    rows = []
    for job in jobs:
        row: dict[str, Any] = {name: getattr(job, name, None) for name in _JOB}
        scored = job.best_value is not None
        row |= {
            "job": job.id,
            "state": job.state.value,
            "best": job.best_value,
            "best_position": job.best_position if scored else None,
            "last": job.last_value,
            "fork_position": job.fork_position if job.parent is not None else None,
            "reason": job.reason or None,
            "reason_code": job.reason_code.value if job.reason_code is not None else None,
        }
        row |= flatten(HYPERPARAMETER, job.hyperparameters)
        rows.append(row)
    return _table(experiment, _JOB, rows)


def report_results(experiment: Experiment, statistics: Iterable[Statistic]) -> Results:
    """Return a table with one row per report, in the order of `statistics`.

    The columns are:
        `experiment`, `job`: Ids of the experiment and of the job.
        `attempt`: Number of the run within the job.
        `position`: Position of the report, in the experiment's unit.
        `part`: Name of the data partition on which the metrics were evaluated; missing: all data.
        `examples`: Number of evaluated examples; missing: unknown.
        `seconds`: Training time in seconds since the previous report of the run.
        `at`: Time of the report in seconds since the Unix epoch.
        `metric.NAME`: The value of each metric, ordered by name; missing: the report does not contain it.

    Args:
        experiment: The experiment, whose id is in each row.
        statistics: The reports.
    """
    rows = []
    for one in statistics:
        report = one.report
        row = {
            "experiment": experiment.id,
            "job": one.job,
            "attempt": one.attempt,
            "position": report.position,
            "part": report.part or None,
            "examples": report.examples or None,
            "seconds": report.seconds,
            "at": one.at,
        }
        rows.append(row | {METRIC + name: float(value) for name, value in report.metrics.items()})
    return _table(experiment, _REPORT, rows)


def flatten(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested mappings as one mapping from paths to values, such as {"optimizer.name": "sgd"}.

    Dots and backslashes in a name are escaped with a backslash. An empty mapping, and the written form of a sequence, are not
    divided: the result contains them as values.

    Args:
        prefix: Text before each path, without a separator: `hp.` gives `hp.optimizer.name`.
        values: The mapping to flatten.
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        path = prefix + name.replace("\\", "\\\\").replace(".", "\\.")
        if isinstance(value, Mapping) and value and not _is_sequence(value):
            flat |= flatten(path + ".", value)
        else:
            flat[path] = value
    return flat


def _shown_value(value: Any) -> str:
    """Return a value for a text table: in one line, and cut if it is long; empty for None."""
    text = "" if value is None else formatting.printable(" ".join(formatting.value(value).split()))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _is_sequence(value: Mapping[str, Any]) -> bool:
    from hopyard.sequences import is_written  # imported on first use: few experiments have nested hyperparameters

    return is_written(value)


def _table(experiment: Experiment, fixed: Mapping[str, ColumnKind], rows: Sequence[dict[str, Any]]) -> Results:
    more = sorted({name for row in rows for name in row} - fixed.keys())
    columns = dict(fixed)
    for name in more:
        columns[name] = ColumnKind.FLOAT if name.startswith(METRIC) else _kind(row.get(name) for row in rows)
    cells = tuple({name: _cell(row.get(name), kind) for name, kind in columns.items()} for row in rows)
    return Results(experiment, columns, cells)


def _kind(values: Iterable[Any]) -> ColumnKind:
    types = {type(value) for value in values if value is not None}
    if types and types <= {int, float}:
        return ColumnKind.INT if types == {int} else ColumnKind.FLOAT
    return ColumnKind.BOOL if types == {bool} else ColumnKind.TEXT


def _cell(value: Any, kind: ColumnKind) -> Any:
    if value is None:
        return None
    if kind is ColumnKind.FLOAT:
        return float(value)
    if kind is ColumnKind.TEXT and not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return value
