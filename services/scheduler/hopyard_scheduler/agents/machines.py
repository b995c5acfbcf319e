"""Machines and nodes as clients see them, and what clients do with them."""

from __future__ import annotations

from hopyard.errors import Conflict, Exhausted, NotFound
from hopyard.policy.vocabulary import ReleaseMachine
from hopyard.v1 import resource_manager_pb2 as pb
from hopyard_engine.core.events import JobOperated, MachineReserved, NodeDrained
from hopyard_scheduler.agents.sessions import Sessions
from hopyard_scheduler.runtime.runtime import Live, experiment_of


class Machines:
    """Lists machines and nodes; reserves and releases machines; drains nodes.

    Args:
        live: Holds the state and takes the events.
        sessions: Knows the addresses of the agents.
    """

    def __init__(self, live: Live, sessions: Sessions) -> None:
        self._live = live
        self._sessions = sessions

    async def reserve_idle(self, experiment: str, request: str) -> str:
        """Reserves an idle machine of an experiment.

        Args:
            experiment: Its id.
            request: Identifies the reservation: a repetition returns the same machine as long as it is reserved.

        Returns:
            The id of the machine.

        Raises:
            NotFound: There is no such experiment.
            Exhausted: It has no idle machine.
        """
        stream, _ = experiment_of(self._live.core, experiment)
        if (reserved := stream.reservation(request)) is not None:
            return reserved.id
        idle = sorted(machine.id for machine in stream.machines.values() if machine.idle and not machine.reserved)
        if not idle:
            raise Exhausted(f"experiment {stream.id} has no idle machine; it holds {len(stream.machines)}")
        refused = await self._live.operate(MachineReserved(self._live.clock(), stream.id, idle[0], request))
        if refused:
            raise Exhausted(refused)
        return idle[0]

    async def release(self, name: str) -> None:
        """Ends the reservation of a machine. A machine that no experiment holds stays as it is.

        Raises:
            NotFound: There is no such machine.
            Conflict: A job runs on it.
        """
        machine = self._live.core.cluster.machines.get(name)
        if machine is None:
            raise NotFound(f"there is no machine {name!r}")
        if machine.holder:
            refused = await self._live.operate(JobOperated(self._live.clock(), machine.holder, ReleaseMachine(name)))
            if refused:
                raise Conflict(refused)

    async def drain(self, node: str) -> None:
        """Starts nothing more on a node, and suspends its runs at their next boundary.

        Raises:
            NotFound: There is no such node.
        """
        if node not in self._live.core.cluster.nodes:
            raise NotFound(f"there is no node {node!r}")
        await self._live.apply(NodeDrained(self._live.clock(), node))

    def show_all(self) -> list[pb.Machine]:
        """All machines, by id."""
        return [self._machine(name) for name in sorted(self._live.core.cluster.machines)]

    def show_nodes(self) -> list[pb.Node]:
        """All nodes with their machines, by id."""
        return [self._node(name) for name in sorted(self._live.core.cluster.nodes)]

    def _machine(self, name: str) -> pb.Machine:
        machine = self._live.core.cluster.machines[name]
        spec = machine.spec
        message = pb.Machine(id=name, node=machine.node, cpus=spec.cpus, gpus=spec.gpus, hardware=spec.hardware)
        message.experiment = machine.holder
        stream = self._live.core.streams.get(machine.holder)
        held = stream.machines.get(name) if stream is not None else None
        if stream is not None and held is not None and held.run is not None:
            message.job, message.attempt = held.run.job, held.run.attempt
            message.experiment = stream.jobs[held.run.job].experiment.id
            message.rank, message.world = held.run.machines.index(name), len(held.run.ranks)
        return message

    def _node(self, name: str) -> pb.Node:
        node = self._live.core.cluster.nodes[name]
        state = pb.NODE_STATE_LOST if not node.up else pb.NODE_STATE_DRAINING if node.draining else pb.NODE_STATE_UP
        machines = [m.spec.id for m in self._live.core.cluster.machines.values() if m.node == name]
        return pb.Node(
            id=name,
            address=self._sessions.addresses.get(name, ""),
            state=state,
            machines=[self._machine(machine) for machine in sorted(machines)],
            silent_seconds=min(self._sessions.silent_seconds(name), 1e9),
            incarnation=node.incarnation,
        )
