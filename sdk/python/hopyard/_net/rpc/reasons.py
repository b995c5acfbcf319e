"""Converts reasons (why something is in its state) between Python and protobuf.

A message has three fields for a reason: the sentence for people, and the code and the arguments for programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from hopyard._net.rpc.enums import EnumMap
from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary.reasons import Argument, Reason, ReasonCode, explain
from hopyard.v1 import common_pb2

REASON_CODES: Final = EnumMap(
    common_pb2.ReasonCode,
    {code: common_pb2.ReasonCode.Value(f"REASON_CODE_{code.value}") for code in ReasonCode},
)
"""Reason codes. UNSPECIFIED is refused; `reason_from_proto` handles it, because it means that there is no reason."""

_MOST_LEVELS: Final = 16
"""Maximum nesting of reasons in the arguments of a received reason."""


_LEAST_WHOLE: Final = -(2**63)
_MOST_WHOLE: Final = 2**63 - 1
"""Range of an integer argument in a message. An integer outside it is sent as the nearest one in it."""


class _HasReason(Protocol):
    """A protobuf message with the three fields of a reason."""

    reason: str
    reason_code: common_pb2.ReasonCode.ValueType

    @property
    def reason_args(self) -> Any:
        """The arguments by name, as a protobuf map."""


def set_reason(message: _HasReason, reason: Reason | None) -> None:
    """Write a reason into the fields `reason`, `reason_code` and `reason_args` of a message; None clears them."""
    message.reason = explain(reason)
    message.reason_code = code_to_proto(reason)
    message.reason_args.clear()
    fill_args(message.reason_args, reason)


def code_to_proto(reason: Reason | None) -> common_pb2.ReasonCode.ValueType:
    """Return the protobuf code of a reason; UNSPECIFIED if it is None."""
    return REASON_CODES.to_proto(reason.code) if reason is not None else common_pb2.REASON_CODE_UNSPECIFIED


def fill_args(args: Any, reason: Reason | None) -> None:
    """Write the arguments of a reason into the protobuf map `args`; if the reason is None, write nothing."""
    for name, value in reason.args.items() if reason is not None else ():
        found = args[name]
        if isinstance(value, Reason):
            found.reason.code = code_to_proto(value)
            fill_args(found.reason.args, value)
        elif isinstance(value, str):
            found.text = value
        elif isinstance(value, float):
            found.number = value
        else:
            found.whole = max(_LEAST_WHOLE, min(value, _MOST_WHOLE))


def reason_from_proto(code: int, args: Mapping[str, common_pb2.ReasonArgument], *, levels: int = 0) -> Reason | None:
    """Return the reason with a protobuf code and arguments; None if the code is UNSPECIFIED and there are no arguments.

    Args:
        code: Protobuf number of the reason's code.
        args: The arguments by name.
        levels: Number of reasons within whose arguments this one is nested; 0: it is not an argument of another reason.

    Raises:
        InvalidInput: The code is unknown, the arguments are not those of the code, or more than 16 reasons are nested.
    """
    if code == common_pb2.REASON_CODE_UNSPECIFIED and not args:
        return None
    if levels == _MOST_LEVELS:
        raise InvalidInput(f"reason: found more than {_MOST_LEVELS} reasons within each other, which is the most")
    known = REASON_CODES.from_proto(code, field="reason_code")
    try:
        return Reason(known, {name: _argument(name, value, levels) for name, value in args.items()})
    except TypeError as error:
        raise InvalidInput(str(error)) from error


def _argument(name: str, value: common_pb2.ReasonArgument, levels: int) -> Argument:
    match value.WhichOneof("kind"):
        case "text":
            return value.text
        case "whole":
            return value.whole
        case "number":
            return value.number
        case "reason":
            nested = reason_from_proto(value.reason.code, value.reason.args, levels=levels + 1)
            if nested is not None:
                return nested
    raise InvalidInput(f"reason_args.{name}: found no value, needed is text, whole, number or reason")
