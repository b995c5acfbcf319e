"""Nodes, slots and shares: which experiment holds which slot.

This part is soft state: it follows from the experiments' journals (what they hold) and from what the agents say when they
open a session, so a restarted scheduler rebuilds it from both.
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
    """A node. `up` while its agent gives signs of life within its lease; `incarnation` empty until it has said hello.

    `drained` is the incarnation that was told to drain: an agent that is started anew takes work again. None: none was.
    """

    id: str
    incarnation: str = ""
    up: bool = False
    drained: str | None = None

    @property
    def draining(self) -> bool:
        """Whether it gets nothing more."""
        return self.drained is not None

    def lives(self, incarnation: str) -> None:
        """It said which life it is in."""
        if self.drained is not None:
            self.drained = incarnation if self.drained in ("", incarnation) else None


@dataclass(slots=True)
class ClusterSlot:
    """A slot and the experiment that holds it; empty: none. `recalled` while that one has been told to leave it."""

    spec: SlotSpec
    node: str
    holder: str = ""
    recalled: bool = False

    @property
    def kind(self) -> SlotKind:
        """What it has."""
        return SlotKind(self.spec.cpus, len(self.spec.gpus))


@dataclass(slots=True)
class Tenant:
    """An experiment that wants slots: `gang` of them at once or none, each with what `need` says.

    Only slots on these `nodes` are of use to it; none: all are.
    """

    weight: float
    cap: int | None
    demand: int | None = None
    share: int = 0
    granted: set[str] = field(default_factory=set)
    gang: int = 1
    need: SlotKind = ANY
    nodes: frozenset[str] = frozenset()
    told: int = field(init=False)  # The share that its experiment knows of.

    def __post_init__(self) -> None:
        """What was set before is known."""
        self.told = self.share

    def limit(self, slots: int) -> int:
        """How many slots it could take."""
        return min(slots, *(n for n in (self.cap, self.demand) if n is not None), slots)


class ClusterState:
    """All nodes, slots and tenants."""

    def __init__(self) -> None:
        self.nodes: dict[str, ClusterNode] = {}
        self.slots: dict[str, ClusterSlot] = {}
        self.tenants: dict[StreamId, Tenant] = {}
        self.store_quota: int | None = None
        self._changed = True
        self._lives: dict[str, str] = {}

    def join(self, event: NodeJoined) -> bool:
        """A node opened a session. Returns whether it is the same life of a node that is not lost.

        Slots that it does not announce (any more) are to be taken out with `remove`, once their holders know.
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
        """Slots of a node that its hello does not list, in order of id."""
        announced = {spec.id for spec in event.slots}
        return sorted(name for name, m in self.slots.items() if m.node == event.node and name not in announced)

    def lose(self, name: str) -> bool:
        """A node is gone with its slots. Returns whether it was there."""
        node = self.nodes.get(name)
        if node is None or not node.up:
            return False
        node.up = False
        self._remove_slots(name)
        return True

    def _remove_slots(self, node: str) -> None:
        self.remove([name for name, slot in self.slots.items() if slot.node == node])

    def remove(self, slots: list[str]) -> None:
        """These slots are there no more, for whoever held them."""
        for name in slots:
            holder = self.slots.pop(name).holder
            if holder:
                self.tenants[StreamId(holder)].granted.discard(name)
        self._changed = True

    def drain(self, name: str) -> None:
        """A node gets nothing more, whether it is here yet or not."""
        node = self.nodes.setdefault(name, ClusterNode(name))
        node.drained = node.incarnation
        self._changed = True

    def restore(self, event: ClusterEvent) -> None:
        """Re-applies a journalled event: which nodes are drained, and their lives. The rest follows from experiments and hellos."""
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
        """An experiment wants slots."""
        self.tenants[experiment] = tenant
        self._changed = True

    def set_demand(
        self, experiment: StreamId, slots: int | None, gang: int = 1, nodes: frozenset[str] = frozenset()
    ) -> None:
        """An experiment can use so many slots, `gang` of them at once; None: as many as it can get.

        Args:
            experiment: Whose demand it is.
            slots: How many.
            gang: How many at once.
            nodes: Where; none: anywhere.
        """
        tenant = self.tenants.get(experiment)
        if tenant is None:
            return
        most = len(self.slots)  # More than there are is as good as all of them.
        before = tenant.limit(most), tenant.gang, tenant.nodes
        tenant.demand, tenant.gang, tenant.nodes = slots, gang, nodes
        self._changed = self._changed or before != (tenant.limit(most), gang, nodes)

    def set_terms(self, experiment: StreamId, weight: float, cap: int | None) -> None:
        """An experiment's weight or cap changed."""
        if experiment in self.tenants:
            self.tenants[experiment].weight, self.tenants[experiment].cap = weight, cap
            self._changed = True

    def take_back(self, experiment: StreamId, slot: str) -> None:
        """An experiment gives a slot back."""
        held = self.slots.get(slot)
        if held is not None and held.holder == experiment:
            held.holder, held.recalled = "", False
            self._changed = True
        if experiment in self.tenants:
            self.tenants[experiment].granted.discard(slot)

    def adopt(self, experiment: StreamId, spec: SlotSpec, node: str, recalled: bool = False) -> None:
        """A recovered experiment holds a slot of a node that has yet to come back."""
        self.presume(node)
        self.slots[spec.id] = ClusterSlot(spec, node, experiment, recalled)
        self.tenants[experiment].granted.add(spec.id)

    def reborn(self, name: str, incarnation: str) -> bool:
        """Whether a node was seen in another life than this one when the scheduler was last there."""
        return self._lives.get(name, incarnation) != incarnation

    def presume(self, name: str) -> None:
        """A recovered experiment counts on a node: it is up, in the life it was last seen in, until its agent says otherwise.

        One that comes back in another life has lost its runs, even those of which nobody heard anything yet.
        """
        node = self.nodes.setdefault(name, ClusterNode(name))
        node.incarnation, node.up = self._lives.get(name, ""), True

    def leave(self, experiment: StreamId) -> None:
        """An experiment wants nothing any more."""
        for slot in list(self.tenants[experiment].granted):
            self.take_back(experiment, slot)
        del self.tenants[experiment]
        self._changed = True

    def touch(self) -> None:
        """The slots are to be divided anew."""
        self._changed = True

    @property
    def unbalanced(self) -> bool:
        """Whether anything has changed that the division of the slots depends on."""
        return self._changed

    def rebalance(
        self, at: float, thinking: Mapping[str, Container[str]]
    ) -> list[ShareSet | SlotGranted | SlotRecalled]:
        """Divides the slots anew and grants what is free.

        Args:
            at: When.
            thinking: Experiments that can be told nothing now, each with the slots that it believes to hold: those that
                were lost meanwhile are granted to nobody until it knows.

        Returns:
            Changed shares first, then grants, then slots that their holder is to leave for others of another kind.
        """
        self._changed = False
        usable = [m for m in self.slots.values() if not self.nodes[m.node].draining]
        # Those of drained nodes and the recalled ones, which are about to come back, do not count.
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
        """What slots have, and to whom of those that want certain nodes they are of use."""
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
        """Slots that somebody needs whom no other kind serves, and that their holders can have others for.

        Who thinks can be told nothing. Who is above its share gives slots back anyhow, and is not asked before that.
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
                self._changed = True  # Its holder gets another one, if that is free already.
                recalled.append(SlotRecalled(at, StreamId(name), slot.spec.id))
        return recalled
