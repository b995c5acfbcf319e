"""A fixture with a simulated agent for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.script.agent import FakeAgent


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    """A simulated agent, which stops at the end of the test."""
    fake = FakeAgent(tmp_path)  # type: ignore[abstract]  # nobody saves or loads through it
    try:
        yield fake
    finally:
        fake.stop()
