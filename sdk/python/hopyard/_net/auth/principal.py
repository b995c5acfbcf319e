"""The principal of a call: the kind of caller that its token belongs to, and the token's id."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hopyard.errors import PermissionDenied


class CallerKind(StrEnum):
    """The kinds of callers. Each kind has tokens with a prefix that names it."""

    USER = "user"
    """The owner of the cluster, with any client."""
    NODE = "node"
    """A node agent."""
    SERVICE = "service"
    """The scheduler, when it calls the other services."""
    POLICY = "policy"
    """A policy process that the scheduler started for one experiment."""
    RUN = "run"
    """A training process."""
    TICKET = "ticket"
    """A caller of a node, whom the scheduler has permitted one method for one object."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller of a method.

    Attributes:
        kind: The kind of the caller.
        id: Id of the token, which is not secret: it may be logged. For a ticket, the method that it permits.
        scope: What a token of the kinds policy and ticket is restricted to: the name of the policy, or the object of the ticket. Empty
            for other kinds.
    """

    kind: CallerKind
    id: str
    scope: str = ""

    def __str__(self) -> str:
        """Return the kind and the id, such as "user 3f9a1c02"."""
        return f"{self.kind} {self.id}"


present: Final[ContextVar[Principal | None]] = ContextVar("principal", default=None)
"""The principal of the call that the present task handles; None: there is none. `AccessControl` sets it."""


def current_principal() -> Principal:
    """Return the principal of the call that the present task handles.

    Raises:
        PermissionDenied: The task handles no authenticated call.
    """
    principal = present.get()
    if principal is None:
        raise PermissionDenied("this is permitted only in an authenticated call")
    return principal
