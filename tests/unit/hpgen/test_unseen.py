"""Tests that each proposed configuration is recorded, whether it was drawn or listed."""

from __future__ import annotations

import pytest

from hopyard.space import Configuration, Space
from hopyard_hpgen.generators.deduplication import UnproposedConfigurations

pytestmark = pytest.mark.quick

_THREE = Space.from_dict({"x": {"choice": [1, 2, 3]}})


def test_what_comes_from_the_rest_is_not_new_to_anybody_else() -> None:
    unseen = UnproposedConfigurations(_THREE, seed=1)
    unseen.add({"x": 1})
    # Each draw is a known configuration, so the remaining ones are listed.
    found = unseen.first(1, _known)
    assert found in ({"x": 2}, {"x": 3})
    assert not unseen.add(found)


def test_what_others_propose_meanwhile_leaves_the_rest() -> None:
    unseen = UnproposedConfigurations(_THREE, seed=1)
    unseen.add({"x": 1})
    found = unseen.first(1, _known)
    last = {"x": 3} if found == {"x": 2} else {"x": 2}
    assert unseen.add({**last})
    assert unseen.first(2, _known) is None


def _known(attempt: int) -> Configuration:
    return {"x": 1}
