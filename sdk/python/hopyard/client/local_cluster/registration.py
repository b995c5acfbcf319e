"""Waits for the registration of a node agent with the scheduler."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from hopyard._net.rpc import DEFAULT_TIMEOUT_SECONDS
from hopyard.client.wire.connection import Connection
from hopyard.errors import Unavailable
from hopyard.v1 import resource_manager_pb2

REGISTRATION_SECONDS: Final = 10.0
"""Seconds that an agent normally needs at most to register with the scheduler after it serves requests."""

_POLL_SECONDS: Final = 0.02
_MOST_NODES: Final = 1000


async def wait_for_node(scheduler: str, node: str) -> None:
    """Wait until the agent of a node has registered with the scheduler, so that the node is no longer listed as lost.

    Args:
        scheduler: Address of the scheduler. While it is not reachable, the wait continues.
        node: Id of the node.

    Raises:
        HopyardError: The scheduler refused to list its nodes.
    """
    request = resource_manager_pb2.ListNodesRequest(page_size=_MOST_NODES)
    connection = Connection(scheduler, timeout=DEFAULT_TIMEOUT_SECONDS, patience=0.0)
    try:
        while True:
            with suppress(Unavailable):
                answer = await connection.resources.ListNodes(request)
                if any(one.id == node and one.state != resource_manager_pb2.NODE_STATE_LOST for one in answer.nodes):
                    return
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        await connection.close()
