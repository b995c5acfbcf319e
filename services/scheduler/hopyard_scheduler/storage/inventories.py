"""Requests lists of the snapshots on the disks of nodes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hopyard._common.bounded_json import MAX_COUNT
from hopyard.v1 import resource_manager_pb2

if TYPE_CHECKING:
    from hopyard_scheduler.agents.sessions import Session

_NODE_SECONDS = 10.0


class Inventories:
    """Requests inventories, the lists of the snapshots on the disks of nodes, through the agents' sessions."""

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Future[resource_manager_pb2.SnapshotInventory]] = {}

    def arrived(self, inventory: resource_manager_pb2.SnapshotInventory) -> None:
        """Pass an inventory of a node to the request that waits for it. An inventory that none waits for is ignored."""
        asked = self._asked.get(inventory.ticket)
        if asked is not None and not asked.done():
            asked.set_result(inventory)

    async def ask(
        self, session: Session, *, older_than: float = 0.0, delete_partials: bool = False, hashes: Sequence[str] = ()
    ) -> resource_manager_pb2.SnapshotInventory | None:
        """Return the inventory of a node; None: it has not answered within `_NODE_SECONDS` seconds.

        Args:
            session: The session of its agent.
            older_than: Minimum time in seconds since a file was last written or used.
            delete_partials: Whether the agent deletes unfinished files of that age.
            hashes: List only these snapshots, whatever their age and use. Empty: all that are not in use.
        """
        ticket = uuid.uuid4().hex
        answer: asyncio.Future[resource_manager_pb2.SnapshotInventory] = asyncio.get_running_loop().create_future()
        self._asked[ticket] = answer
        wanted = resource_manager_pb2.ListNodeSnapshots(
            ticket=ticket, older_than_seconds=older_than, delete_partials=delete_partials, sha256=hashes
        )
        session.send(resource_manager_pb2.AgentSessionResponse(list_snapshots=wanted))
        try:
            async with asyncio.timeout(_NODE_SECONDS):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._asked[ticket]


def out_of_range(inventory: resource_manager_pb2.SnapshotInventory) -> int | None:
    """Return a number of an inventory that is negative or too large, or the sum of its sizes if it exceeds int64; else None."""
    sizes = [one.size_bytes for one in inventory.files]
    numbers = (inventory.partials, inventory.partial_bytes, *sizes)
    found = next((one for one in numbers if not 0 <= one <= MAX_COUNT), None)
    return sum(sizes) if found is None and sum(sizes) >= 2**63 else found
