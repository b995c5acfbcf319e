"""Converts hyperparameter values, configurations, metrics, reports and run keys between Python and protobuf messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hopyard._common.bounded_json import MAX_COUNT
from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import ENDLESS, Report, RunKey, StreamId
from hopyard.v1 import common_pb2

MAX_DEPTH: Final = 24
"""Maximum nesting of lists and maps: protobuf refuses messages nested more than 100 deep, and a level takes up to four."""

MAX_SECONDS: Final = 1e12
"""Maximum duration in seconds in one message of an agent."""

_INT64: Final = range(-(2**63), 2**63)


def value_to_proto(value: object, path: str = "value") -> common_pb2.Value:
    """Convert None, bool, int, float, str, and lists, tuples and string-keyed mappings of these to a message.

    Ints and floats stay distinct.

    Args:
        value: The value.
        path: Name of the value in error messages.

    Raises:
        InvalidInput: The value has another type, an int beyond 64 bits, a key that is not a str, a str with a lone
            surrogate, or is nested deeper than `MAX_DEPTH`. The message names the path, such as `value.layers[2]`.
    """
    return _to_proto(value, path, 0)


def value_from_proto(message: common_pb2.Value) -> Any:
    """Convert a message to None, bool, int, float, str, list or dict, the inverse of `value_to_proto`; an empty message to None."""
    kind = message.WhichOneof("kind")
    if kind is None:
        return None
    if kind == "list_value":
        return [value_from_proto(item) for item in message.list_value.values]
    if kind == "map_value":
        return _map_from_proto(message.map_value.values)
    return getattr(message, kind)


def hyperparameters_to_proto(values: Mapping[str, Any], path: str = "hyperparameters") -> common_pb2.Hyperparameters:
    """Convert a configuration (hyperparameter values by name) to a message; raise `InvalidInput` like `value_to_proto`.

    Args:
        values: The configuration.
        path: Name of the configuration in error messages.
    """
    message = common_pb2.Hyperparameters()
    _fill_map(message.values, values, path, 0)
    return message


def hyperparameters_from_proto(message: common_pb2.Hyperparameters) -> dict[str, Any]:
    """Convert a message to a configuration, sorted by name because protobuf maps have no order."""
    return _map_from_proto(message.values)


def metrics_from_proto(values: Mapping[str, float]) -> dict[str, float]:
    """Return `values`, the metrics of a message, as a dict, sorted by name because protobuf maps have no order."""
    return {name: values[name] for name in sorted(values)}


def report_to_proto(report: Report, *, at: float = 0.0, in_force: Mapping[str, Any] | None = None) -> common_pb2.Report:
    """Convert a report to a message.

    Args:
        report: The report.
        at: Time of the report in seconds since the Unix epoch; 0: unknown.
        in_force: The hyperparameters with which the trainer really trains, which the first report of a run contains; None: the
            message does not contain them.
    """
    message = common_pb2.Report()
    fill_report(message, report, at=at)
    if in_force is not None:
        message.in_force.CopyFrom(hyperparameters_to_proto(in_force, "in_force"))
    return message


def fill_report(message: common_pb2.Report, report: Report, *, at: float) -> None:
    """Write a report into an empty message, which may be part of another one.

    Args:
        message: The message.
        report: The report.
        at: Time of the report in seconds since the Unix epoch; 0: unknown.
    """
    message.position = report.position
    message.metrics.update(report.metrics)
    message.seconds = report.seconds
    message.at = at
    # Assigning default values would take time and change nothing.
    if report.part:
        message.part = report.part
    if report.examples:
        message.examples = report.examples
    if report.at_until:
        message.at_until = True
    if report.finished:
        message.finished = True


def report_from_proto(message: common_pb2.Report) -> Report:
    """Convert a message to a report, without the message's `at` and `in_force`.

    Raises:
        InvalidInput: The position, seconds or examples are negative or too large.
    """
    check_report(message)
    metrics = metrics_from_proto(message.metrics)
    return Report(
        message.position, metrics, message.seconds, message.part, message.examples, message.at_until, message.finished
    )


def check_report(message: common_pb2.Report, path: str = "report") -> None:
    """Raise InvalidInput if the position, seconds or examples of a report are negative or too large.

    Args:
        message: The report.
        path: Name of the report in the error message.
    """
    position, seconds, examples = message.position, message.seconds, message.examples
    if not (0 <= position <= ENDLESS and 0 <= seconds <= MAX_SECONDS and 0 <= examples <= MAX_COUNT):
        bounds = {"position": (position, ENDLESS), "seconds": (seconds, MAX_SECONDS), "examples": (examples, MAX_COUNT)}
        for field, (found, most) in bounds.items():
            if not 0 <= found <= most:
                raise InvalidInput(f"{path}.{field}: found {found}, allowed is 0 to {most}")


def run_key_from_proto(message: common_pb2.RunRef) -> RunKey:
    """Convert a message to a run key: stream, job, attempt and rank."""
    return RunKey(StreamId(message.experiment), message.job, message.attempt, message.rank)


def run_key_to_proto(key: RunKey) -> common_pb2.RunRef:
    """Convert a run key (stream, job, attempt and rank) to a message."""
    return common_pb2.RunRef(experiment=key.stream, job=key.job, attempt=key.attempt, rank=key.rank)


def _map_from_proto(values: Mapping[str, common_pb2.Value]) -> dict[str, Any]:
    return {name: value_from_proto(values[name]) for name in sorted(values)}


def _to_proto(value: object, path: str, depth: int) -> common_pb2.Value:
    if depth > MAX_DEPTH:
        raise InvalidInput(f"{path}: nested deeper than the {MAX_DEPTH} levels that are allowed")
    if value is None:
        return common_pb2.Value()
    if isinstance(value, bool):  # Checked before int, because bool is a subclass of int.
        return common_pb2.Value(bool_value=value)
    if isinstance(value, int):
        if value not in _INT64:
            raise InvalidInput(f"{path}: found {value}, allowed are integers of 64 bits")
        return common_pb2.Value(int_value=value)
    if isinstance(value, float):
        return common_pb2.Value(double_value=value)
    if isinstance(value, str):
        return common_pb2.Value(string_value=_text(value, path))
    message = common_pb2.Value()
    if isinstance(value, list | tuple):
        message.list_value.SetInParent()
        message.list_value.values.extend(
            _to_proto(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)
        )
        return message
    if isinstance(value, Mapping):
        message.map_value.SetInParent()
        _fill_map(message.map_value.values, value, path, depth + 1)
        return message
    raise InvalidInput(
        f"{path}: found {type(value).__name__} {value!r:.80}, "
        "allowed are null, bool, int, float, str, lists and maps of these"
    )


def _fill_map(target: Any, values: Mapping[Any, Any], path: str, depth: int) -> None:
    for name, item in values.items():
        if not isinstance(name, str):
            raise InvalidInput(f"{path}: found the key {name!r:.80} of type {type(name).__name__}, allowed are strings")
        target[_text(name, path)].CopyFrom(_to_proto(item, f"{path}.{name}", depth))


def _text(text: str, path: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{path}: found text that is no Unicode ({error.reason})") from error
    return text
