"""A fixture with a new rig for each test of replays."""

from __future__ import annotations

import pytest

from tests.unit.core.rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig(capacity=2)
