"""Decides about each call: finds the caller, applies the table of permissions, and limits the calls of one caller at the same time."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from hopyard._net.auth.permissions import OPEN, PERMISSIONS
from hopyard._net.auth.principal import CallerKind, Principal, present
from hopyard._net.rpc.token_header import SCHEME
from hopyard.errors import Exhausted, PermissionDenied, Unauthenticated

_log = logging.getLogger(__name__)

MOST_CALLS: Final[Mapping[CallerKind | None, tuple[int, int]]] = {
    None: (64, 64),
    CallerKind.USER: (1024, 256),
    CallerKind.POLICY: (64, 64),
    CallerKind.RUN: (64, 64),
    CallerKind.TICKET: (256, 256),
    CallerKind.NODE: (4096, 1024),
}
"""Maximum number of calls with one token at the same time, without and with a stream, by kind; no limit for other kinds.

All agents of a cluster may share one node token. Tickets for one method share the limit, and so do all calls of open methods (None).
"""

_REFUSED: Final = (
    "this call needs a valid token (metadata 'authorization: Bearer TOKEN'): "
    "it has none, or one that is unknown or has expired"
)
"""One text for absent, unknown and expired tokens, so that it does not help to guess them."""


class Authenticator(Protocol):
    """Finds the caller to whom a token belongs."""

    def authenticate(self, token: str) -> Principal | None:
        """Return the principal of a token; None: the token is not accepted."""


class AccessControl:
    """Decides which calls a server accepts.

    Args:
        authenticator: Finds the caller to whom a token belongs.
        permissions: The kinds of callers that may call a method, by full name of the method; others are denied.
    """

    def __init__(
        self, authenticator: Authenticator, permissions: Mapping[str, frozenset[CallerKind]] = PERMISSIONS
    ) -> None:
        self._authenticator = authenticator
        self._permissions = permissions
        self._calls: dict[tuple[str, str, bool], int] = {}

    def authorize(self, method: str, authorization: Sequence[str], *, exists: bool = True) -> Principal | None:
        """Return the caller of a method; None: the method is open to everyone.

        Args:
            method: Full name, such as "/hopyard.v1.AppStatService/HasBlobs".
            authorization: The values of the header `authorization`.
            exists: Whether the server has the method. If not, every authenticated caller is accepted, and gRPC answers UNIMPLEMENTED.

        Raises:
            Unauthenticated: There is no token, more than one, or one that is not accepted.
            PermissionDenied: This kind of caller may not call the method, or the method is not in the table.
        """
        if method in OPEN:
            return None
        principal = None
        if len(authorization) == 1 and authorization[0].startswith(SCHEME):
            principal = self._authenticator.authenticate(authorization[0][len(SCHEME) :])
        if principal is None:
            raise Unauthenticated(_REFUSED)
        permitted = self._permissions.get(method)
        if permitted is None and not exists:
            return principal
        if permitted is None:
            _log.error("%s was refused: it is not in the table of permissions", method)
            raise PermissionDenied(f"{method}: nobody may call this method")
        if principal.kind not in permitted:
            raise PermissionDenied(
                f"{method}: found a token of the kind {principal.kind}, allowed are {', '.join(sorted(permitted))}"
            )
        if principal.kind is CallerKind.TICKET and method.rpartition("/")[2] != principal.id:
            raise PermissionDenied(f"{method}: the ticket is for the method {principal.id}")
        return principal

    def begin(self, principal: Principal | None, *, streaming: bool) -> None:
        """Count a call that begins; `end` must follow when it has ended.

        Args:
            principal: The caller; None: everyone who calls open methods.
            streaming: Whether the call has a stream.

        Raises:
            Exhausted: The caller has as many calls at the same time as it may have. This one is not counted.
        """
        key = _counted(principal, streaming=streaming)
        calls = self._calls.get(key, 0)
        limits = MOST_CALLS.get(principal.kind if principal is not None else None)
        if limits is not None and calls >= limits[streaming]:
            kind = "streams" if streaming else "calls"
            whose = f"the token of {principal} has" if principal is not None else "callers without a token have"
            raise Exhausted(f"{whose} {limits[streaming]} {kind} at this server, the most allowed; end some of them")
        self._calls[key] = calls + 1

    @property
    def calls(self) -> int:
        """The number of calls that have begun and not ended."""
        return sum(self._calls.values())

    def end(self, principal: Principal | None, *, streaming: bool) -> None:
        """Remove a call that has ended from the count. The arguments are those of its `begin`."""
        key = _counted(principal, streaming=streaming)
        self._calls[key] -= 1
        if not self._calls[key]:
            del self._calls[key]

    @contextmanager
    def admit(self, method: str, authorization: Sequence[str], *, streaming: bool = False) -> Iterator[None]:
        """Authorize a call and make its caller the current principal while the context is open.

        Arguments and errors are those of `authorize` and `begin`.
        """
        principal = self.authorize(method, authorization)
        self.begin(principal, streaming=streaming)
        before = present.set(principal)
        try:
            yield
        finally:
            self.end(principal, streaming=streaming)
            present.reset(before)


def _counted(principal: Principal | None, *, streaming: bool) -> tuple[str, str, bool]:
    """Return the key under which the calls of a caller are counted."""
    return ("", "", streaming) if principal is None else (principal.kind, principal.id, streaming)
