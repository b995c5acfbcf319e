"""Compares rows of AppStat with the rows that follow from the journal, field by field."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from hopyard.v1 import appstat_pb2, experiment_pb2
from hopyard_scheduler.runtime.journal_rows import RowKey
from hopyard_scheduler.runtime.projections import was_unreadable

NOTHING: Final = "nothing"
"""How a field without a value and a missing row are shown."""

_MOST_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A difference between a row of AppStat and the journal.

    Attributes:
        row: The kind of the row: a field of `Projection`.
        experiment: Id of the experiment; of a scaling profile the one that measured it.
        job: Id of the job; empty: the row is not of a job.
        position: Position of a report; None: the row is not of a report.
        part: Partition on which the values of a report were measured; empty: all data.
        field: The field of the row; empty: the whole row.
        found: The value in AppStat, or what is wrong with the row.
        expected: The value that follows from the journal.
    """

    row: str
    experiment: str
    job: str
    position: int | None
    part: str
    field: str
    found: str
    expected: str

    def __str__(self) -> str:
        """Return the place, what was found and what was expected, in one line."""
        place = f"job {self.job} of {self.experiment}" if self.job else self.experiment
        if self.position is not None:
            place += f", report at {self.position}" + (f" on {self.part}" if self.part else "")
        elif self.row == "plan_trial":
            place += ", search plan"
        elif self.row == "scaling":
            place += ", scaling profile"
        if self.field:
            place += f", {self.field}"
        return f"{place}: found {self.found}, the journal gives {self.expected}"


def compare(
    expected: Mapping[RowKey, appstat_pb2.Projection],
    found: Sequence[tuple[RowKey, appstat_pb2.Projection]],
    damaged: Sequence[appstat_pb2.DamagedRow],
    experiments: Collection[str],
) -> Iterator[RowDifference]:
    """Yield the differences between the rows of a stream in AppStat and those that follow from its journal.

    Args:
        expected: The rows that follow from the journal.
        found: The rows of AppStat by key. Scaling profiles may be those of other experiments, which replace earlier ones.
        damaged: Rows of AppStat that cannot be read.
        experiments: Ids of the experiments of the stream.
    """
    by_key: dict[RowKey, appstat_pb2.Projection] = {}
    for key, row in found:
        if key in by_key:
            yield _difference(row, "", "the row twice", "it once")
        by_key.setdefault(key, row)
    unreadable: set[RowKey] = set()
    for one in damaged:
        position, part = (one.position, one.part) if one.row == "statistic" else (None, "")
        unreadable.add(_damaged_key(one))
        yield RowDifference(
            one.row, one.experiment, one.job, position, part, "", f"an unreadable row ({one.error})", "a row"
        )
    for key, row in expected.items():
        there = by_key.pop(key, None)
        if there is None:
            if key not in unreadable:
                yield _difference(row, "", NOTHING, "a row")
        elif key[0] == "scaling" and there.scaling.experiment not in experiments:
            if there.scaling.at < row.scaling.at:
                yield _difference(row, "", f"an older one of {there.scaling.experiment}", "a row")
        else:
            yield from _fields(there, _as_unreadable(row, there))
    for key, row in by_key.items():
        if key[0] != "scaling" or row.scaling.experiment in experiments:
            yield _difference(row, "", "a row", NOTHING)


def _damaged_key(one: appstat_pb2.DamagedRow) -> RowKey:
    match one.row:
        case "experiment":
            return one.row, one.experiment
        case "statistic":
            return one.row, one.experiment, one.job, str(one.position), one.part
        case _:
            return one.row, one.experiment, one.job


def _as_unreadable(row: appstat_pb2.Projection, there: appstat_pb2.Projection) -> appstat_pb2.Projection:
    """Return the expected row. If the scheduler has paused the experiment because it could not read the journal, say so in it."""
    if not (there.HasField("experiment") and was_unreadable(there.experiment)):
        return row
    paused = appstat_pb2.Projection()
    paused.CopyFrom(row)
    paused.experiment.state = experiment_pb2.EXPERIMENT_STATE_PAUSED
    for field in paused.experiment.DESCRIPTOR.fields:
        if field.name.startswith("reason"):
            paused.experiment.ClearField(field.name)  # type: ignore[arg-type]
    paused.MergeFrom(
        appstat_pb2.Projection(
            experiment=experiment_pb2.Experiment(
                **{f.name: v for f, v in there.experiment.ListFields() if f.name.startswith("reason")}
            )
        )
    )
    return paused


def _fields(found: appstat_pb2.Projection, expected: appstat_pb2.Projection) -> Iterator[RowDifference]:
    kind = expected.WhichOneof("row")
    assert kind is not None
    there, wanted = dict(_leaves(getattr(found, kind))), dict(_leaves(getattr(expected, kind)))
    for name in [*wanted, *(name for name in there if name not in wanted)]:
        one, other = there.get(name), wanted.get(name)
        if one != other and not (one != one and other != other):  # NaN equals NaN here.
            yield _difference(expected, name, *_shown(one, other))


def _leaves(message: Message, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values of all fields of a message that are set, also in nested messages, each with its path."""
    for field, value in message.ListFields():
        name = f"{prefix}{field.name}"
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key in value:
                yield from _leaf(field.message_type.fields_by_name["value"], f"{name}[{key}]", value[key])
        elif not isinstance(
            value, Message | str | bytes | bool | int | float
        ):  # It is a container: the field is repeated.
            for index, one in enumerate(value):
                yield from _leaf(field, f"{name}[{index}]", one)
        else:
            yield from _leaf(field, name, value)


def _leaf(field: FieldDescriptor, name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Message):
        yield name, ""  # An empty message differs from none.
        yield from _leaves(value, f"{name}.")
    elif field.enum_type is not None and isinstance(value, int):
        known = field.enum_type.values_by_number.get(value)
        yield name, known.name if known is not None else value
    else:
        yield name, value


def _shown(found: object, expected: object) -> tuple[str, str]:
    """Return two different values as short texts. Of long texts the part is shown in which they begin to differ."""
    if isinstance(found, str) and isinstance(expected, str) and max(len(found), len(expected)) > _MOST_CHARACTERS:
        same = next(
            (i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), min(len(found), len(expected))
        )
        start = max(0, same - 20)
        return tuple(
            repr(("..." if start else "") + one[start : start + _MOST_CHARACTERS]) for one in (found, expected)
        )  # type: ignore[return-value]
    return tuple(NOTHING if one is None else f"{one!r:.80}" for one in (found, expected))  # type: ignore[return-value]


def _difference(row: appstat_pb2.Projection, field: str, found: str, expected: str) -> RowDifference:
    kind = row.WhichOneof("row")
    assert kind is not None
    one = getattr(row, kind)
    if kind == "experiment":
        return RowDifference(kind, one.id, "", None, "", field, found, expected)
    if kind == "job":
        return RowDifference(kind, one.experiment, one.id, None, "", field, found, expected)
    position, part = (one.report.position, one.report.part) if kind == "statistic" else (None, "")
    return RowDifference(kind, one.experiment, one.job, position, part, field.removeprefix("report."), found, expected)
