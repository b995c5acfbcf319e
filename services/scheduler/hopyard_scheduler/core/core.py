"""The core as a whole: experiments and the cluster they share. Events in, effects out, no I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from hopyard_scheduler.core import dispatch, placement
from hopyard_scheduler.core.cluster import Cluster, Tenant
from hopyard_scheduler.core.effects import (
    Acknowledge,
    AcknowledgeShipment,
    DemandChanged,
    Effect,
    ExperimentEnded,
    ExperimentRevived,
    FinalPerformance,
    ForgetSnapshot,
    MachineReturned,
    Record,
    Send,
    SetTimer,
    ShipmentOrder,
    TermsChanged,
    Welcome,
)
from hopyard_scheduler.core.events import (
    ClusterEvent,
    Event,
    ExperimentCreated,
    ExperimentEvent,
    NodeBack,
    NodeDrained,
    NodeDraining,
    NodeExpired,
    NodeJoined,
    NodeLost,
    RunKey,
    RunMessage,
    SnapshotShipped,
)
from hopyard_scheduler.core.experiment import Experiment

CLUSTER_STREAM = "cluster"

FORGET_AGAIN_SECONDS = 600.0
"""Deletions from the store that are so old when the journal ends were carried out: only the last batch can have missed its own."""


class UnknownExperimentError(LookupError):
    """An event names an experiment that the core does not have."""


class Core:
    """The deterministic state machine of the scheduler.

    It owns experiments, jobs, runs, machines, leases, gangs and shares. It never reads a clock, a socket, a database or a
    global random generator: the same events give the same effects.
    """

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.experiments: dict[str, Experiment] = {}
        self._effects: list[Effect] = []
        self._inbox: deque[ExperimentEvent] = deque()
        self._forgotten: dict[tuple[str, str], float] = {}
        self._restored_at = 0.0

    def handle(self, event: Event) -> list[Effect]:
        """Takes one event and everything that follows from it inside the core.

        Returns:
            Effects in order. The shell journals every `Record` among them before it carries out any other.

        Raises:
            UnknownExperimentError: The event's experiment is not there.
        """
        self._effects = []
        match event:
            case NodeJoined():
                self._effects.append(Record(CLUSTER_STREAM, event))
                self._joined(event)
            case NodeExpired():
                if self.cluster.lose(event.node):
                    self._effects.append(Record(CLUSTER_STREAM, event))
                    self._lost(event.node, event.at, ())
            case NodeDrained():
                self._effects.append(Record(CLUSTER_STREAM, event))
                self._drained(event)
            case ExperimentCreated():
                if event.experiment in self.experiments:
                    return []
                self._add(event)
                self._inbox.append(event)
            case _:
                if event.experiment not in self.experiments:
                    if isinstance(event, RunMessage):  # It is over, and nobody listens any more.
                        key = RunKey(event.experiment, event.job, event.attempt, event.rank)
                        return [Acknowledge(key, event.sequence)]
                    if isinstance(event, SnapshotShipped):
                        return [AcknowledgeShipment(event.node, event.experiment, event.order)]
                    raise UnknownExperimentError(event.experiment)
                self._inbox.append(event)
        self._settle(event.at)
        effects, self._effects = self._effects, []
        return effects

    def forget_pending(self, name: str) -> None:
        """Drops what is left of an event that could not be taken."""
        self._inbox = deque(event for event in self._inbox if event.experiment != name)
        self._effects = []

    def acknowledge(self, key: RunKey, sequence: int) -> None:
        """An agent has taken over a run's commands up to a sequence. Not an event: only what is sent again depends on it."""
        x = self.experiments.get(key.experiment)
        job = x.jobs.get(key.job) if x is not None else None
        channel = job.channels.get((key.attempt, key.rank)) if job is not None else None
        if channel is not None:
            channel.acknowledge(sequence)

    def unacknowledged(self, node: str) -> list[Send]:
        """Commands to live runs on a node that it has not acknowledged, in order: what to send again."""
        sends = []
        for x in self.experiments.values():
            for run in x.live.values():
                for index, rank in enumerate(run.ranks):
                    if rank.node == node and not rank.gone:
                        key = RunKey(x.id, run.job, run.attempt, index)
                        pending = sorted(rank.channel.unacknowledged.items())
                        sends += [Send(node, key, number, body) for number, body in pending]
        return sends

    def orders(self, node: str) -> list[ShipmentOrder]:
        """What a node was told to bring to the store and has not answered: what to send after its welcome."""
        return [
            ShipmentOrder(x.id, entry.shipper.order, entry.job, entry.info.position, entry.info.sha256)
            for x in self.experiments.values()
            for entry in x.snapshots.ordered(node)
            if entry.shipper is not None
        ]

    # ------------------------------------------------------------------------------------------------------- recovery

    def restore(self, event: ExperimentEvent) -> list[Effect]:
        """Re-applies a journalled event of one experiment, without the cluster: see `recovered`.

        Returns:
            The experiment's effects, of which recovery uses the up-calls only; the others were carried out, or are found
            again by `outstanding`.
        """
        if isinstance(event, ExperimentCreated):
            self.experiments[event.experiment] = Experiment(event)
        self._restored_at = max(self._restored_at, event.at)
        effects = dispatch.handle(self.experiments[event.experiment], event)
        for effect in effects:
            if isinstance(effect, ForgetSnapshot):
                self._forgotten[effect.experiment, effect.sha256] = event.at
        return effects

    def restore_cluster(self, event: ClusterEvent) -> None:
        """Re-applies a journalled event of the cluster's stream, in that stream's order and before `recovered`."""
        self.cluster.restore(event)

    def recovered(self) -> list[Effect]:
        """All journals are re-applied: rebuilds the cluster part. Nodes count as up until their lease runs out anew.

        Returns:
            What was asked of the outside and not answered yet (questions, timers), and the deletions from the store that the
            crash may have prevented. Nodes are told when they say hello.
        """
        oldest = self._restored_at - FORGET_AGAIN_SECONDS
        effects: list[Effect] = [
            ForgetSnapshot(owner, sha256, (), True)
            for (owner, sha256), at in self._forgotten.items()
            if at >= oldest and not self.experiments[owner].snapshots.holds(sha256)
        ]
        self._forgotten.clear()
        for x in self.experiments.values():
            if x.phase.over:
                continue
            settings = x.settings
            self.cluster.enter(x.id, Tenant(settings.weight, settings.slots, x.claimed, x.share))
            for machine in x.machines.values():
                self.cluster.adopt(x.id, machine.id, machine.node)
            for entry in x.snapshots.entries():
                for node in entry.nodes:
                    self.cluster.presume(node)
            effects += outstanding(x)
        return effects

    # ---------------------------------------------------------------------------------------------------------- inside

    def _add(self, event: ExperimentCreated) -> None:
        self.experiments[event.experiment] = Experiment(event)
        self.cluster.enter(event.experiment, Tenant(event.settings.weight, event.settings.slots))

    def _joined(self, event: NodeJoined) -> None:
        before = self.cluster.nodes.get(event.node)
        was_up = before is not None and before.up
        same = self.cluster.join(event)
        if was_up and not same:
            self._lost(event.node, event.at, event.snapshots)
        self._settle_inbox()
        unannounced = self.cluster.unannounced(event)
        for x in self._involved(event.node, event.snapshots, event.runs):
            runs = tuple(key for key in event.runs if key.experiment == x.id)
            own = {entry.info.sha256 for entry in x.snapshots.entries()}
            listed = tuple(s for s in event.snapshots if s in own)
            gone = tuple(m for m in unannounced if m in x.machines)
            lost = placement.not_run_any_more(x, event.node, frozenset(runs), frozenset(gone))
            ship = placement.not_shipped_any_more(x, event.node, frozenset(runs), frozenset(listed))
            self._inbox.append(NodeBack(event.at, x.id, event.node, runs, listed, lost, gone, ship))
        self.cluster.remove(unannounced)
        self._settle_inbox()
        unknown = tuple(key for key in event.runs if not self._wanted(key))
        self._effects.append(Welcome(event.node, unknown))
        if event.runs:
            return  # They may still have to say which snapshots they took.
        known = self._known_snapshots()
        for sha256 in event.snapshots:
            if sha256 not in known:
                self._effects.append(ForgetSnapshot("", sha256, (event.node,), False))

    def _drained(self, event: NodeDrained) -> None:
        self.cluster.drain(event.node)
        for x in self._holders(event.node):
            self._inbox.append(NodeDraining(event.at, x.id, event.node))

    def _holders(self, node: str) -> list[Experiment]:
        return [x for x in self.experiments.values() if any(m.node == node for m in x.machines.values())]

    def _known_snapshots(self) -> set[str]:
        return {e.info.sha256 for x in self.experiments.values() for e in x.snapshots.entries()}

    def _wanted(self, key: RunKey) -> bool:
        x = self.experiments.get(key.experiment)
        return x is not None and placement.wanted(x, key)

    def _involved(self, node: str, snapshots: tuple[str, ...] = (), runs: tuple[RunKey, ...] = ()) -> list[Experiment]:
        listed, named = set(snapshots), {key.experiment for key in runs}
        return [
            x
            for x in self.experiments.values()
            if x.id in named
            or any(m.node == node for m in x.machines.values())
            or any(node in e.nodes or e.info.sha256 in listed for e in x.snapshots.entries())
        ]

    def _lost(self, node: str, at: float, snapshots: tuple[str, ...]) -> None:
        for x in self._involved(node):
            own = {entry.info.sha256 for entry in x.snapshots.entries()}
            self._inbox.append(NodeLost(at, x.id, node, tuple(s for s in snapshots if s in own)))

    def _settle(self, at: float) -> None:
        self._settle_inbox()
        while grants := self.cluster.rebalance(at):
            self._inbox.extend(grants)
            self._settle_inbox()

    def _settle_inbox(self) -> None:
        while self._inbox:
            event = self._inbox.popleft()
            for effect in dispatch.handle(self.experiments[event.experiment], event):
                self._carry(effect)

    def _carry(self, effect: Effect) -> None:
        match effect:
            case DemandChanged():
                self.cluster.set_demand(effect.experiment, effect.machines)
            case TermsChanged():
                self.cluster.set_terms(effect.experiment, effect.weight, effect.cap)
            case MachineReturned():
                self.cluster.take_back(effect.experiment, effect.machine)
            case ExperimentEnded():
                self.cluster.leave(effect.experiment)
            case ExperimentRevived():
                x = self.experiments[effect.experiment]
                self.cluster.enter(effect.experiment, Tenant(x.settings.weight, x.settings.slots))
            case ForgetSnapshot() if self._needed_elsewhere(effect):
                if effect.stored:  # The store counts who needs the bytes; the copies on nodes stay for the others.
                    self._effects.append(replace(effect, nodes=()))
            case _:
                self._effects.append(effect)

    def _needed_elsewhere(self, effect: ForgetSnapshot) -> bool:
        others = (x for x in self.experiments.values() if x.id != effect.experiment)
        return any(x.snapshots.holds(effect.sha256) for x in others)


def outstanding(x: Experiment) -> list[Effect]:
    """What an experiment waits for from the outside: asked again after a recovery, since each is idempotent by its ticket."""
    effects: list[Effect] = [
        FinalPerformance(x.id, call.job, call.metrics)
        for call in x.generator_calls[x.told_generator :]
        if call.kind == "final"
    ]
    effects += x.asks.values()
    effects += [SetTimer(x.id, ticket, when) for ticket, when in x.timers.items()]
    return effects
