"""Issues tickets, with which clients and agents call methods of node agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hopyard._net.auth import CallerKind, SecretsFolder
from hopyard._net.auth.tickets import issue_ticket, node_key
from hopyard.errors import InvalidInput, NotFound, PermissionDenied
from hopyard_scheduler.agents.sessions import Sessions

METHODS: Final = {
    CallerKind.USER: frozenset({"GetStatus", "StreamLogs", "FetchSnapshot"}),
    CallerKind.NODE: frozenset({"FetchSnapshot", "JoinGang"}),
}
"""The methods of NodeAgentService for which each kind of caller gets tickets."""

MOST_SCOPE: Final = 1000
"""Maximum number of characters in the object of a ticket."""


class TicketIssuer:
    """Issues tickets for the nodes that are connected.

    Args:
        sessions: The register of agent sessions.
        secrets: Returns the folder that contains the key of the scheduler; None: the scheduler has not started.
        clock: Returns seconds since the Unix epoch.
    """

    def __init__(
        self, sessions: Sessions, secrets: Callable[[], SecretsFolder | None], clock: Callable[[], float]
    ) -> None:
        self._sessions = sessions
        self._secrets = secrets
        self._clock = clock
        self._key = b""

    def load_key(self) -> None:
        """Read the key of the scheduler, or create it. Call this before the other methods.

        Raises:
            InvalidInput: Its file is not private or damaged.
            OSError: It cannot be written.
        """
        folder = self._secrets()
        if folder is None:
            raise AssertionError("the folder of secrets is made before")
        self._key = folder.ticket_key()

    def node_key(self, node: str) -> bytes:
        """Return the key with which the node `node` verifies tickets."""
        return node_key(self._key, node)

    def issue(self, kind: CallerKind, address: str, method: str, scope: str) -> str:
        """Return a ticket.

        Args:
            kind: Kind of the caller who requests it.
            address: Address of the node's agent.
            method: Name of the method of NodeAgentService.
            scope: What the call is about; see `IssueTicketRequest.object`.

        Raises:
            InvalidInput: NodeAgentService has no such method, or the object is too long.
            PermissionDenied: This kind of caller may not call the method.
            NotFound: No connected node has the address.
        """
        if method not in frozenset.union(*METHODS.values()):
            known = ", ".join(sorted(frozenset.union(*METHODS.values())))
            raise InvalidInput(f"method: found {method!r:.80}, allowed are {known}")
        if method not in METHODS[kind]:
            raise PermissionDenied(f"method: {method} is not permitted to a caller of the kind {kind}")
        if len(scope) > MOST_SCOPE:
            raise InvalidInput(f"object: found {len(scope)} characters, allowed are {MOST_SCOPE}")
        for session in self._sessions.connected():
            if session.address == address:
                return issue_ticket(self.node_key(session.node), method, scope, self._clock())
        raise NotFound(f"address: found {address!r:.200}, which is not the address of a connected node")
