"""Converts between the exceptions of `hopyard.errors` and gRPC statuses.

Peers in other languages see the status code. If several classes share a code, the trailing metadata `ERROR_KEY` names
the class; without it, the first class with the code in `CODES`, the table of codes by class, is raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import grpc
import grpc.aio

from hopyard import errors

ERROR_KEY: Final = "hopyard-error"
"""Trailing metadata key whose value is the name of the exception's class."""

CODES: Final[Mapping[type[errors.HopyardError], grpc.StatusCode]] = {
    errors.InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.Conflict: grpc.StatusCode.FAILED_PRECONDITION,
    errors.StaleEpoch: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Aborted: grpc.StatusCode.ABORTED,
    errors.Exhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
    errors.TimedOut: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.DataLoss: grpc.StatusCode.DATA_LOSS,
    errors.PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    errors.Unsupported: grpc.StatusCode.UNIMPLEMENTED,
    errors.Internal: grpc.StatusCode.INTERNAL,
}

# Codes that Hopyard services do not send, but gRPC itself or other servers may.
_FOREIGN: Final[Mapping[grpc.StatusCode, type[errors.HopyardError]]] = {
    # The peer cancelled the call, as a stopping server does after its grace period.
    grpc.StatusCode.CANCELLED: errors.Unavailable,
    grpc.StatusCode.UNKNOWN: errors.Internal,
    grpc.StatusCode.OUT_OF_RANGE: errors.InvalidInput,
}

_CLASSES: Final[Mapping[grpc.StatusCode, type[errors.HopyardError]]] = {
    # Reversed, so that the first class of a code in the table wins.
    **{code: kind for kind, code in reversed(list(CODES.items()))},
    **_FOREIGN,
}
_NAMES: Final[Mapping[str, type[errors.HopyardError]]] = {kind.__name__: kind for kind in CODES}

_MESSAGE_BYTES: Final = 4096
"""Maximum length of an escaped message: it is sent in a header, and peers limit the size of headers."""


def code_of(error: errors.HopyardError) -> grpc.StatusCode:
    """Return the status code of the error's class, or of its nearest base class in the table `CODES`; INTERNAL if it has none."""
    return CODES[_known(type(error))]


def name_of(error: errors.HopyardError) -> str:
    """Return the class name to send with an error: that of its class, or of its nearest base class in the table `CODES`.

    "Internal" if the table has neither.
    """
    return _known(type(error)).__name__


def message_of(error: BaseException) -> str:
    """Return the error's message, truncated to about 4 KiB after escaping so that it fits into a header."""
    text = str(error) or type(error).__name__
    if len(quote(text)) <= _MESSAGE_BYTES:
        return text
    end, size = 0, 0
    for end, character in enumerate(text):  # noqa: B007
        size += len(quote(character))
        if size > _MESSAGE_BYTES - 16:
            break
    return text[:end] + "..."


def error_from(code: grpc.StatusCode, message: str, name: str = "") -> errors.HopyardError:
    """Return the exception for a gRPC status.

    Args:
        code: The status code.
        message: Message of the exception; empty: the name of the code.
        name: Class name from the trailing metadata, used if this class has the code; else the first class of the code in the table
            `CODES` is used.
    """
    kind = _NAMES.get(name)
    if kind is None or CODES[kind] is not code:
        kind = _CLASSES.get(code, errors.Internal)
    return kind(message or code.name)


def error_from_rpc(error: grpc.aio.AioRpcError) -> errors.HopyardError:
    """Return the exception of `hopyard.errors` for the status of a failed gRPC call."""
    trailing = error.trailing_metadata()
    name = trailing.get(ERROR_KEY, "") if trailing is not None else ""
    return error_from(error.code(), error.details() or "", name if isinstance(name, str) else "")


def _known(kind: type[errors.HopyardError]) -> type[errors.HopyardError]:
    for base in kind.__mro__:
        if issubclass(base, errors.HopyardError) and base in CODES:
            return base
    return errors.Internal
