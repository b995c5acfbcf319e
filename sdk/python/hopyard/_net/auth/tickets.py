"""Tickets: permissions to call one method of one node for one object, for a short time.

Users' tokens are never sent to nodes, and agents' tokens never to other nodes. A caller requests a ticket from the scheduler
(`ResourceManagerService.IssueTicket`), and sends it to the node as its token. The scheduler derives a key for each node from its own
key, and sends it to the node in the welcome of the session, so that a ticket for one node is worthless at another one.

The text of a ticket is `hop_ticket_PAYLOAD.SIGNATURE`: a JSON object, and its HMAC-SHA256 with the key of the node, both in URL-safe
base64.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Final

from hopyard._net.auth.principal import CallerKind, Principal, current_principal
from hopyard.errors import PermissionDenied, Unavailable

TICKET_SECONDS: Final = 300.0
"""Seconds for which a new ticket is valid. Only the start of a call is checked: a stream may take longer."""

_PREFIX: Final = "hop_ticket_"
_MOST_CHARACTERS: Final = 4096


def node_key(key: bytes, node: str) -> bytes:
    """Return the key of a node for tickets, 32 bytes.

    Args:
        key: The key of the scheduler.
        node: Name of the node.
    """
    return hmac.digest(key, f"hopyard ticket {node}".encode(), hashlib.sha256)


def issue_ticket(key: bytes, method: str, scope: str, now: float) -> str:
    """Return a ticket that is valid for `TICKET_SECONDS`.

    Args:
        key: The key of the node.
        method: The method of NodeAgentService that it permits, such as "StreamLogs".
        scope: The object for which it permits the method, as `require_scope` checks it.
        now: The present time in seconds since the Unix epoch.
    """
    fields = {"method": method, "object": scope, "expires": now + TICKET_SECONDS}
    payload = _encoded(json.dumps(fields, separators=(",", ":")).encode())
    return f"{_PREFIX}{payload}.{_encoded(_signature(key, payload))}"


def require_scope(scope: str) -> None:
    """Raise an error unless the ticket of the present call permits its method for an object.

    Args:
        scope: The object: the SHA-256 of a snapshot; EXPERIMENT/JOB for logs and gangs; empty for the status of the node.

    Raises:
        PermissionDenied: The ticket is for another object.
    """
    if not hmac.compare_digest(current_principal().scope.encode(), scope.encode()):
        raise PermissionDenied("the ticket is for another object; request a ticket for this one from the scheduler")


class TicketAuthenticator:
    """Accepts the tickets that were signed with the key of this node. Implements `Authenticator`.

    Args:
        clock: Returns the present time in seconds since the Unix epoch.

    Attributes:
        key: The key of the node. Empty: it is not known yet.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.key = b""

    def authenticate(self, token: str) -> Principal | None:
        """Return the principal of a ticket; its id is the method that is permitted. None: the ticket is not valid, or has expired.

        Raises:
            Unavailable: There is no key yet: the agent has had no session with its scheduler.
        """
        if not self.key:
            raise Unavailable("this node agent has had no session with its scheduler yet; try again")
        if not token.startswith(_PREFIX) or len(token) > _MOST_CHARACTERS or not token.isascii():
            return None
        payload, _, signature = token.removeprefix(_PREFIX).partition(".")
        if not hmac.compare_digest(_encoded(_signature(self.key, payload)), signature):
            return None
        fields = json.loads(base64.urlsafe_b64decode(payload))  # Signed, so it is what `issue_ticket` wrote.
        if fields["expires"] <= self._clock():
            return None
        return Principal(CallerKind.TICKET, fields["method"], fields["object"])


def _signature(key: bytes, payload: str) -> bytes:
    return hmac.digest(key, payload.encode(), hashlib.sha256)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()
