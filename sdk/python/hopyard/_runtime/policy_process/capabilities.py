"""Conversion of a policy's capabilities between Python and the wire."""

from __future__ import annotations

from dataclasses import asdict, fields

from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import PolicyCapabilities
from hopyard.v1 import policy_pb2 as pb


def capabilities_to_proto(capabilities: PolicyCapabilities, note: str = "") -> pb.PolicyReviewed:
    """The answer of a policy that can serve an experiment; `note` is for people."""
    return pb.PolicyReviewed(note=note, **asdict(capabilities))


def capabilities_from_proto(message: pb.PolicyReviewed) -> PolicyCapabilities:
    """The capabilities in an answer without error.

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
