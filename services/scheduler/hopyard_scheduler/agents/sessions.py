"""Agent sessions: open streams, queues of outgoing messages, and leases."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from hopyard.v1 import resource_manager_pb2

_LOG = logging.getLogger(__name__)

MAX_WAITING = 20_000
"""Maximum number of queued messages per session. When a slow agent exceeds it, its session is closed. The agent
reconnects and receives again what it has not acknowledged.
"""

MAX_BUNDLE_BYTES = 1 << 20
"""Size in bytes at which a bundle of messages takes no further message."""


class Session:
    """One open stream of an agent, with its queue of outgoing messages.

    Args:
        node: The id of the node.
        incarnation: The id of this start of the agent.
        address: The address of the agent's NodeAgentService.
        home: Identifies the agent's data folder; empty: unknown.
        bundles: True if the agent accepts several messages in one response.
    """

    def __init__(self, node: str, incarnation: str, address: str, home: str = "", *, bundles: bool = False) -> None:
        self.node = node
        self.incarnation = incarnation
        self.address = address
        self.home = home
        self._bundles = bundles
        self._over = False
        self._queue: asyncio.Queue[resource_manager_pb2.AgentSessionResponse | None] = asyncio.Queue(MAX_WAITING)
        self._closed = False
        self._welcomed = False

    def welcome(self, message: resource_manager_pb2.AgentSessionResponse) -> None:
        """Queues the welcome, which must be the first message of a session."""
        self._welcomed = True
        self.send(message)

    def send(self, message: resource_manager_pb2.AgentSessionResponse) -> None:
        """Queues a message.

        A session that is full, closed or not welcomed yet drops it. The scheduler sends important messages again later.
        """
        if not self.ready:
            return
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            _LOG.warning("agent %s reads too slowly; its session is closed", self.node)
            self.close()

    @property
    def ready(self) -> bool:
        """True between the welcome and the end of the session: messages are sent."""
        return self._welcomed and not self._closed

    @property
    def closed(self) -> bool:
        """True if the session has ended."""
        return self._closed

    def close(self) -> None:
        """Ends the stream after the queued messages. If the queue is full, its oldest message is dropped."""
        if not self._closed:
            self._closed = True
            if self._queue.full():
                self._queue.get_nowait()
            self._queue.put_nowait(None)

    async def next(self) -> resource_manager_pb2.AgentSessionResponse | None:
        """Waits for the next message to send, bundled with further queued messages; None: the session has ended."""
        if self._over:
            return None
        first = await self._queue.get()
        if first is None or first.HasField("welcome") or not self._bundles:
            return first
        size = first.ByteSize()
        while size < MAX_BUNDLE_BYTES and not self._queue.empty():
            further = self._queue.get_nowait()
            if further is None:
                self._over = True
                break
            size += further.ByteSize()
            first.more.append(further)
        return first


class Sessions:
    """The open session and the lease of each node.

    Args:
        lease_seconds: Time without a message after which a lease expires.
        clock: Returns monotonic seconds.
    """

    def __init__(self, lease_seconds: float, clock: Callable[[], float]) -> None:
        self.lease_seconds = lease_seconds
        self.left: list[Callable[[Session], None]] = []
        """Callbacks that receive each session that ends."""
        self._clock = clock
        self._open: dict[str, Session] = {}
        self._seen: dict[str, float] = {}
        self._leased: set[str] = set()
        self._addresses: dict[str, str] = {}

    def open(self, session: Session) -> None:
        """Registers a session and renews the node's lease. An older session of the node is closed."""
        older = self._open.get(session.node)
        if older is not None:
            older.close()
        self._open[session.node] = session
        self._addresses[session.node] = session.address
        self.seen(session.node)

    def occupied(self, node: str, incarnation: str, home: str = "") -> bool:
        """Returns True if another live agent uses the node's name.

        That agent has an open session and sent a message within the last third of a lease. An agent with the same
        `home` does not count: a data folder has one agent at a time, so the older one has died and this is its restart.
        """
        session = self._open.get(node)
        if session is None or session.closed or session.incarnation == incarnation:
            return False
        if home and session.home == home:
            return False
        return self.silent_seconds(node) < self.lease_seconds / 3

    def gone(self, session: Session) -> None:
        """Removes a session whose stream has ended, and calls the callbacks in `left`. The lease continues."""
        session.close()
        if self._open.get(session.node) is session:
            del self._open[session.node]
        for told in self.left:
            told(session)

    def of(self, node: str) -> Session | None:
        """Returns the node's session; None: it has none."""
        return self._open.get(node)

    def connected(self) -> list[Session]:
        """Returns the open sessions, sorted by node."""
        return [session for _, session in sorted(self._open.items()) if not session.closed]

    def seen(self, node: str) -> None:
        """Starts the node's lease, or renews it."""
        self._seen[node] = self._clock()
        self._leased.add(node)

    def alive(self, session: Session) -> None:
        """Renews the lease of a session's node, unless the session has ended or was replaced."""
        if self._open.get(session.node) is session and not session.closed:
            self.seen(session.node)

    def forget(self, node: str) -> None:
        """Ends the lease of a lost node and closes its session, so that a live agent opens a new one."""
        self._leased.discard(node)
        session = self._open.get(node)
        if session is not None:
            session.close()

    def silent_seconds(self, node: str) -> float:
        """Returns the seconds since the node's last message; infinite if there was none."""
        return self._clock() - self._seen[node] if node in self._seen else float("inf")

    def expired(self) -> list[str]:
        """Returns the nodes whose leases have expired, sorted."""
        now = self._clock()
        return sorted(node for node in self._leased if now - self._seen[node] > self.lease_seconds)

    def renew_all(self) -> None:
        """Renews all leases, after a stall of this process."""
        for node in self._leased:
            self._seen[node] = self._clock()

    @property
    def addresses(self) -> dict[str, str]:
        """NodeAgentService addresses by node, including nodes that are disconnected."""
        return self._addresses

    def close(self) -> None:
        """Closes all sessions."""
        for session in list(self._open.values()):
            session.close()
