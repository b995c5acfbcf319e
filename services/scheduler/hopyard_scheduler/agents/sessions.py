"""Agent sessions: their queues of outgoing messages, and the leases of nodes."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hopyard.v1 import resource_manager_pb2
from hopyard_scheduler.agents.gpus import NodeGpus

_LOG = logging.getLogger(__name__)

MAX_WAITING = 20_000
"""Maximum number of queued messages per session. When a slow agent exceeds it, its session is closed. The agent
reconnects and receives the unacknowledged messages again.
"""

MAX_BUNDLE_BYTES = 1 << 20
"""Size in bytes from which no further message is added to a bundle of messages."""


class Session:
    """The session of one connected agent, with its queue of outgoing messages.

    Args:
        node: The id of the node.
        incarnation: An id that the agent creates each time it starts.
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
        """Queue the welcome message: the answer to the agent's first request. It must be called once, before `send`."""
        self._welcomed = True
        self.send(message)

    def send(self, message: resource_manager_pb2.AgentSessionResponse) -> None:
        """Queue a message to the agent.

        The message is dropped if the session is closed or has no welcome message yet. If the queue is full, the message
        is dropped and the session is closed. Commands to runs that the agent has not acknowledged are sent again in its
        next session.
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
        """True from the welcome message to the end of the session: `send` accepts messages."""
        return self._welcomed and not self._closed

    @property
    def closed(self) -> bool:
        """True if `close` was called: no further messages are accepted."""
        return self._closed

    def close(self) -> None:
        """End the session after the queued messages are sent. If the queue is full, its oldest message is dropped."""
        if not self._closed:
            self._closed = True
            if self._queue.full():
                self._queue.get_nowait()
            self._queue.put_nowait(None)

    async def next(self) -> resource_manager_pb2.AgentSessionResponse | None:
        """Wait for the next message to send and return it; None: the session has ended.

        If the agent accepts several messages in one response, the message contains further queued messages, up to about
        `MAX_BUNDLE_BYTES`.
        """
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
    """The register of the open session and the lease of each node. It determines which nodes are lost.

    Args:
        lease_seconds: Seconds without a message after which a lease expires.
        clock: Returns monotonic seconds.

    Attributes:
        gpus: The GPUs of the nodes.
    """

    def __init__(self, lease_seconds: float, clock: Callable[[], float]) -> None:
        self.lease_seconds = lease_seconds
        self.left: list[Callable[[Session], None]] = []
        """Callbacks that receive each session that ends."""
        self.gpus = NodeGpus(clock)
        self._clock = clock
        self._open: dict[str, Session] = {}
        self._seen: dict[str, float] = {}
        self._leased: set[str] = set()
        self._busy: Counter[str] = Counter()
        self._ticked = clock()
        self._addresses: dict[str, str] = {}

    def open(self, session: Session) -> None:
        """Register a session and renew the node's lease. An older session of the same node is closed."""
        older = self._open.get(session.node)
        if older is not None:
            older.close()
        self._open[session.node] = session
        self._addresses[session.node] = session.address
        self.seen(session.node)

    def occupied(self, node: str, incarnation: str, home: str = "") -> bool:
        """Return True if another live agent uses the node's name, so that a new agent must not use it.

        That agent has an open session and sent a message within the last third of a lease. A session with the same
        `home` does not make the name occupied: only one agent at a time can use a data folder, so the new agent is a
        restart of the older.

        Args:
            node: The id of the node that the new agent names.
            incarnation: The incarnation of the new agent. Its own earlier session does not make the name occupied
                either.
            home: Identifies the data folder of the new agent; empty: unknown.
        """
        session = self._open.get(node)
        if session is None or session.closed or session.incarnation == incarnation:
            return False
        if home and session.home == home:
            return False
        return self.silent_seconds(node) < self.lease_seconds / 3

    def gone(self, session: Session) -> None:
        """Remove a session whose stream has ended, and call each function in `left` with it. The lease of the node continues."""
        session.close()
        if self._open.get(session.node) is session:
            del self._open[session.node]
        for told in self.left:
            told(session)

    def of(self, node: str) -> Session | None:
        """Return the registered session of the node with the id `node`; None: it has none."""
        return self._open.get(node)

    def connected(self) -> list[Session]:
        """Return the registered sessions that are not closed, sorted by node."""
        return [session for _, session in sorted(self._open.items()) if not session.closed]

    def seen(self, node: str) -> None:
        """Start the node's lease, or renew it from the present time."""
        self._seen[node] = self._clock()
        self._leased.add(node)

    def alive(self, session: Session) -> None:
        """Renew the lease of the session's node, unless the session has ended or was replaced by a newer one."""
        if self._open.get(session.node) is session and not session.closed:
            self.seen(session.node)

    def forget(self, node: str) -> None:
        """End the lease of a lost node and close its session, so that an agent that is alive must open a new session."""
        self._leased.discard(node)
        session = self._open.get(node)
        if session is not None:
            session.close()

    def drop(self, node: str) -> None:
        """Remove what is known of a node that is not connected: its lease, address and GPUs. Does nothing if it has a session."""
        if node not in self._open:
            self._leased.discard(node)
            self._seen.pop(node, None)
            self._addresses.pop(node, None)
            self.gpus.forget(node)

    @contextmanager
    def reading(self, node: str) -> Iterator[None]:
        """Return a context for the handling of one message of a node, which may wait, for example for the journal.

        No later message of the node is read in the context. So the lease of the node cannot expire there, and it is renewed at the end.

        Args:
            node: The id of the node.
        """
        self._busy[node] += 1
        try:
            yield
        finally:
            self._busy[node] -= 1
            if self._busy[node] <= 0:
                del self._busy[node]
            if node in self._leased:
                self._seen[node] = self._clock()

    def silent_seconds(self, node: str) -> float:
        """Return the seconds since the node's lease was last renewed; infinite if it never had a lease."""
        return self._clock() - self._seen[node] if node in self._seen else float("inf")

    def expired(self) -> list[str]:
        """Return the ids of the nodes whose leases have expired, sorted. Their leases remain until `forget` or a renewal."""
        now = self._clock()
        silent = (node for node in self._leased if now - self._seen[node] > self.lease_seconds)
        return sorted(node for node in silent if node not in self._busy)

    def tick(self, interval: float) -> float:
        """Exclude from all leases the time in which this process was stalled; call it every `interval` seconds, before `expired`.

        A stall is time by which a call is late: this process has read no messages. A lease lasts longer by it. After a stall that is
        longer than an interval and a second, all leases begin again.

        Returns:
            The length of the stall in seconds; 0: there was none.
        """
        now = self._clock()
        stall, self._ticked = max(now - self._ticked - interval, 0.0), now
        for node in self._leased:
            self._seen[node] = now if stall > interval + 1.0 else min(self._seen[node] + stall, now)
        return stall

    @property
    def addresses(self) -> dict[str, str]:
        """The last known address of the NodeAgentService of each node, including disconnected nodes."""
        return self._addresses

    def close(self) -> None:
        """Close all sessions. Leases are not changed."""
        for session in list(self._open.values()):
            session.close()
