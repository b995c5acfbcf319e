"""Nodes, machines and shares: which experiment holds which machine.

This part is soft state: it follows from the experiments' journals (what they hold) and from what the agents say when they
open a session, so a restarted scheduler rebuilds it from both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from hopyard_scheduler.core.events import (
    ClusterEvent,
    MachineGranted,
    MachineSpec,
    NodeDrained,
    NodeExpired,
    NodeJoined,
    ShareSet,
)
from hopyard_scheduler.core.shares import Claim, water_fill


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
class ClusterMachine:
    """A machine and the experiment that holds it; empty: none."""

    spec: MachineSpec
    node: str
    holder: str = ""


@dataclass(slots=True)
class Tenant:
    """An experiment that wants machines."""

    weight: float
    cap: int | None
    demand: int | None = None
    share: int = 0
    held: set[str] = field(default_factory=set)
    told: int = field(init=False)  # The share that its experiment knows of.

    def __post_init__(self) -> None:
        """What was set before is known."""
        self.told = self.share

    def limit(self, machines: int) -> int:
        """How many machines it could take."""
        return min(machines, *(n for n in (self.cap, self.demand) if n is not None), machines)


class Cluster:
    """All nodes, machines and tenants."""

    def __init__(self) -> None:
        self.nodes: dict[str, ClusterNode] = {}
        self.machines: dict[str, ClusterMachine] = {}
        self.tenants: dict[str, Tenant] = {}
        self._changed = True
        self._lives: dict[str, str] = {}

    def join(self, event: NodeJoined) -> bool:
        """A node opened a session. Returns whether it is the same life of a node that is not lost.

        Machines that it does not announce (any more) are to be taken out with `remove`, once their holders know.
        """
        node = self.nodes.setdefault(event.node, ClusterNode(event.node))
        same = node.up and node.incarnation in ("", event.incarnation)
        if not same:
            self._remove_machines(event.node)
        node.incarnation, node.up = event.incarnation, True
        node.lives(event.incarnation)
        for spec in event.machines:
            known = self.machines.get(spec.id)
            if known is None:
                self.machines[spec.id] = ClusterMachine(spec, event.node)
            else:
                known.spec = spec
        self._changed = True
        return same

    def unannounced(self, event: NodeJoined) -> list[str]:
        """Machines of a node that its hello does not list, in order of id."""
        announced = {spec.id for spec in event.machines}
        return sorted(name for name, m in self.machines.items() if m.node == event.node and name not in announced)

    def lose(self, name: str) -> bool:
        """A node is gone with its machines. Returns whether it was there."""
        node = self.nodes.get(name)
        if node is None or not node.up:
            return False
        node.up = False
        self._remove_machines(name)
        return True

    def _remove_machines(self, node: str) -> None:
        self.remove([name for name, machine in self.machines.items() if machine.node == node])

    def remove(self, machines: list[str]) -> None:
        """These machines are there no more, for whoever held them."""
        for name in machines:
            holder = self.machines.pop(name).holder
            if holder:
                self.tenants[holder].held.discard(name)
        self._changed = True

    def drain(self, name: str) -> None:
        """A node gets nothing more, whether it is here yet or not."""
        node = self.nodes.setdefault(name, ClusterNode(name))
        node.drained = node.incarnation
        self._changed = True

    def restore(self, event: ClusterEvent) -> None:
        """Re-applies a journalled event: which nodes are drained. The rest follows from the experiments and from hellos."""
        match event:
            case NodeDrained():
                self.nodes.setdefault(event.node, ClusterNode(event.node)).drained = self._lives.get(event.node, "")
            case NodeJoined():
                self._lives[event.node] = event.incarnation
                if event.node in self.nodes:
                    self.nodes[event.node].lives(event.incarnation)
            case NodeExpired():
                pass

    def enter(self, experiment: str, tenant: Tenant) -> None:
        """An experiment wants machines."""
        self.tenants[experiment] = tenant
        self._changed = True

    def set_demand(self, experiment: str, machines: int | None) -> None:
        """An experiment can use so many machines; None: as many as it can get."""
        if experiment in self.tenants:
            self.tenants[experiment].demand = machines
            self._changed = True

    def set_terms(self, experiment: str, weight: float, cap: int | None) -> None:
        """An experiment's weight or cap changed."""
        if experiment in self.tenants:
            self.tenants[experiment].weight, self.tenants[experiment].cap = weight, cap
            self._changed = True

    def take_back(self, experiment: str, machine: str) -> None:
        """An experiment gives a machine back."""
        held = self.machines.get(machine)
        if held is not None and held.holder == experiment:
            held.holder = ""
            self._changed = True
        if experiment in self.tenants:
            self.tenants[experiment].held.discard(machine)

    def adopt(self, experiment: str, machine: str, node: str) -> None:
        """A recovered experiment holds a machine of a node that has yet to come back."""
        self.nodes.setdefault(node, ClusterNode(node)).up = True
        self.machines[machine] = ClusterMachine(MachineSpec(machine), node, experiment)
        self.tenants[experiment].held.add(machine)

    def leave(self, experiment: str) -> None:
        """An experiment wants nothing any more."""
        for machine in list(self.tenants[experiment].held):
            self.take_back(experiment, machine)
        del self.tenants[experiment]
        self._changed = True

    def touch(self) -> None:
        """The machines are to be divided anew."""
        self._changed = True

    def rebalance(self, at: float, thinking: Mapping[str, Container[str]]) -> list[ShareSet | MachineGranted]:
        """Divides the machines anew and grants what is free, if anything has changed that this depends on.

        Args:
            at: When.
            thinking: Experiments that can be told nothing now, each with the machines that it believes to hold: those that
                were lost meanwhile are granted to nobody until it knows.

        Returns:
            Changed shares first, then grants.
        """
        if not self._changed:
            return []
        self._changed = False
        usable = [m for m in self.machines.values() if not self.nodes[m.node].draining]
        claims = [Claim(name, t.weight, t.limit(len(usable))) for name, t in sorted(self.tenants.items())]
        events: list[ShareSet | MachineGranted] = []
        for name, share in water_fill(len(usable), claims).items():
            tenant = self.tenants[name]
            tenant.share = share
            if share != tenant.told and name not in thinking:
                tenant.told = share
                events.append(ShareSet(at, name, share))
        held = Counter(m.holder for m in usable)  # Those of drained nodes, which are about to come back, do not count.
        kept = thinking.values()
        free = sorted(
            (m for m in usable if not m.holder and not any(m.spec.id in believed for believed in kept)),
            key=lambda m: m.spec.id,
        )
        for machine in free:
            wanting = [
                (held[name] / t.weight, name)
                for name, t in self.tenants.items()
                if held[name] < t.share and name not in thinking
            ]
            if not wanting:
                break
            name = min(wanting)[1]
            held[name] += 1
            machine.holder = name
            self.tenants[name].held.add(machine.spec.id)
            events.append(MachineGranted(at, name, machine.spec.id, machine.node))
        return events

    def holders(self, node: str) -> Mapping[str, list[str]]:
        """Machines of a node by the experiment that holds them."""
        held: dict[str, list[str]] = {}
        for machine in self.machines.values():
            if machine.node == node and machine.holder:
                held.setdefault(machine.holder, []).append(machine.spec.id)
        return held
