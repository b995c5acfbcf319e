"""Operations of clients on nodes: list, drain, undrain and forget."""

from __future__ import annotations

import difflib
import math

from hopyard._common import formatting
from hopyard._net.rpc.reasons import set_reason
from hopyard.errors import Conflict, InvalidInput, NotFound
from hopyard.policy.vocabulary.reasons import Argument, Reason, ReasonCode
from hopyard.v1 import resource_manager_pb2 as pb
from hopyard_engine.core.cluster.nodes import ClusterNode, ClusterNodeState
from hopyard_engine.core.events import NodeDrained, NodeForgotten, NodeUndrained
from hopyard_scheduler.agents.sessions import Sessions
from hopyard_scheduler.agents.slot_reservations import SlotReservations
from hopyard_scheduler.runtime.runtime import Runtime

MAX_DEADLINE_SECONDS = 366 * 86400.0
"""Maximum time in seconds from a drain to its deadline."""

_NAMED = 10
"""Maximum number of nodes that an error message lists."""


class Nodes:
    """Lists, drains, undrains and forgets nodes on behalf of clients.

    Args:
        runtime: Provides the state of the cluster and handles the resulting events.
        sessions: Provides the addresses and GPUs of the agents and the time of their last messages.
        slots: Describes the slots of the nodes.
    """

    def __init__(self, runtime: Runtime, sessions: Sessions, slots: SlotReservations) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._slots = slots

    def show_all(self) -> list[pb.Node]:
        """Return all nodes of the cluster with their slots, sorted by id."""
        return [self._show(name) for name in sorted(self._runtime.core.cluster.nodes)]

    async def drain(self, name: str, deadline_seconds: float | None) -> pb.Node:
        """Drain a node until `undrain`: no run starts on it, and its runs are suspended at their next boundary.

        Args:
            name: The id of the node.
            deadline_seconds: Seconds from now after which the runs that are left are ended; None: never, or the present deadline
                if the node is drained.

        Returns:
            The node after the request.

        Raises:
            NotFound: The node does not exist.
            InvalidInput: The deadline is negative, not finite or longer than `MAX_DEADLINE_SECONDS`.
        """
        self._node(name)
        if deadline_seconds is not None and not 0 <= deadline_seconds <= MAX_DEADLINE_SECONDS:
            most = formatting.duration(MAX_DEADLINE_SECONDS)
            raise InvalidInput(
                f"deadline_seconds: found {deadline_seconds:g}; allowed: 0 to {MAX_DEADLINE_SECONDS:g} ({most})"
            )
        now = self._runtime.clock()
        deadline = now + deadline_seconds if deadline_seconds is not None else None
        await self._runtime.apply(NodeDrained(now, name, deadline))
        return self._show(name)

    async def undrain(self, name: str) -> pb.Node:
        """End the drain of a node, and return the node. No effect on a node that is not drained.

        Raises:
            NotFound: The node does not exist.
        """
        self._node(name)
        await self._runtime.apply(NodeUndrained(self._runtime.clock(), name))
        return self._show(name)

    async def forget(self, name: str, *, force: bool) -> None:
        """Remove a lost node from the list of nodes.

        Args:
            name: The id of the node.
            force: Whether to remove it also if it had the only copies of snapshots.

        Raises:
            NotFound: The node does not exist.
            Conflict: The node is connected, or it had the only copies of snapshots and `force` is False.
        """
        node = self._node(name)
        if node.orphans and not force:
            count = sum(number for _, number in node.orphans)
            raise Conflict(
                f"node {name} had the only copies of {formatting.count(count, 'snapshot')} of {_experiments(node)}; their jobs "
                "train again from earlier snapshots. Use --force to forget the node"
            )
        await self._runtime.apply(NodeForgotten(self._runtime.clock(), name))
        if name in self._runtime.core.cluster.nodes:
            raise Conflict(
                f"node {name} is connected: stop its agent first, or use hopyard drain {name} to keep it connected without runs"
            )
        self._sessions.drop(name)

    def _node(self, name: str) -> ClusterNode:
        known = self._runtime.core.cluster.nodes
        if name in known:
            return known[name]
        near = difflib.get_close_matches(name, known, n=1)
        listed = [*sorted(known)[:_NAMED], *([f"{len(known) - _NAMED} more"] if len(known) > _NAMED else [])]
        there = f"did you mean {near[0]}?" if near else f"there are: {', '.join(listed) or 'none'}"
        raise NotFound(f"there is no node {name!r}; {there}")

    def _show(self, name: str) -> pb.Node:
        node = self._node(name)
        state, now = self._runtime.core.node_state(name), self._runtime.clock()
        message = pb.Node(
            id=name,
            address=self._sessions.addresses.get(name, ""),
            state=pb.NodeState.Value(f"NODE_STATE_{state.value}"),
            slots=self._slots.of_node(name),
            silent_seconds=min(self._sessions.silent_seconds(name), 1e9),
            incarnation=node.incarnation,
            gpus=self._sessions.gpus.show(name),
        )
        set_reason(message, _reason(node, state, now))
        since = _since(node, state)
        if since is not None:
            message.state_seconds = max(now - since, 0.0)
        if node.drain is not None and node.drain.deadline is not None:
            message.drain_seconds_left = max(node.drain.deadline - now, 0.0)
        return message


def _since(node: ClusterNode, state: ClusterNodeState) -> float | None:
    """Return the time at which a node entered its state, in seconds since the Unix epoch; None: unknown."""
    if state is ClusterNodeState.LOST:
        return node.lost_at
    if state is ClusterNodeState.LEAVING:
        return node.leaving_at
    return node.drain.since if node.drain is not None else node.joined_at


def _reason(node: ClusterNode, state: ClusterNodeState, now: float) -> Reason | None:
    """Return why a node is in its state at the time `now`; None: it is UP."""
    match state:
        case ClusterNodeState.UP:
            return None
        case ClusterNodeState.DRAINING | ClusterNodeState.DRAINED:
            assert node.drain is not None
            deadline = node.drain.deadline if state is ClusterNodeState.DRAINING else None
            left = math.ceil(max(deadline - now, 0.0)) if deadline is not None else None
            return Reason.of(ReasonCode.DRAINED_BY_PERSON, seconds=left)
        case ClusterNodeState.LEAVING:
            return Reason(ReasonCode.AGENT_STOPPING)
        case ClusterNodeState.LOST if node.lost_at is None:
            return Reason(ReasonCode.AGENT_NOT_CONNECTED)
        case ClusterNodeState.LOST:
            code = ReasonCode.AGENT_STOPPED if node.leaving is not None else ReasonCode.AGENT_SILENT
            args: dict[str, Argument] = {}
            if node.orphans:
                args = {"snapshots": sum(count for _, count in node.orphans), "experiments": _experiments(node)}
            return Reason.of(code, **args)


def _experiments(node: ClusterNode) -> str:
    names = [name for name, _ in node.orphans]
    listed = names if len(names) <= _NAMED else [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} more"]
    return f"{', '.join(listed[:-1])} and {listed[-1]}" if len(listed) > 1 else "".join(listed)
