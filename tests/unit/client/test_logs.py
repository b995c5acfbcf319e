"""Tests of the error for logs that cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from hopyard.client.transfer.logs import LogReader
from hopyard.client.types import Job, JobState, Node, NodeState
from hopyard.errors import NotFound

pytestmark = pytest.mark.quick


async def test_a_log_on_a_lost_node_needs_its_agent() -> None:
    async def nodes() -> list[Node]:
        return [Node(id="vm", address="127.0.0.1:1", state=NodeState.LOST)]

    async def present() -> Job:
        return Job("e1", "7", JobState.COMPLETED)

    connection: Any = None  # A lost node is not asked.
    with pytest.raises(NotFound, match=r"not reachable: vm; start its agent again$"):
        async for _ in LogReader(connection, "e1", "7", nodes, present).written():
            pass
