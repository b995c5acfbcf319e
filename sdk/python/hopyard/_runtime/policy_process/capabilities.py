"""Converts the capabilities of a policy between Python and the wire."""

from __future__ import annotations

from dataclasses import asdict, fields

from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import PolicyCapabilities
from hopyard.v1 import policy_pb2 as pb


def capabilities_to_proto(capabilities: PolicyCapabilities, note: str = "") -> pb.PolicyReviewed:
    """Returns the response of a policy that accepts an experiment; `note` is a text for the user."""
    return pb.PolicyReviewed(note=note, **asdict(capabilities))


def capabilities_from_proto(message: pb.PolicyReviewed) -> PolicyCapabilities:
    """Returns the capabilities from a response without an error.

    Raises:
        InvalidInput: `ship_every` is negative.
    """
    found = {one.name: getattr(message, one.name) for one in fields(PolicyCapabilities)}
    if not message.HasField("ship_every"):
        found["ship_every"] = PolicyCapabilities().ship_every
    found["version"] = found["version"] or PolicyCapabilities().version
    if found["ship_every"] < 0:
        raise InvalidInput(f"reviewed.ship_every: found {message.ship_every}, allowed is 0 or more")
    return PolicyCapabilities(**found)
