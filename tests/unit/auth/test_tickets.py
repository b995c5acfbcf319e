"""Tests of tickets for node agents."""

from __future__ import annotations

import base64
import json

import pytest

from hopyard._net.auth import AccessControl, CallerKind, Principal
from hopyard._net.auth.tickets import TICKET_SECONDS, TicketAuthenticator, issue_ticket, node_key, require_scope
from hopyard.errors import PermissionDenied, Unauthenticated, Unavailable

pytestmark = pytest.mark.quick

KEY = b"k" * 32
SHA256 = "a" * 64
METHOD = "/hopyard.v1.NodeAgentService/FetchSnapshot"


class Node:
    """A node that checks tickets at a time which the test sets."""

    def __init__(self, name: str = "n1") -> None:
        self.now = 1000.0
        self.tickets = TicketAuthenticator(lambda: self.now)
        self.tickets.key = node_key(KEY, name)
        self.control = AccessControl(self.tickets)

    def call(self, ticket: str, method: str = METHOD, scope: str = SHA256) -> Principal | None:
        """Make a call for an object, and return its caller."""
        authorization = [f"Bearer {ticket}"]
        with self.control.admit(method, authorization):
            require_scope(scope)
        return self.control.authorize(method, authorization)


def ticket(node: str = "n1", method: str = "FetchSnapshot", scope: str = SHA256, at: float = 1000.0) -> str:
    return issue_ticket(node_key(KEY, node), method, scope, at)


def test_a_ticket_permits_one_method_for_one_object() -> None:
    assert Node().call(ticket()) == Principal(CallerKind.TICKET, "FetchSnapshot", SHA256)
    with pytest.raises(PermissionDenied, match="the ticket is for the method FetchSnapshot"):
        Node().call(ticket(), "/hopyard.v1.NodeAgentService/StreamLogs")
    with pytest.raises(PermissionDenied, match="for another object"):
        Node().call(ticket(), scope="b" * 64)
    with pytest.raises(PermissionDenied, match="allowed are user"):
        Node().call(ticket(), "/hopyard.v1.ExperimentService/CreateExperiment")


def test_a_ticket_of_another_node_or_key_is_not_accepted() -> None:
    with pytest.raises(Unauthenticated):
        Node("n2").call(ticket())
    with pytest.raises(Unauthenticated):
        Node().call(issue_ticket(node_key(b"x" * 32, "n1"), "FetchSnapshot", SHA256, 1000.0))
    node = Node()
    node.tickets.key = b""  # The agent has had no session.
    with pytest.raises(Unavailable, match="no session with its scheduler yet"):
        node.call(issue_ticket(b"", "FetchSnapshot", SHA256, 1000.0))


def test_a_ticket_is_valid_for_five_minutes() -> None:
    node, given = Node(), ticket()
    node.now += TICKET_SECONDS - 0.1
    node.call(given)
    node.now += 0.2
    with pytest.raises(Unauthenticated):
        node.call(given)


def test_a_changed_ticket_is_not_accepted() -> None:
    given = ticket()
    payload, signature = given.removeprefix("hop_ticket_").split(".")
    for index in range(len("hop_ticket_"), len(given) - 1):  # The last character of base64 has unused bits.
        changed = given[:index] + ("A" if given[index] != "A" else "B") + given[index + 1 :]
        assert Node().tickets.authenticate(changed) is None, index
    forged = base64.urlsafe_b64encode(json.dumps({"method": "JoinGang", "object": "", "expires": 9e9}).encode())
    for text in (
        f"hop_ticket_{forged.decode()}.{signature}",
        f"hop_ticket_{payload}",
        f"hop_ticket_{payload}.",
        "hop_ticket_.",
        "ä",
    ):
        assert Node().tickets.authenticate(text) is None
