"""Complete maps between Python enumerations and protobuf enumerations, in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import DecisionKind, JobState, RunEndReason, RunMode
from hopyard.v1 import common_pb2, hpgen_pb2, resource_manager_pb2

P = TypeVar("P")
W = TypeVar("W", bound=int)


class _WireEnum(Protocol):
    """The part of a generated protobuf enumeration that `EnumMap` uses."""

    @property
    def DESCRIPTOR(self) -> Any: ...


class EnumMap(Generic[P, W]):
    """A one-to-one map between Python values and all values of a protobuf enumeration except UNSPECIFIED (number 0).

    Args:
        wire: The generated protobuf enumeration.
        pairs: Protobuf number by Python value.
        unspecified: Python value of UNSPECIFIED; None: UNSPECIFIED is refused.

    Raises:
        ValueError: `pairs` is not one-to-one or does not cover the enumeration.
    """

    def __init__(self, wire: _WireEnum, pairs: Mapping[P, W], *, unspecified: P | None = None) -> None:
        self._name = str(wire.DESCRIPTOR.name)
        self._labels = {int(value.number): str(value.name) for value in wire.DESCRIPTOR.values}
        self._to_wire = dict(pairs)
        self._from_wire: dict[int, P] = {int(number): value for value, number in pairs.items()}
        self._unspecified = unspecified
        missing = set(self._labels) - {0} - set(self._from_wire)
        if missing or len(self._from_wire) != len(self._to_wire):
            raise ValueError(f"map of {self._name}: not one to one, or without {sorted(missing)}")

    def to_proto(self, value: P) -> W:
        """Return the protobuf number of a Python value; raise KeyError if the map does not contain the value."""
        return self._to_wire[value]

    def from_proto(self, number: int, *, field: str = "") -> P:
        """Return the Python value of a protobuf number.

        Args:
            number: The number in a message.
            field: Name of the message field, for the error message; empty: the name of the enumeration is used.

        Raises:
            InvalidInput: The number is UNSPECIFIED and this has no meaning, or it is unknown to this version.
        """
        if number in self._from_wire:
            return self._from_wire[number]
        if number == 0 and self._unspecified is not None:
            return self._unspecified
        found = self._labels.get(number, str(number))
        allowed = ", ".join(self._labels[known] for known in sorted(self._from_wire))
        raise InvalidInput(f"{field or self._name}: found {found}, allowed are {allowed}")


JOB_STATES: Final = EnumMap(
    common_pb2.JobState,
    {
        JobState.CREATING: common_pb2.JOB_STATE_CREATING,
        JobState.PENDING: common_pb2.JOB_STATE_PENDING,
        JobState.STARTING: common_pb2.JOB_STATE_STARTING,
        JobState.RUNNING: common_pb2.JOB_STATE_RUNNING,
        JobState.SUSPENDING: common_pb2.JOB_STATE_SUSPENDING,
        JobState.SUSPENDED: common_pb2.JOB_STATE_SUSPENDED,
        JobState.HELD: common_pb2.JOB_STATE_HELD,
        JobState.COMPLETED: common_pb2.JOB_STATE_COMPLETED,
        JobState.TERMINATED: common_pb2.JOB_STATE_TERMINATED,
        JobState.FAILED: common_pb2.JOB_STATE_FAILED,
    },
)
"""Job states. UNSPECIFIED is refused; callers handle it where it means "any state" (filters)."""

RUN_MODES: Final = EnumMap(
    common_pb2.RunMode,
    {
        RunMode.TRAIN: common_pb2.RUN_MODE_TRAIN,
        RunMode.EVALUATE: common_pb2.RUN_MODE_EVALUATE,
        RunMode.PROFILE: common_pb2.RUN_MODE_PROFILE,
    },
    unspecified=RunMode.TRAIN,
)

RUN_END_REASONS: Final = EnumMap(
    common_pb2.RunEndReason,
    {
        RunEndReason.UNTIL: common_pb2.RUN_END_REASON_UNTIL,
        RunEndReason.SUSPENDED: common_pb2.RUN_END_REASON_SUSPENDED,
        RunEndReason.PREEMPTED: common_pb2.RUN_END_REASON_PREEMPTED,
        RunEndReason.LOST: common_pb2.RUN_END_REASON_LOST,
        RunEndReason.FAILED: common_pb2.RUN_END_REASON_FAILED,
        RunEndReason.TERMINATED: common_pb2.RUN_END_REASON_TERMINATED,
    },
)

_MODES: dict[Literal["max", "min"], common_pb2.MetricMode.ValueType] = {
    "max": common_pb2.METRIC_MODE_MAX,
    "min": common_pb2.METRIC_MODE_MIN,
}
METRIC_MODES: Final = EnumMap(common_pb2.MetricMode, _MODES)

_READS: dict[Literal["nothing", "finals", "reports"], hpgen_pb2.GeneratorReads.ValueType] = {
    "nothing": hpgen_pb2.GENERATOR_READS_NOTHING,
    "finals": hpgen_pb2.GENERATOR_READS_FINALS,
    "reports": hpgen_pb2.GENERATOR_READS_REPORTS,
}
GENERATOR_READS: Final = EnumMap(hpgen_pb2.GeneratorReads, _READS, unspecified="finals")

DECISIONS: Final = EnumMap(
    resource_manager_pb2.Decision,
    {
        DecisionKind.CONTINUE: resource_manager_pb2.DECISION_CONTINUE,
        DecisionKind.SUSPEND: resource_manager_pb2.DECISION_SUSPEND,
        DecisionKind.TERMINATE: resource_manager_pb2.DECISION_TERMINATE,
        DecisionKind.PARK: resource_manager_pb2.DECISION_PARK,
    },
)
