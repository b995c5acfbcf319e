"""The one table between `hopyard.errors` and gRPC status codes, and how an error travels.

The status code is what other languages see. The exact class, where several share a code, travels beside it in the
trailing metadata under `ERROR_KEY`; a peer that does not send it still gets the code's first class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import grpc
import grpc.aio

from hopyard import errors

ERROR_KEY: Final = "hopyard-error"
"""Trailing metadata key that carries the name of the exception's class."""

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

# Codes that Hopyard's services never choose, but gRPC itself or other servers may.
_FOREIGN: Final[Mapping[grpc.StatusCode, type[errors.HopyardError]]] = {
    # The peer ended the call, as a server does with what is still running when its grace is over.
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
"""Longest message on the wire: it travels in a header, and headers are bounded by every peer."""


def code_of(error: errors.HopyardError) -> grpc.StatusCode:
    """The status code of an error's class, or of the nearest base class in the table (INTERNAL at the root)."""
    return CODES[_known(type(error))]


def name_of(error: errors.HopyardError) -> str:
    """The class name that travels with an error: its own, or that of the nearest base class in the table."""
    return _known(type(error)).__name__


def message_of(error: BaseException) -> str:
    """The error's message, cut so that it fits into a header (about 4 KiB once escaped)."""
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
    """The exception for a status code; `name` (from the trailing metadata) refines it where it fits the code."""
    kind = _NAMES.get(name)
    if kind is None or CODES[kind] is not code:
        kind = _CLASSES.get(code, errors.Internal)
    return kind(message or code.name)


def error_from_rpc(error: grpc.aio.AioRpcError) -> errors.HopyardError:
    """The exception for what a gRPC call raised."""
    trailing = error.trailing_metadata()
    name = trailing.get(ERROR_KEY, "") if trailing is not None else ""
    return error_from(error.code(), error.details() or "", name if isinstance(name, str) else "")


def _known(kind: type[errors.HopyardError]) -> type[errors.HopyardError]:
    for base in kind.__mro__:
        if issubclass(base, errors.HopyardError) and base in CODES:
            return base
    return errors.Internal
