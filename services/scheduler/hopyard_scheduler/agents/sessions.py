"""Agent sessions: who is connected, what waits to be sent, who has been silent for too long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from hopyard.v1 import resource_manager_pb2

_LOG = logging.getLogger(__name__)

MAX_WAITING = 20_000
"""Messages that may wait for one agent. One that reads slower is cut off; it comes back and gets what it has not taken over."""

MAX_BUNDLE_BYTES = 1 << 20
"""When those that are sent together have so many bytes, no further one joins them."""


class Session:
    """One open stream of an agent.

    Args:
        node: Its name.
        incarnation: Of its agent.
        address: Where its NodeAgentService answers.
        home: Names its data folder; empty: not known.
        bundles: Whether what waits may be sent together.
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
        """Queues the welcome, which comes before anything else."""
        self._welcomed = True
        self.send(message)

    def send(self, message: resource_manager_pb2.AgentSessionResponse) -> None:
        """Queues a message. A session that is full, closed or not welcomed yet drops it: what matters is sent again later."""
        if not self.ready:
            return
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            _LOG.warning("agent %s reads too slowly; its session is closed", self.node)
            self.close()

    @property
    def ready(self) -> bool:
        """Whether what is sent now goes out."""
        return self._welcomed and not self._closed

    @property
    def closed(self) -> bool:
        """Whether it is over."""
        return self._closed

    def close(self) -> None:
        """Ends the stream after what is queued."""
        if not self._closed:
            self._closed = True
            if self._queue.full():
                self._queue.get_nowait()
            self._queue.put_nowait(None)

    async def next(self) -> resource_manager_pb2.AgentSessionResponse | None:
        """The next message to send, with others behind it that wait too; None when the session is over."""
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
    """The open session of each node, and the lease of each node that is up.

    Args:
        lease_seconds: A node silent for longer is lost.
        clock: Monotonic seconds.
    """

    def __init__(self, lease_seconds: float, clock: Callable[[], float]) -> None:
        self.lease_seconds = lease_seconds
        self.left: list[Callable[[Session], None]] = []
        """Told of each session that is over."""
        self._clock = clock
        self._open: dict[str, Session] = {}
        self._seen: dict[str, float] = {}
        self._leased: set[str] = set()
        self._addresses: dict[str, str] = {}

    def open(self, session: Session) -> None:
        """A node opened a session; an older one of the same node ends."""
        older = self._open.get(session.node)
        if older is not None:
            older.close()
        self._open[session.node] = session
        self._addresses[session.node] = session.address
        self.seen(session.node)

    def occupied(self, node: str, incarnation: str, home: str = "") -> bool:
        """Whether another agent of that name is alive: its session is open and was heard within a third of its lease.

        One of the same `home` is not: only one agent at a time can use that, so it has died and this is its next start.
        """
        session = self._open.get(node)
        if session is None or session.closed or session.incarnation == incarnation:
            return False
        if home and session.home == home:
            return False
        return self.silent_seconds(node) < self.lease_seconds / 3

    def gone(self, session: Session) -> None:
        """A session's stream is over; the lease runs on."""
        session.close()
        if self._open.get(session.node) is session:
            del self._open[session.node]
        for told in self.left:
            told(session)

    def of(self, node: str) -> Session | None:
        """The node's open session."""
        return self._open.get(node)

    def connected(self) -> list[Session]:
        """The open sessions, by node."""
        return [session for _, session in sorted(self._open.items()) if not session.closed]

    def seen(self, node: str) -> None:
        """The node's lease begins anew."""
        self._seen[node] = self._clock()
        self._leased.add(node)

    def alive(self, session: Session) -> None:
        """A sign of life on a session; one on a session that is over counts for nothing."""
        if self._open.get(session.node) is session and not session.closed:
            self.seen(session.node)

    def forget(self, node: str) -> None:
        """The node is lost: its lease is over, and its session too, so that it says hello again if it lives."""
        self._leased.discard(node)
        session = self._open.get(node)
        if session is not None:
            session.close()

    def silent_seconds(self, node: str) -> float:
        """Seconds since the node's last sign of life."""
        return self._clock() - self._seen[node] if node in self._seen else float("inf")

    def expired(self) -> list[str]:
        """Nodes whose lease has run out."""
        now = self._clock()
        return sorted(node for node in self._leased if now - self._seen[node] > self.lease_seconds)

    def renew_all(self) -> None:
        """Gives every node a full lease: after a recovery, or after this process itself was stalled."""
        for node in self._leased:
            self._seen[node] = self._clock()

    @property
    def addresses(self) -> dict[str, str]:
        """NodeAgentService addresses by node."""
        return self._addresses

    def close(self) -> None:
        """Ends all sessions."""
        for session in list(self._open.values()):
            session.close()
