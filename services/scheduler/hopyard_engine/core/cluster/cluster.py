"""The cluster state: nodes, slots, shares, and which stream has been granted which slot.

A *tenant* is a stream that competes for slots; the *holder* of a slot is the tenant that it is granted to. The *incarnation* of a node
identifies the process of its agent: it changes when the agent restarts.

The cluster state is not stored. A restarted scheduler rebuilds it from the streams' journals (the granted slots) and from what agents
announce when they open a session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from hopyard.policy.vocabulary import StreamId
from hopyard_engine.core.cluster.division import ANY, Division, SlotKind, SlotRequest, divide
from hopyard_engine.core.cluster.fair_share import Claim
from hopyard_engine.core.cluster.nodes import ClusterNode, Drain
from hopyard_engine.core.cluster.turns import Turns, length
from hopyard_engine.core.events import (
    ClusterEvent,
    DeletionCompleted,
    DrainExpired,
    NodeDrained,
    NodeEvicted,
    NodeExpired,
    NodeForgotten,
    NodeJoined,
    NodeLeaving,
    NodeUndrained,
    ShareSet,
    SlotGranted,
    SlotRecalled,
    StoreQuotaSet,
    StreamDeleted,
)
from hopyard_engine.core.types import SlotSpec


@dataclass(slots=True)
class ClusterSlot:
    """Represents a slot of the cluster.

    Attributes:
        spec: Id and hardware of the slot.
        node: Name of its node.
        holder: Id of the stream to which it is granted; empty: none.
        recalled: Whether the holder must return it.
    """

    spec: SlotSpec
    node: str
    holder: str = ""
    recalled: bool = False

    @property
    def kind(self) -> SlotKind:
        """The slot's hardware as a `SlotKind` whose `eligible_streams` is empty."""
        return SlotKind(self.spec.cpus, len(self.spec.gpus))


@dataclass(slots=True)
class Tenant:
    """Represents a stream that competes for slots.

    Attributes:
        weight: Weight in the division (> 0).
        cap: Maximum number of slots; None: no limit.
        demand: Number of slots that the stream can use now; None: as many as possible.
        share: Number of slots that it may use, from the last division.
        granted: Ids of the slots that are granted to it.
        gang: Number of slots that it takes at once (>= 1).
        need: Hardware that each of its slots must have.
        nodes: Names of the nodes whose slots it can use; empty: all nodes.
        since: `Stream.share_at` of a recovered stream. Recovered streams join the queue for turns in this order.
        sent_share: The last share that was sent to the stream.
    """

    weight: float
    cap: int | None
    demand: int | None = None
    share: int = 0
    granted: set[str] = field(default_factory=set)
    gang: int = 1
    need: SlotKind = ANY
    nodes: frozenset[str] = frozenset()
    since: float = 0.0
    sent_share: int = field(init=False)

    def __post_init__(self) -> None:
        """Treat the initial share as already sent."""
        self.sent_share = self.share

    def limit(self, slots: int) -> int:
        """Return the number of slots that the tenant can take if the cluster has `slots` slots: at most its demand and its maximum."""
        return min(slots, *(n for n in (self.cap, self.demand) if n is not None), slots)


