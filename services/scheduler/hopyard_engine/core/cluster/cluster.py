"""The cluster state: nodes, slots and shares, and which stream holds which slot.

It is soft state: a restarted scheduler rebuilds it from the streams' journals (the slots that they hold) and from what agents
announce when they open a session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from hopyard.policy.vocabulary import StreamId
from hopyard_engine.core.cluster.division import ANY, Division, SlotKind, Want, divide
from hopyard_engine.core.cluster.fair_share import Claim
from hopyard_engine.core.events import (
    ClusterEvent,
    NodeDrained,
    NodeEvicted,
    NodeExpired,
    NodeJoined,
    ShareSet,
    SlotGranted,
    SlotRecalled,
    StoreQuotaSet,
)
from hopyard_engine.core.types import SlotSpec


@dataclass(slots=True)
class ClusterNode:
    """A node. `up` is true while its lease is valid; `incarnation` is empty until its agent has opened a session.

    `drained` is the incarnation of the agent that was drained; a restarted agent accepts work again. None: not drained.
    """

    id: str
    incarnation: str = ""
    up: bool = False
    drained: str | None = None

    @property
    def draining(self) -> bool:
        """True if it gets no new work."""
        return self.drained is not None

    def lives(self, incarnation: str) -> None:
        """Records the incarnation of its agent. A new incarnation ends the drain."""
        if self.drained is not None:
            self.drained = incarnation if self.drained in ("", incarnation) else None


@dataclass(slots=True)
class ClusterSlot:
    """A slot and the stream that holds it; empty: none. `recalled` is true while the holder must return it."""

    spec: SlotSpec
    node: str
    holder: str = ""
    recalled: bool = False

    @property
    def kind(self) -> SlotKind:
        """The slot's hardware."""
        return SlotKind(self.spec.cpus, len(self.spec.gpus))


@dataclass(slots=True)
class Tenant:
    """A stream that competes for slots. It takes them in gangs of `gang`, each with at least the hardware `need`.

    Only slots on `nodes` are usable for it; empty: all nodes.
    """

    weight: float
    cap: int | None
    demand: int | None = None
    share: int = 0
    granted: set[str] = field(default_factory=set)
    gang: int = 1
    need: SlotKind = ANY
    nodes: frozenset[str] = frozenset()
    told: int = field(init=False)  # The last share sent to the stream.

    def __post_init__(self) -> None:
        """Treats the initial share as already sent."""
        self.told = self.share

    def limit(self, slots: int) -> int:
        """Returns the number of slots that it can take, out of `slots`."""
        return min(slots, *(n for n in (self.cap, self.demand) if n is not None), slots)


