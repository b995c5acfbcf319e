"""Converts a policy's capabilities (what it supports and requires) between Python objects and protobuf messages."""

from __future__ import annotations

from dataclasses import asdict, fields

from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import PolicyCapabilities
from hopyard.v1 import policy_pb2 as pb


def capabilities_to_proto(capabilities: PolicyCapabilities, note: str = "") -> pb.PolicyReviewed:
    """Return the message with which a policy accepts an experiment, with its capabilities and a text for the user (`note`)."""
    return pb.PolicyReviewed(note=note, **asdict(capabilities))


def capabilities_from_proto(message: pb.PolicyReviewed) -> PolicyCapabilities:
    """Return the capabilities in the message with which a policy accepts an experiment.

    Raises:
        InvalidInput: `ship_every`, the number of units between two snapshots that are sent to the store, is negative.
    """
    found = {one.name: getattr(message, one.name) for one in fields(PolicyCapabilities)}
    if not message.HasField("ship_every"):
        found["ship_every"] = PolicyCapabilities().ship_every
    found["version"] = found["version"] or PolicyCapabilities().version
    if found["ship_every"] < 0:
        raise InvalidInput(f"reviewed.ship_every: found {message.ship_every}, allowed is 0 or more")
    return PolicyCapabilities(**found)
