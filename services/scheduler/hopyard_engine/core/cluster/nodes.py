"""Nodes as the cluster state sees them: whether their agents are connected, and whether they get new runs."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ClusterNodeState(enum.Enum):
    """The state of a node, which follows from its session, its drain and the announcement of its agent.

    UP: it gets runs. DRAINING: a person drained it, and it still has runs, or snapshots that only it has. DRAINED: a person drained it,
    and nothing on it is needed any more. LEAVING: its agent is stopping. LOST: its agent is not connected.
    """

    UP = "UP"
    DRAINING = "DRAINING"
    DRAINED = "DRAINED"
    LEAVING = "LEAVING"
    LOST = "LOST"


@dataclass(slots=True)
class Drain:
    """The drain of a node, from the request of a person until the next one ends it. Restarts of the agent do not end it.

    Attributes:
        since: Time of the request, in seconds since the Unix epoch.
        deadline: Time at which the runs that are left are ended; None: never.
        expired: Whether the deadline has passed.
    """

    since: float
    deadline: float | None = None
    expired: bool = False


@dataclass(slots=True)
class ClusterNode:
    """Represents a node. Times are in seconds since the Unix epoch.

    Attributes:
        id: Name of the node.
        incarnation: Incarnation of the agent; empty: the agent has not opened a session yet.
        up: Whether the lease of the node is valid.
        joined_at: Time at which the present incarnation opened its first session; None: unknown.
        lost_at: Time at which the lease expired; None: it has not.
        orphans: Number of snapshots of which a lost node had the only copy, by the id of their experiment.
        drain: The drain of the node; None: it is not drained.
        leaving: Incarnation of the agent that announced that it is stopping; None: it has not. Another incarnation ends this.
        leaving_at: Time of the announcement; meaningless if `leaving` is None.
    """

    id: str
    incarnation: str = ""
    up: bool = False
    joined_at: float | None = None
    lost_at: float | None = None
    orphans: tuple[tuple[str, int], ...] = ()
    drain: Drain | None = None
    leaving: str | None = None
    leaving_at: float = 0.0

    @property
    def unschedulable(self) -> bool:
        """Whether the node gets no new runs, because it is drained or its agent is stopping."""
        return self.drain is not None or self.leaving is not None

    def record_incarnation(self, incarnation: str, at: float) -> None:
        """Record that an agent with this incarnation opened a session at the time `at`, as announced or journalled."""
        if self.leaving not in (None, incarnation):
            self.leaving = None
        if self.joined_at is None or self.lost_at is not None or self.incarnation not in ("", incarnation):
            self.joined_at = at
        self.incarnation, self.lost_at, self.orphans = incarnation, None, ()
