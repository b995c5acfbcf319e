"""Tokens and tickets for tests: channels as each kind of caller, servers that accept everybody, and tickets without a scheduler."""

from __future__ import annotations

from functools import partial
from typing import Any

from hopyard._net.auth import CallerKind, Principal, find_token
from hopyard._net.auth.permissions import PERMISSIONS
from hopyard._net.rpc import Channel, channel
from hopyard._net.rpc.channel import Metadata, token_metadata


def channel_as(kind: str, address: str, **options: Any) -> Channel:
    """Open a channel to a service whose tokens are next to its socket, as a caller of a kind: user, node or service."""
    return channel(address, token=partial(find_token, CallerKind(kind), address), **options)


class AcceptEveryone:
    """An authenticator that accepts every token as a caller of one kind.

    Args:
        kind: The kind of the caller.
        name: Id of its principal: for tickets, the method that they permit.
        scope: Scope of its principal.
    """

    def __init__(self, kind: str = "user", name: str = "test", scope: str = "") -> None:
        self._principal = Principal(CallerKind(kind), name, scope)

    def authenticate(self, token: str) -> Principal | None:
        return self._principal


class AnyTicket:
    """A source of tickets without a signature, for agents that accept every token."""

    async def ticket(self, address: str, method: str, scope: str) -> Metadata:
        return token_metadata("any")


def permitted(service: str, *methods: str) -> dict[str, frozenset[CallerKind]]:
    """Return the table of permissions, in which users may also call these methods of a service that exists only in tests."""
    return {**PERMISSIONS, **{f"/{service}/{method}": frozenset({CallerKind.USER}) for method in methods}}
