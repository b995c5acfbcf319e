"""An agent for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.script.agent import FakeAgent


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    """It ends with the test, and the scripts with it."""
    fake = FakeAgent(tmp_path)  # type: ignore[abstract]  # nobody saves or loads through it
    try:
        yield fake
    finally:
        fake.stop()
