"""Nodes, machines and shares: which experiment holds which machine.

This part is soft state: it follows from the experiments' journals (what they hold) and from what the agents say when they
open a session, so a restarted scheduler rebuilds it from both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hopyard_scheduler.core.events import MachineGranted, MachineSpec, NodeJoined, ShareSet
from hopyard_scheduler.core.shares import Claim, water_fill


@dataclass(slots=True)
class ClusterNode:
    """A node. `up` while its agent gives signs of life within its lease; `incarnation` empty until it has said hello."""

    id: str
    incarnation: str = ""
    up: bool = False
    draining: bool = False


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

    def limit(self, machines: int) -> int:
        """How many machines it could take."""
        return min(machines, *(n for n in (self.cap, self.demand) if n is not None), machines)


class Cluster:
    """All nodes, machines and tenants."""

    def __init__(self) -> None:
        self.nodes: dict[str, ClusterNode] = {}
        self.machines: dict[str, ClusterMachine] = {}
        self.tenants: dict[str, Tenant] = {}

    def join(self, event: NodeJoined) -> bool:
        """A node opened a session. Returns whether it is the same life of a node that is not lost."""
        node = self.nodes.setdefault(event.node, ClusterNode(event.node))
        same = node.up and node.incarnation in ("", event.incarnation)
        if not same:
            self._remove_machines(event.node)
        node.incarnation, node.up = event.incarnation, True
        for spec in event.machines:
            known = self.machines.get(spec.id)
            if known is None:
                self.machines[spec.id] = ClusterMachine(spec, event.node)
            else:
                known.spec = spec
        return same

    def lose(self, name: str) -> bool:
        """A node is gone with its machines. Returns whether it was there."""
        node = self.nodes.get(name)
        if node is None or not node.up:
            return False
        node.up = False
        self._remove_machines(name)
        return True

    def _remove_machines(self, node: str) -> None:
        for machine in [m for m in self.machines.values() if m.node == node]:
            if machine.holder:
                self.tenants[machine.holder].held.discard(machine.spec.id)
            del self.machines[machine.spec.id]

    def drain(self, name: str) -> None:
        """A node gets nothing more; its idle machines are taken out at once."""
        node = self.nodes.get(name)
        if node is not None:
            node.draining = True

    def take_back(self, experiment: str, machine: str) -> None:
        """An experiment gives a machine back."""
        held = self.machines.get(machine)
        if held is not None and held.holder == experiment:
            held.holder = ""
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

    def rebalance(self, at: float) -> list[ShareSet | MachineGranted]:
        """Divides the machines anew and grants what is free.

        Returns:
            Changed shares first, then grants.
        """
        usable = [m for m in self.machines.values() if not self.nodes[m.node].draining]
        claims = [Claim(name, t.weight, t.limit(len(usable))) for name, t in sorted(self.tenants.items())]
        events: list[ShareSet | MachineGranted] = []
        for name, share in water_fill(len(usable), claims).items():
            if share != self.tenants[name].share:
                self.tenants[name].share = share
                events.append(ShareSet(at, name, share))
        free = sorted((m for m in usable if not m.holder), key=lambda m: m.spec.id)
        for machine in free:
            wanting = [(len(t.held) / t.weight, name) for name, t in self.tenants.items() if len(t.held) < t.share]
            if not wanting:
                break
            name = min(wanting)[1]
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