class ClusterState:
    """All nodes, slots and tenants. `tenants` are by stream id."""

    def __init__(self) -> None:
        self.nodes: dict[str, ClusterNode] = {}
        self.slots: dict[str, ClusterSlot] = {}
        self.tenants: dict[StreamId, Tenant] = {}
        self.store_quota: int | None = None
        self._changed = True
        self._lives: dict[str, str] = {}

    def join(self, event: NodeJoined) -> bool:
        """Records that a node opened a session. Returns whether the node was already up with the same incarnation.

        Slots that the node no longer announces must be removed with `remove`, after their holders are informed.
        """
        node = self.nodes.setdefault(event.node, ClusterNode(event.node))
        same = node.up and node.incarnation in ("", event.incarnation)
        if not same:
            self._remove_slots(event.node)
        node.incarnation, node.up = event.incarnation, True
        node.lives(event.incarnation)
        for spec in event.slots:
            known = self.slots.get(spec.id)
            if known is None:
                self.slots[spec.id] = ClusterSlot(spec, event.node)
            else:
                known.spec = spec
        self._changed = True
        return same

    def unannounced(self, event: NodeJoined) -> list[str]:
        """Returns the known slots of a node that its announcement does not list, sorted by id."""
        announced = {spec.id for spec in event.slots}
        return sorted(name for name, m in self.slots.items() if m.node == event.node and name not in announced)

    def lose(self, name: str) -> bool:
        """Marks a node as lost and removes its slots. Returns whether it was up."""
        node = self.nodes.get(name)
        if node is None or not node.up:
            return False
        node.up = False
        self._remove_slots(name)
        return True

    def _remove_slots(self, node: str) -> None:
        self.remove([name for name, slot in self.slots.items() if slot.node == node])

    def remove(self, slots: list[str]) -> None:
        """Removes these slots, also from their holders."""
        for name in slots:
            holder = self.slots.pop(name).holder
            if holder:
                self.tenants[StreamId(holder)].granted.discard(name)
        self._changed = True

    def drain(self, name: str) -> None:
        """Drains a node, known or unknown: it gets no new work."""
        node = self.nodes.setdefault(name, ClusterNode(name))
        node.drained = node.incarnation
        self._changed = True

    def restore(self, event: ClusterEvent) -> None:
        """Applies a journalled event again, to restore drains, incarnations and the store quota.

        The rest of the state follows from the streams and from the agents' announcements.
        """
        match event:
            case NodeDrained():
                self.nodes.setdefault(event.node, ClusterNode(event.node)).drained = self._lives.get(event.node, "")
            case NodeJoined():
                self._lives[event.node] = event.incarnation
                if event.node in self.nodes:
                    self.nodes[event.node].lives(event.incarnation)
            case StoreQuotaSet():
                self.store_quota = event.size
            case NodeExpired() | NodeEvicted():
                pass

    def enter(self, experiment: StreamId, tenant: Tenant) -> None:
        """Adds a stream that competes for slots."""
        self.tenants[experiment] = tenant
        self._changed = True

    def set_demand(
        self, experiment: StreamId, slots: int | None, gang: int = 1, nodes: frozenset[str] = frozenset()
    ) -> None:
        """Sets the number of slots that a stream can use; None: as many as possible. Unknown streams are ignored.

        Args:
            experiment: The stream.
            slots: Number of slots.
            gang: Number of slots that it needs at once (>= 1).
            nodes: Nodes whose slots are usable; empty: all.
        """
        tenant = self.tenants.get(experiment)
        if tenant is None:
            return
        most = len(self.slots)  # A demand above the number of slots equals that number.
        before = tenant.limit(most), tenant.gang, tenant.nodes
        tenant.demand, tenant.gang, tenant.nodes = slots, gang, nodes
        self._changed = self._changed or before != (tenant.limit(most), gang, nodes)

    def set_terms(self, experiment: StreamId, weight: float, cap: int | None) -> None:
        """Changes the weight and the slot limit of a stream."""
        if experiment in self.tenants:
            self.tenants[experiment].weight, self.tenants[experiment].cap = weight, cap
            self._changed = True

    def take_back(self, experiment: StreamId, slot: str) -> None:
        """Takes a slot back from a stream."""
        held = self.slots.get(slot)
        if held is not None and held.holder == experiment:
            held.holder, held.recalled = "", False
            self._changed = True
        if experiment in self.tenants:
            self.tenants[experiment].granted.discard(slot)

    def adopt(self, experiment: StreamId, spec: SlotSpec, node: str, recalled: bool = False) -> None:
        """Records that a recovered stream holds a slot of a node that has not opened a session yet."""
        self.presume(node)
        self.slots[spec.id] = ClusterSlot(spec, node, experiment, recalled)
        self.tenants[experiment].granted.add(spec.id)

    def reborn(self, name: str, incarnation: str) -> bool:
        """Returns whether the journal has a newer incarnation of the node's agent than this one."""
        return self._lives.get(name, incarnation) != incarnation

    def presume(self, name: str) -> None:
        """Counts a node of a recovered stream as up, with its last known incarnation, until its agent opens a session.

        If the agent returns with another incarnation, its runs are lost, including those that had not reported yet.
        """
        node = self.nodes.setdefault(name, ClusterNode(name))
        node.incarnation, node.up = self._lives.get(name, ""), True

    def leave(self, experiment: StreamId) -> None:
        """Removes a stream and takes all its slots back."""
        for slot in list(self.tenants[experiment].granted):
            self.take_back(experiment, slot)
        del self.tenants[experiment]
        self._changed = True

    def touch(self) -> None:
        """Requests a new division of the slots."""
        self._changed = True

    @property
    def unbalanced(self) -> bool:
        """True if the slots must be divided again, because something has changed."""
        return self._changed

    def rebalance(
        self, at: float, thinking: Mapping[str, Container[str]]
    ) -> list[ShareSet | SlotGranted | SlotRecalled]:
        """Divides the slots again and grants the free ones.

        Args:
            at: Time of the events.
            thinking: Streams that can receive no event now, because their policy is computing an answer, each with the slots that it
                believes to hold. Such slots are granted to nobody, even if they were lost meanwhile.

        Returns:
            The changed shares, then the granted slots, then the slots that their holders must exchange for slots of another kind.
        """
        self._changed = False
        usable = [m for m in self.slots.values() if not self.nodes[m.node].draining]
        # Slots of drained nodes and recalled slots do not count: they will be returned.
        kinds = self._kinds(usable)
        held = Counter((m.holder, kinds[m.spec.id]) for m in usable if not m.recalled)
        division = self._divide(usable, kinds, held)
        events: list[ShareSet | SlotGranted | SlotRecalled] = []
        for name, share in division.shares.items():
            tenant = self.tenants[StreamId(name)]
            tenant.share = share
            if share != tenant.told and name not in thinking:
                tenant.told = share
                events.append(ShareSet(at, StreamId(name), share))
        totals = Counter(m.holder for m in usable if not m.recalled)
        kept = thinking.values()
        free = sorted(
            (m for m in usable if not m.holder and not any(m.spec.id in believed for believed in kept)),
            key=lambda m: m.spec.id,
        )
        for slot in free:
            kind = kinds[slot.spec.id]
            wanting = [
                (totals[name] / t.weight, name)
                for name, t in self.tenants.items()
                if totals[name] < t.share and name not in thinking and division.room(name, kind, held[name, kind])
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
            events += self._recall(at, division, usable, kinds, held, totals, thinking)
        return events

    def _kinds(self, usable: list[ClusterSlot]) -> dict[str, SlotKind]:
        """Returns the kind of each slot, which includes the tenants with node restrictions that can use it."""
        picky = {name: tenant.nodes for name, tenant in self.tenants.items() if tenant.nodes}
        if not picky:
            return {m.spec.id: m.kind for m in usable}
        wished = {
            node: frozenset(name for name, nodes in picky.items() if node in nodes) for node in {m.node for m in usable}
        }
        return {m.spec.id: m.kind._replace(wished=wished[m.node]) for m in usable}

    def _divide(
        self, usable: list[ClusterSlot], kind_of: Mapping[str, SlotKind], held: Counter[tuple[str, SlotKind]]
    ) -> Division:
        kinds = Counter(kind_of[m.spec.id] for m in usable)
        wants = [
            Want(
                Claim(name, t.weight, t.limit(len(usable))),
                t.gang,
                t.need,
                {kind: held[name, kind] for kind in kinds},
                picky=bool(t.nodes),
            )
            for name, t in sorted(self.tenants.items())
        ]
        return divide(kinds, wants)

    def _recall(
        self,
        at: float,
        division: Division,
        usable: list[ClusterSlot],
        kinds: Mapping[str, SlotKind],
        held: Counter[tuple[str, SlotKind]],
        totals: Counter[str],
        thinking: Container[str],
    ) -> list[SlotRecalled]:
        """Recalls slots of a kind that another tenant lacks, from holders that can use another kind instead.

        Streams in `thinking` are skipped. So are those above their share, which must return slots anyway.
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
            within = totals[name] <= self.tenants[StreamId(name)].share and name not in thinking
            if missing[kind] > 0 and within and division.surplus(name, kind, held[name, kind]):
                missing[kind] -= 1
                held[name, kind] -= 1
                totals[name] -= 1
                slot.recalled = True
                self._changed = True  # The next division gives its holder a free slot of another kind.
                recalled.append(SlotRecalled(at, StreamId(name), slot.spec.id))
        return recalled