class ClusterState:
    """Represents all nodes, slots and tenants.

    Attributes:
        nodes: The nodes by name: connected, expected and lost ones, until they are forgotten.
        unreleased: Names of the connected nodes whose agents are stopping and wait for the message that they may end.
        slots: The slots of nodes that are up, by id.
        tenants: The tenants by stream id.
        store_quota: Maximum size in bytes of the snapshots in the store; None: no limit.
        deletions: The deletions of streams by stream id.
        open_deletions: Those of them whose blobs may still be in the store.
        turn_end: Time of the next end of a turn, in seconds since the Unix epoch. The caller must call `touch` and `rebalance` then.
            None: no tenant waits for its turn.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, ClusterNode] = {}
        self.unreleased: set[str] = set()
        self.slots: dict[str, ClusterSlot] = {}
        self.tenants: dict[StreamId, Tenant] = {}
        self.store_quota: int | None = None
        self.deletions: dict[StreamId, StreamDeleted] = {}
        self.open_deletions: dict[StreamId, StreamDeleted] = {}
        self.turn_end: float | None = None
        self._turns = Turns()
        self._changed = True
        self._lives: dict[str, str] = {}

    def join(self, event: NodeJoined) -> bool:
        """Record that a node opened a session and announced its slots.

        Known slots that the announcement does not list remain. The caller must pass them (`unannounced`) to `remove` after the
        streams to which they are granted are informed.

        Returns:
            Whether the node was already up with the same incarnation. If False, its earlier slots have been taken from the
            streams to which they were granted.
        """
        node = self.nodes.setdefault(event.node, ClusterNode(event.node))
        same = node.up and node.incarnation in ("", event.incarnation)
        if not same:
            self._remove_slots(event.node)
        node.up = True
        node.record_incarnation(event.incarnation, event.at)
        self.unreleased.discard(event.node)
        if node.leaving is not None:  # The agent may have missed the message that it may end.
            self.unreleased.add(event.node)
        for spec in event.slots:
            known = self.slots.get(spec.id)
            if known is None:
                self.slots[spec.id] = ClusterSlot(spec, event.node)
            else:
                known.spec = spec
        self._changed = True
        return same

    def unannounced(self, event: NodeJoined) -> list[str]:
        """Return the ids of the known slots of a node that its announcement does not list, sorted."""
        announced = {spec.id for spec in event.slots}
        return sorted(name for name, m in self.slots.items() if m.node == event.node and name not in announced)

    def lose(self, event: NodeExpired) -> bool:
        """Mark a node as lost and remove its slots. Return whether this changed its state; False also if it is unknown."""
        node = self.nodes.get(event.node)
        if node is None or node.lost_at is not None:
            return False
        node.up, node.lost_at, node.orphans = False, event.at, event.orphans
        self.unreleased.discard(event.node)
        self._remove_slots(event.node)
        return True

    def _remove_slots(self, node: str) -> None:
        self.remove([name for name, slot in self.slots.items() if slot.node == node])

    def remove(self, slots: list[str]) -> None:
        """Remove the slots with these ids, also from the tenants to which they are granted.

        Raises:
            KeyError: There is no such slot.
        """
        for name in slots:
            holder = self.slots.pop(name).holder
            if holder:
                self.tenants[StreamId(holder)].granted.discard(name)
        self._changed = True

    def drain(self, event: NodeDrained) -> bool:
        """Mark a node as drained, so that its slots are not granted. An unknown node is added.

        A node that is drained already only gets the new deadline, if the event has one.

        Returns:
            Whether this changed anything.
        """
        node = self.nodes.setdefault(event.node, ClusterNode(event.node))
        if node.drain is None:
            node.drain = Drain(event.at, event.deadline)
        elif event.deadline in (None, node.drain.deadline):
            return False
        else:
            node.drain = Drain(node.drain.since, event.deadline)
        self._changed = True
        return True

    def undrain(self, name: str) -> bool:
        """End the drain of the node with this name. Return whether it was drained; False also if it is unknown."""
        node = self.nodes.get(name)
        if node is None or node.drain is None:
            return False
        node.drain = None
        self._changed = True
        return True

    def expire_drain(self, name: str) -> bool:
        """Record that the deadline of a drain has passed. Return False if the node has no such drain, or this was recorded before."""
        node = self.nodes.get(name)
        if node is None or node.drain is None or node.drain.deadline is None or node.drain.expired:
            return False
        node.drain.expired = True
        return True

    def announce_leaving(self, event: NodeLeaving) -> bool:
        """Record that the agent of a node is stopping, so that its slots are not granted. An unknown node is added.

        Returns:
            Whether this was new. False also if the node already has a newer incarnation of the agent.
        """
        node = self.nodes.setdefault(event.node, ClusterNode(event.node))
        if node.leaving == event.incarnation or (node.up and node.incarnation not in ("", event.incarnation)):
            return False
        node.leaving, node.leaving_at = event.incarnation, event.at
        if node.up:
            self.unreleased.add(event.node)
        self._changed = True
        return True

    def forget(self, name: str) -> bool:
        """Remove a node that is not connected. Return False, without a change, if it is connected or unknown."""
        node = self.nodes.get(name)
        if node is None or node.up:
            return False
        del self.nodes[name]
        self._lives.pop(name, None)
        return True

    @property
    def unschedulable(self) -> list[str]:
        """The names of the nodes that get no new runs because they are drained or their agents are stopping, sorted."""
        return sorted(name for name, node in self.nodes.items() if node.unschedulable)

    def restore(self, event: ClusterEvent) -> None:
        """Apply an event of the cluster journal again in a recovery.

        It restores the list of nodes with their drains and incarnations, the store quota and the deletions of streams. The rest of the
        state is not in this journal. No node is up: tenants and granted slots are rebuilt from the streams, with `enter` and `adopt`,
        and slots and sessions from the announcements of agents.
        """
        match event:
            case NodeDrained():
                self.drain(event)
            case NodeUndrained():
                self.undrain(event.node)
            case DrainExpired():
                self.expire_drain(event.node)
            case NodeLeaving():
                self.announce_leaving(event)
            case NodeJoined():
                self._lives[event.node] = event.incarnation
                node = self.nodes.setdefault(event.node, ClusterNode(event.node))
                node.record_incarnation(event.incarnation, event.at)
            case NodeExpired():
                self.lose(event)
            case NodeForgotten():
                self.forget(event.node)
            case StoreQuotaSet():
                self.store_quota = event.size
            case StreamDeleted():
                self.deletions[event.stream] = event
                self.open_deletions[event.stream] = event
            case DeletionCompleted():
                self.open_deletions.pop(event.stream, None)
            case NodeEvicted():
                pass

    def enter(self, stream: StreamId, tenant: Tenant) -> None:
        """Add a stream as a tenant, which competes for slots from now on."""
        self.tenants[stream] = tenant
        self._changed = True

    def set_demand(
        self, stream: StreamId, slots: int | None, gang: int = 1, nodes: frozenset[str] = frozenset()
    ) -> None:
        """Set the demand of a stream. Unknown streams are ignored.

        Args:
            stream: Id of the stream.
            slots: Number of slots that it can use; None: as many as possible.
            gang: Number of slots that it takes at once (>= 1).
            nodes: Nodes whose slots are usable; empty: all.
        """
        tenant = self.tenants.get(stream)
        if tenant is None:
            return
        most = len(self.slots)  # A demand above the number of slots equals that number.
        before = tenant.limit(most), tenant.gang, tenant.nodes
        tenant.demand, tenant.gang, tenant.nodes = slots, gang, nodes
        self._changed = self._changed or before != (tenant.limit(most), gang, nodes)

    def set_terms(self, stream: StreamId, weight: float, cap: int | None) -> None:
        """Change the weight and the maximum number of slots (None: no limit) of a stream. Unknown streams are ignored."""
        if stream in self.tenants:
            self.tenants[stream].weight, self.tenants[stream].cap = weight, cap
            self._changed = True

    def take_back(self, stream: StreamId, slot: str) -> None:
        """Make a slot free that the stream has returned. Does nothing if the slot is not granted to the stream."""
        held = self.slots.get(slot)
        if held is not None and held.holder == stream:
            held.holder, held.recalled = "", False
            self._changed = True
        if stream in self.tenants:
            self.tenants[stream].granted.discard(slot)

    def adopt(self, stream: StreamId, spec: SlotSpec, node: str, recalled: bool = False) -> None:
        """Record that a slot is granted to a recovered stream, before the slot's node has opened a session.

        Args:
            stream: Id of the stream.
            spec: The slot.
            node: Name of its node, which is marked as up (`assume_up`).
            recalled: Whether the stream must return the slot.

        Raises:
            KeyError: The stream is not a tenant (`enter`).
        """
        self.assume_up(node)
        self.slots[spec.id] = ClusterSlot(spec, node, stream, recalled)
        self.tenants[stream].granted.add(spec.id)

    def has_newer_incarnation(self, name: str, incarnation: str) -> bool:
        """Return whether the last journalled incarnation of a node's agent differs from `incarnation`. False if none is journalled."""
        return self._lives.get(name, incarnation) != incarnation

    def assume_up(self, name: str) -> None:
        """Mark a node of a recovered stream as up, with its last journalled incarnation.

        This holds until its agent opens a session or the lease expires. If the agent returns with another incarnation, all runs on the
        node are lost, including those that had not reported yet.
        """
        node = self.nodes.setdefault(name, ClusterNode(name))
        node.incarnation, node.up, node.lost_at = self._lives.get(name, ""), True, None
        if node.leaving is not None:
            self.unreleased.add(name)

    def leave(self, stream: StreamId) -> None:
        """Remove a stream from the tenants and make all its slots free. The stream must be a tenant."""
        for slot in list(self.tenants[stream].granted):
            self.take_back(stream, slot)
        del self.tenants[stream]
        self._changed = True

    def touch(self) -> None:
        """Mark the division of the slots between the tenants as outdated, so that `unbalanced` is True until the next `rebalance`."""
        self._changed = True

    @property
    def unbalanced(self) -> bool:
        """Whether a new division of the slots is due, because something has changed since the last one."""
        return self._changed

    def rebalance(
        self, at: float, awaiting_answer: Mapping[str, Container[str]]
    ) -> list[ShareSet | SlotGranted | SlotRecalled]:
        """Divide the slots between the tenants again and grant the free ones.

        Args:
            at: Time of the returned events, in seconds since the Unix epoch.
            awaiting_answer: Streams that can receive no event now, because their policy is computing an answer, each with the ids of
                the slots that are granted to it in its own state. These slots are granted to no other stream, even if they were lost
                meanwhile.

        Returns:
            The changed shares, then the granted slots, then the slots that streams must exchange for slots of another
            kind.
        """
        self._changed = False
        usable = [m for m in self.slots.values() if not self.nodes[m.node].unschedulable]
        # Slots of unschedulable nodes and recalled slots are left out, because they will be returned.
        kinds = self._kinds(usable)
        held = Counter((m.holder, kinds[m.spec.id]) for m in usable if not m.recalled)
        wants = self._wants(usable, kinds, held)
        slots = Counter(kinds.values())
        able = [want.claim.name for want in wants if _fits(want, slots)]
        places = {name: place for place, name in enumerate(self._turns.order(at, able))}
        division = divide(slots, sorted(wants, key=lambda want: places.get(want.claim.name, len(places))))
        events: list[ShareSet | SlotGranted | SlotRecalled] = []
        for name, share in division.shares.items():
            tenant = self.tenants[StreamId(name)]
            tenant.share = share
            if share != tenant.sent_share and name not in awaiting_answer:
                tenant.sent_share = share
                events.append(ShareSet(at, StreamId(name), share))
        totals = Counter(m.holder for m in usable if not m.recalled)
        kept = awaiting_answer.values()
        free = sorted(
            (m for m in usable if not m.holder and not any(m.spec.id in believed for believed in kept)),
            key=lambda m: m.spec.id,
        )
        for slot in free:
            kind = kinds[slot.spec.id]
            wanting = [
                (totals[name] / t.weight, name)
                for name, t in self.tenants.items()
                if totals[name] < t.share
                and name not in awaiting_answer
                and division.room(name, kind, held[name, kind])
            ]
            if not wanting:
                if division.plan is None:
                    break
                continue
            name = min(wanting)[1]
            totals[name] += 1
            held[name, kind] += 1
            slot.holder = name
            self.tenants[name].granted.add(slot.spec.id)
            spec, life = slot.spec, self.nodes[slot.node].incarnation
            events.append(SlotGranted(at, name, spec.id, slot.node, spec.cpus, spec.gpus, life, spec.hardware))
        if division.plan is not None:
            events += self._recall(at, division, usable, kinds, held, totals, awaiting_answer)
        self._begin_turns(at, able, division)
        return events

    def _kinds(self, usable: list[ClusterSlot]) -> dict[str, SlotKind]:
        """Return the kind of each usable slot, by slot id.

        A kind includes the names of the tenants with node restrictions that can use the slot.
        """
        node_restricted = {name: tenant.nodes for name, tenant in self.tenants.items() if tenant.nodes}
        if not node_restricted:
            return {m.spec.id: m.kind for m in usable}
        eligible_streams = {
            node: frozenset(name for name, nodes in node_restricted.items() if node in nodes)
            for node in {m.node for m in usable}
        }
        return {m.spec.id: m.kind._replace(eligible_streams=eligible_streams[m.node]) for m in usable}

    def _wants(
        self, usable: list[ClusterSlot], kind_of: Mapping[str, SlotKind], held: Counter[tuple[str, SlotKind]]
    ) -> list[SlotRequest]:
        """Return the requests of the tenants, in the order in which they join the queue for turns if they are not in it."""
        kinds = set(kind_of.values())
        return [
            SlotRequest(
                Claim(name, t.weight, t.limit(len(usable))),
                t.gang,
                t.need,
                {kind: held[name, kind] for kind in kinds},
                node_restricted=bool(t.nodes),
            )
            for name, t in sorted(self.tenants.items(), key=lambda item: (item[1].share == 0, item[1].since, item[0]))
        ]

    def _begin_turns(self, at: float, able: list[str], division: Division) -> None:
        """Begin the turns of tenants that have slots now, and determine `turn_end`. `able` are the tenants that can use slots."""
        weights = {name: self.tenants[StreamId(name)].weight for name in able}
        lowest = min(weights.values(), default=1.0)
        holders = {
            name: length(weight, lowest) for name, weight in weights.items() if self.tenants[StreamId(name)].granted
        }
        self._turns.begin(at, division.shares, holders)
        self.turn_end = self._turns.next_end() if any(division.shares[name] == 0 for name in able) else None

    def _recall(
        self,
        at: float,
        division: Division,
        usable: list[ClusterSlot],
        kinds: Mapping[str, SlotKind],
        held: Counter[tuple[str, SlotKind]],
        totals: Counter[str],
        awaiting_answer: Container[str],
    ) -> list[SlotRecalled]:
        """Recall slots of a kind that another tenant lacks, from tenants that can use a slot of another kind instead.

        Tenants above their share are skipped, because they must return slots anyway.

        Args:
            at: Time of the returned events, in seconds since the Unix epoch.
            division: The division, which has a `plan`.
            usable: The slots of nodes that are up and schedulable.
            kinds: The kind of each usable slot, by slot id.
            held: Number of slots by tenant and kind, without recalled ones. It is updated.
            totals: Number of slots by tenant, without recalled ones. It is updated.
            awaiting_answer: Ids of streams that can receive no event now. They are skipped.
        """
        assert division.plan is not None
        recalled = []
        coming = Counter(kinds[m.spec.id] for m in usable if m.recalled or not m.holder)
        missing = Counter(
            {
                kind: sum(max(plan[kind] - held[name, kind], 0) for name, plan in division.plan.items()) - coming[kind]
                for kind in set(kinds.values())
            }
        )
        for slot in sorted((m for m in usable if m.holder and not m.recalled), key=lambda m: m.spec.id):
            name, kind = slot.holder, kinds[slot.spec.id]
            within = totals[name] <= self.tenants[StreamId(name)].share and name not in awaiting_answer
            if missing[kind] > 0 and within and division.surplus(name, kind, held[name, kind]):
                missing[kind] -= 1
                held[name, kind] -= 1
                totals[name] -= 1
                slot.recalled = True
                self._changed = True  # The next division gives its holder a free slot of another kind.
                recalled.append(SlotRecalled(at, StreamId(name), slot.spec.id))
        return recalled


def _fits(want: SlotRequest, slots: Mapping[SlotKind, int]) -> bool:
    """Return whether a request could get a gang if it were the only one."""
    suitable = sum(number for kind, number in slots.items() if want.takes(kind))
    return want.gang <= min(want.claim.cap, suitable)
