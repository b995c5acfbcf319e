"""Tests of the capabilities of a policy: read from its class, and sent over the wire."""

from __future__ import annotations

from dataclasses import fields

import pytest

from hopyard._runtime.policy_process.capabilities import capabilities_from_proto, capabilities_to_proto
from hopyard.errors import InvalidInput
from hopyard.policy import ApplicationStat, Cluster, Policy, PolicyCapabilities, RequestMade, capabilities_of
from hopyard.v1 import policy_pb2 as pb

pytestmark = pytest.mark.quick


class Plain(Policy):
    def allocate_jobs(self, cluster: Cluster) -> None:
        pass


class Listens(Plain):
    forks = True
    generator = "grid"
    ship_every = 0

    def application_stat(self, cluster: Cluster, stat: ApplicationStat) -> None:
        pass

    def on_request(self, cluster: Cluster, request: RequestMade) -> None:
        pass


def test_a_policy_without_attributes_has_the_defaults() -> None:
    assert capabilities_of(Plain()) == PolicyCapabilities()


def test_attributes_and_overridden_methods_are_read() -> None:
    found = capabilities_of(Listens())
    assert found == PolicyCapabilities(forks=True, statistics=True, requests=True, generator="grid", ship_every=0)


@pytest.mark.parametrize("field", [one.name for one in fields(PolicyCapabilities)])
def test_each_field_comes_back_over_the_wire(field: str) -> None:
    given = PolicyCapabilities(**{field: {"generator": "grid", "ship_every": 0, "version": "2"}.get(field, True)})  # type: ignore[arg-type]
    message = capabilities_to_proto(given, "a note")
    assert capabilities_from_proto(pb.PolicyReviewed.FromString(message.SerializeToString())) == given
    assert message.note == "a note"


def test_a_process_that_does_not_say_ships_every_unit() -> None:
    assert capabilities_from_proto(pb.PolicyReviewed()).ship_every == 1
    with pytest.raises(InvalidInput, match=r"reviewed\.ship_every: found -1, allowed is 0 or more"):
        capabilities_from_proto(pb.PolicyReviewed(ship_every=-1))
