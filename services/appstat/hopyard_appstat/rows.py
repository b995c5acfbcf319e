"""Converts between protobuf messages and table rows, so that the database code does not depend on messages.

A column has the name of the message's field.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from hopyard._net.rpc.values import hyperparameters_from_proto, hyperparameters_to_proto
from hopyard.errors import DataLoss, InvalidInput
from hopyard.v1 import appstat_pb2, common_pb2, data_pb2

M = TypeVar("M", bound=Message)
Row = Mapping[Any, Any]
"""The columns of a table by name; a column that is a list of rows stands for the related rows of another table."""

_PLAIN: Final = ("position", "seconds", "at", "part", "examples", "at_until", "finished")
"""Fields of a report that are stored without conversion."""

_NAMES: Final = ("stream", "position", "id", "experiment", "job", "name")
"""Columns that identify a row, for error messages."""


def metrics_to_json(metrics: Mapping[str, float]) -> str:
    """Return metrics as strict JSON text, sorted by name. Values that are not finite become "NaN", "Infinity" or "-Infinity"."""
    written = (
        f"{_quoted(name)}:{float(value)!r}" if math.isfinite(value) else f'{_quoted(name)}:"{_word(value)}"'
        for name, value in sorted(metrics.items())
    )
    return f"{{{','.join(written)}}}"


def metrics_from_json(text: str) -> dict[str, float]:
    """Return the metrics from `text`, which must be a result of `metrics_to_json` and is not checked.

    All values are restored exactly, except for the payload bits of a NaN.
    """
    return {name: float(value) for name, value in json.loads(text).items()}


def row_of(message: Message) -> Row:
    """Return the row of a message that has only scalar fields, as values by field name."""
    return {name: getattr(message, name) for name in _fields(message.DESCRIPTOR)}


def message_of(kind: type[M], row: Row) -> M:
    """Return the message of type `kind` for a row; the inverse of `row_of`. Columns without a field are ignored.

    Raises:
        DataLoss: A column has a value of a type that AppStat does not write, so the database is damaged.
    """
    try:
        return kind(**{name: row[name] for name in _fields(kind.DESCRIPTOR)})
    except (TypeError, ValueError) as error:
        raise _damaged(kind, row, f"a value of another type: {error!s:.200}") from error


def stored_row(message: Message, *fields: str) -> Row:
    """Return the row of a message that is stored serialized, in the column `message`; `fields` are columns too, to find the row."""
    return {**{name: getattr(message, name) for name in fields}, "message": message.SerializeToString()}


def stored_message(kind: type[M], row: Row) -> M:
    """Return the message of type `kind` that a row contains; the inverse of `stored_row`.

    Raises:
        DataLoss: The column `message` does not contain such a message, or that of another row, so the database is damaged.
    """
    message = readable_message(kind, row)
    if isinstance(message, str):
        experiment = row["experiment"] if "experiment" in row else row["id"]
        raise _damaged(
            kind, row, message, f"while no cluster runs, hopyard doctor --rebuild {experiment} writes it again"
        )
    return message


def readable_message(kind: type[M], row: Row) -> M | str:
    """Return the message of type `kind` that a row contains, or what was found in its place, as an error text."""
    try:
        message = kind.FromString(row["message"])
    except (DecodeError, TypeError) as error:
        return f"a value of another type: {error!s:.200}"
    for name in _NAMES:
        # Lost bytes may leave a valid message, for example the empty one.
        if name in row and getattr(message, name) != row[name]:
            return f"a message whose {name} is {getattr(message, name)!r:.80}"
    return message


def statistic_row(experiment: str, job: str, attempt: int, report: common_pb2.Report) -> Row:
    """Return the row of the table `statistics` for an accepted report of a job; `attempt` is the number of the run that sent it."""
    in_force = hyperparameters_from_proto(report.in_force) if report.HasField("in_force") else None
    return {
        "experiment": experiment,
        "job": job,
        "attempt": attempt,
        **{name: getattr(report, name) for name in _PLAIN},
        "metrics": metrics_to_json(report.metrics),
        "in_force": None if in_force is None else json.dumps(in_force, separators=(",", ":"), ensure_ascii=False),
    }


def statistic_of(row: Row) -> appstat_pb2.Statistic:
    """Return the statistic for a row of the table `statistics`; the inverse of `statistic_row`."""
    message = appstat_pb2.Statistic(experiment=row["experiment"], job=row["job"], attempt=row["attempt"])
    report = message.report
    for name in _PLAIN:
        setattr(report, name, row[name])
    report.metrics.update(metrics_from_json(row["metrics"]))
    if row["in_force"] is not None:
        report.in_force.CopyFrom(hyperparameters_to_proto(json.loads(row["in_force"]), "in_force"))
    return message


def data_set_row(request: appstat_pb2.PutDataSetRequest) -> Row:
    """Return the row of the data set in a request, including the rows of its partitions and their replicas.

    Raises:
        InvalidInput: The time of registration is not finite.
    """
    data = request.data
    if not math.isfinite(data.registered_at):
        raise InvalidInput(f"data.registered_at: needs a finite number, found {data.registered_at}")
    partitions = [
        {
            "name": one.name,
            "size_bytes": one.size_bytes,
            "sha256": one.sha256,
            "examples": one.examples if one.HasField("examples") else None,
            "url": one.url,
            "replicas": [{"node": replica.node, "path": replica.path} for replica in one.replicas],
        }
        for one in data.partitions
    ]
    return {
        "name": data.name,
        "request_id": request.request_id,
        "registered_at": data.registered_at,
        "partitions": partitions,
    }


def data_set_of(row: Row) -> data_pb2.DataSet:
    """Return the data set for a row that contains the rows of its partitions and their replicas; the inverse of `data_set_row`."""
    message = data_pb2.DataSet(name=row["name"], registered_at=row["registered_at"])
    for one in row["partitions"]:
        message.partitions.add(**one)
    return message


def _damaged(kind: type[Message], row: Row, found: str, remedy: str = "restore the database from a copy") -> DataLoss:
    which = ", ".join(f"{name} {row[name]!r:.80}" for name in _NAMES if name in row)
    return DataLoss(f"database: found the row of {kind.DESCRIPTOR.name} ({which}) with {found}; {remedy}")


@functools.cache
def _fields(descriptor: Descriptor) -> tuple[str, ...]:
    return tuple(field.name for field in descriptor.fields)


@functools.lru_cache(1024)
def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _word(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
