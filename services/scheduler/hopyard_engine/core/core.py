"""The core: all streams and the cluster that they share. It takes events, returns effects, and does no I/O."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from hopyard.policy.vocabulary import ExperimentId, RunKey, StreamId
from hopyard_engine.core import pending_answers
from hopyard_engine.core.cluster.cluster import ClusterState, Tenant
from hopyard_engine.core.cluster.division import SlotKind
from hopyard_engine.core.cluster.nodes import ClusterNodeState
from hopyard_engine.core.effects import (
    Acknowledge,
    AcknowledgeShipment,
    DemandChanged,
    Effect,
    ForgetSnapshot,
    NodeReleased,
    OrdersGiven,
    Record,
    Send,
    SetTimer,
    ShipmentOrder,
    SlotReturned,
    StreamEnded,
    StreamRevived,
    TermsChanged,
    Welcome,
)
from hopyard_engine.core.events import (
    ClusterEvent,
    CopiesEvicted,
    DeletionCompleted,
    DrainExpired,
    Event,
    ExperimentJoined,
    NodeBack,
    NodeDrained,
    NodeDraining,
    NodeEvicted,
    NodeExpired,
    NodeForgotten,
    NodeJoined,
    NodeLeaving,
    NodeLost,
    NodeUndrained,
    PolicyAnswered,
    PolicyFailed,
    RunMessage,
    SnapshotShipped,
    StoreQuotaSet,
    StreamCreated,
    StreamDeleted,
    StreamEvent,
    TimerElapsed,
)
from hopyard_engine.core.handlers import dispatch, node_events
from hopyard_engine.core.pending_answers import PendingAnswers
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state_machines.snapshot_states import SnapshotState

CLUSTER_STREAM: Final = StreamId("cluster")

_TURN: Final = "core/turn"
"""Ticket of the timer of `CLUSTER_STREAM` that elapses at the next end of a turn (`ClusterState.turn_end`)."""

FORGET_AGAIN_SECONDS = 600.0
"""Recovery repeats deletions from the store that are at most so many seconds older than the last event in the journal.
Older deletions were carried out: only those of the last batch can be missing."""


_INWARD = frozenset({DemandChanged, TermsChanged, SlotReturned, StreamEnded, StreamRevived, ForgetSnapshot})
"""Effects that change the cluster state or concern other streams, so the core handles them itself."""


class UnknownStreamError(LookupError):
    """Raised if an event names a stream that the core does not have. The argument is the id of the stream."""


class Core:
    """The deterministic state machine of the scheduler: streams, nodes, slots and shares.

    It uses no clock, socket, database or global random generator, so equal events give equal effects.

    Attributes:
        cluster: The state of nodes and slots.
        streams: The streams in memory, by id. An ended stream remains until `forget`.
    """

    def __init__(self) -> None:
        self.cluster = ClusterState()
        self.streams: dict[StreamId, Stream] = {}
        self._stream_of: dict[ExperimentId, StreamId] = {}
        self._effects: list[Effect] = []
        self._inbox: deque[StreamEvent] = deque()
        self._thinking = PendingAnswers()
        self._unschedulable_before: list[str] = []
        self._lost_before: list[tuple[StreamId, str]] = []
        self._absent_before: list[StreamId] = []
        self._forgotten: dict[tuple[StreamId, str], float] = {}
        self._restored_at = 0.0
        self._turn_timer: float | None = None

    def handle(self, event: Event) -> list[Effect]:
        """Handle one event, including all events that follow from it inside the core.

        A repeated event of a stream has no effect. It is recognized by its sequence number, ticket, request id or up-call number.
        Messages of agents for a stream that the core no longer has are only acknowledged.

        Returns:
            The effects in order. The caller journals every `Record` among them before it carries out any other effect.

        Raises:
            UnknownStreamError: The core does not have the event's stream.
        """
        self._effects = []
        self._tell_lost_before(event.at)
        self._tell_absent_before(event.at)
        match event:
            case NodeJoined():
                self._effects.append(Record(CLUSTER_STREAM, event))
                self._joined(event)
            case NodeExpired():
                self._expired(replace(event, orphans=self._orphans(event.node)))
            case NodeDrained() | NodeUndrained() | DrainExpired() | NodeLeaving() | NodeForgotten():
                self._schedulability_changed(event)
            case NodeEvicted():
                self._evicted(event)
            case StoreQuotaSet():
                self._effects.append(Record(CLUSTER_STREAM, event))
                self.cluster.store_quota = event.size
            case StreamDeleted():
                self._deleted(event)
            case DeletionCompleted():
                self._effects.append(Record(CLUSTER_STREAM, event))
                self.cluster.restore(event)
            case TimerElapsed() if event.stream == CLUSTER_STREAM:
                self._turn_timer = None
                self.cluster.touch()
            case StreamCreated():
                if event.stream in self.streams:
                    return []
                self._add(event)
                self._inbox.append(event)
            case _:
                if event.stream not in self.streams:
                    if isinstance(event, RunMessage):  # The stream has ended: acknowledge, so that the agent drops it.
                        key = RunKey(event.stream, event.job, event.attempt, event.rank)
                        return [Acknowledge(key, event.sequence)]
                    if isinstance(event, SnapshotShipped):
                        return [AcknowledgeShipment(event.node, event.stream, event.order)]
                    raise UnknownStreamError(event.stream)
                if isinstance(event, ExperimentJoined):
                    self._stream_of[event.experiment] = event.stream
                if event.stream in self._thinking:
                    self._woken(event)
                else:
                    self._inbox.append(event)
        self._settle(event.at)
        self._release()
        self._time_turns()
        effects, self._effects = self._effects, []
        return effects

    def find(self, name: ExperimentId) -> tuple[Stream, Experiment] | None:
        """Return the experiment with this id and its stream, or None if the core does not have it."""
        stream = self.streams.get(self._stream_of.get(name, StreamId("")))
        return (stream, stream.experiments[name]) if stream is not None else None

    def install(self, stream: Stream) -> None:
        """Add a stream, new or restored, so that `find` and `handle` find it and its experiments. It does not compete for slots yet."""
        self.streams[stream.id] = stream
        self._stream_of.update(dict.fromkeys(stream.experiments, stream.id))

    def admit(self, stream: Stream) -> list[Effect]:
        """Add a stream that was rebuilt from its journal, and request slots for it unless it has ended.

        The cluster may have given the slots that the stream holds by its journal to other streams, and ended its runs. With the next
        event the stream is told that it has lost them: before anything else, or after the answer to its up-call in flight. Copies of
        snapshots on nodes that are lost are lost, too. Those on other nodes count as present until the node announces what it has.

        Returns:
            Its unanswered questions and its timers, as effects to repeat; empty if it has ended.
        """
        self.install(stream)
        if stream.state.ended:
            return []
        self._enter(stream)
        if any(self._absent_events(stream, 0.0)):
            self._absent_before.append(stream.id)
            if stream.conversation.in_flight is not None:
                self.begin_up_call(stream.id)
        return outstanding(stream)

    def forget(self, name: StreamId) -> None:
        """Remove an ended stream from memory. The caller has checked that it has ended. An unknown stream is ignored."""
        stream = self.streams.pop(name, None)
        for experiment in stream.experiments if stream is not None else ():
            del self._stream_of[experiment]

    def begin_up_call(self, name: StreamId) -> None:
        """Mark that the policy of a stream has received an up-call and has not answered yet.

        Until the answer (`PolicyAnswered` or `PolicyFailed` with the number of the up-call) the caller must not pass other events of
        the stream to `handle`. Events that the cluster state creates for the stream wait in the core. They are handled directly after
        the answer.
        """
        self._thinking.begin(name)

    def awaits_answer(self, name: StreamId) -> bool:
        """Return whether a stream's policy has received an up-call and has not answered yet (see `begin_up_call`).

        False for an unknown stream.
        """
        return name in self._thinking

    def forget_pending(self, name: StreamId) -> None:
        """Drop unhandled events and collected effects after the handling of an event of the stream `name` raised an error.

        Dropped are the events of the stream that wait in the core, for the policy's answer or because they follow from the event, and
        the effects of the event so far, including those of other streams.
        """
        self._thinking.end(name)
        self._inbox = deque(event for event in self._inbox if event.stream != name)
        self._effects = []

    def acknowledge(self, key: RunKey, sequence: int) -> None:
        """Record that an agent has accepted the commands of a run's channel up to and including number `sequence`.

        This is not an event, because only the repetition of commands (`unacknowledged`) depends on it. Unknown channels are ignored.
        """
        stream = self.streams.get(key.stream)
        job = stream.jobs.get(key.job) if stream is not None else None
        channel = job.channels.get((key.attempt, key.rank)) if job is not None else None
        if channel is not None:
            channel.acknowledge(sequence)

    def unacknowledged(self, node: str) -> list[Send]:
        """Return the commands to live runs on a node that its agent has not acknowledged, to be sent again, in order for each run."""
        sends = []
        for stream in self.streams.values():
            for run in stream.live.values():
                for index, rank in enumerate(run.ranks):
                    key = RunKey(stream.id, run.job, run.attempt, index)
                    if rank.node == node and not rank.gone and not self._thinking.is_lost_by_held_event(key, node):
                        pending = sorted(rank.channel.unacknowledged.items())
                        sends += [Send(node, key, number, body) for number, body in pending]
        return sends

    def orders(self, node: str) -> list[ShipmentOrder]:
        """Return the upload orders that a node has not answered, to be sent after the answer to its announcement (`Welcome`)."""
        return [
            ShipmentOrder(stream.id, entry.shipper.order, entry.job, entry.info.position, entry.info.sha256)
            for stream in self.streams.values()
            for entry in stream.snapshots.ordered(node)
            if entry.shipper is not None
        ]

    def partners(self, node: str) -> list[str]:
        """Return the other nodes that have processes of the same runs as `node`, sorted."""
        gangs = [{r.node for r in run.ranks} for stream in self.streams.values() for run in stream.live.values()]
        return sorted({other for nodes in gangs if node in nodes for other in nodes} - {node})

    def node_state(self, name: str) -> ClusterNodeState:
        """Return the state of the node with this name.

        Raises:
            KeyError: There is no such node.
        """
        node = self.cluster.nodes[name]
        if not node.up:
            return ClusterNodeState.LOST
        if node.leaving is not None:
            return ClusterNodeState.LEAVING
        if node.drain is None:
            return ClusterNodeState.UP
        return ClusterNodeState.DRAINED if self._vacated(name) else ClusterNodeState.DRAINING

    # ------------------------------------------------------------------------------------------------------- recovery

    def restore(self, event: StreamEvent) -> list[Effect]:
        """Apply a journalled event of a stream again in a recovery. The cluster state is not changed; `recovered` rebuilds it.

        Returns:
            The effects of the event. Recovery carries out only the up-calls among them. `recovered` returns those of the others that
            must be repeated.
        """
        if isinstance(event, StreamCreated):
            self.install(Stream(event))
        self._restored_at = max(self._restored_at, event.at)
        effects = dispatch.handle(self.streams[event.stream], event)
        if isinstance(event, ExperimentJoined):
            self._stream_of[event.experiment] = event.stream
        for effect in effects:
            if isinstance(effect, ForgetSnapshot):
                self._forgotten[effect.stream, effect.sha256] = event.at
        return effects

    def restore_cluster(self, event: ClusterEvent) -> None:
        """Apply a journalled cluster event again in a recovery, in the order of the journal and before `recovered`."""
        self.cluster.restore(event)

    def recovered(self) -> list[Effect]:
        """Rebuild the cluster state after all journals are applied. Nodes are considered up until their lease expires.

        Returns:
            The unanswered questions and the timers of all streams, and the deletions from the store that the crash may have prevented.
            Messages to nodes are not among them: they are sent when the nodes open a session.
        """
        oldest = self._restored_at - FORGET_AGAIN_SECONDS
        effects: list[Effect] = [
            ForgetSnapshot(owner, sha256, (), True)
            for (owner, sha256), at in self._forgotten.items()
            if at >= oldest and not self.streams[owner].snapshots.holds(sha256)
        ]
        self._forgotten.clear()
        # A crash may have lost cluster events that waited for a policy's answer. The streams get them with the first event,
        # or after that answer.
        self._unschedulable_before = self.cluster.unschedulable
        for stream in self.streams.values():
            if stream.state.ended:
                continue
            self._enter(stream)
            for slot in stream.slots.values():
                self.cluster.adopt(stream.id, slot.spec, slot.node, slot.id in stream.draining)
            for entry in stream.snapshots.entries():
                for node in entry.nodes:
                    self.cluster.assume_up(node)
            lost = {m.node for m in stream.slots.values() if self.cluster.has_newer_incarnation(m.node, m.incarnation)}
            self._lost_before += [(stream.id, node) for node in sorted(lost)]
            if lost and stream.conversation.in_flight is not None:
                self.begin_up_call(stream.id)
            effects += outstanding(stream)
        return effects

    # ---------------------------------------------------------------------------------------------------------- inside

    def _deleted(self, event: StreamDeleted) -> None:
        """Record the deletion of a stream that has ended, and remove it from the core. For a live stream, the event has no effect."""
        stream = self.streams.get(event.stream)
        if stream is None or stream.state.ended:
            self._effects.append(Record(CLUSTER_STREAM, event))
            self.cluster.restore(event)
            self.forget(event.stream)

    def _add(self, event: StreamCreated) -> None:
        stream = Stream(event)
        self.install(stream)
        self.cluster.enter(stream.id, Tenant(*stream.terms_sent, need=need(stream)))

    def _enter(self, stream: Stream) -> None:
        """Request slots for a restored stream, with the demand, weight and maximum number of slots that it had."""
        tenant = Tenant(
            *stream.terms_sent,
            stream.claimed,
            stream.share,
            gang=stream.claimed_gang,
            need=need(stream),
            nodes=frozenset(stream.claimed_nodes),
            since=stream.share_at,
        )
        self.cluster.enter(stream.id, tenant)

    def _joined(self, event: NodeJoined) -> None:
        before = self.cluster.nodes.get(event.node)
        was_up = before is not None and before.up
        same = self.cluster.join(event)
        if was_up and not same:
            self._lost(event.node, event.at, event.snapshots)
        self._settle_inbox()
        unannounced = self.cluster.unannounced(event)
        for stream in self._involved(event.node, event.snapshots, (*event.runs, *event.discarded)):
            runs = tuple(key for key in event.runs if key.stream == stream.id)
            own = {entry.info.sha256 for entry in stream.snapshots.entries()}
            listed = tuple(s for s in event.snapshots if s in own)
            gone = tuple(m for m in unannounced if m in stream.slots)
            lost = node_events.not_run_any_more(stream, event.node, frozenset(runs), frozenset(gone))
            ship = node_events.not_shipped_any_more(stream, event.node, frozenset(runs), frozenset(listed))
            discarded = tuple(key for key in event.discarded if key.stream == stream.id)
            self._inbox.append(NodeBack(event.at, stream.id, event.node, runs, listed, lost, gone, ship, discarded))
        self.cluster.remove(unannounced)
        self._tell_draining(event.node, event.at)
        self._settle_inbox()
        unknown = tuple(key for key in event.runs if not self._wanted(key, event.node))
        self._effects.append(Welcome(event.node, unknown))
        if event.runs:
            return  # These runs may still report snapshots that they took.
        known = self._known_snapshots()
        for sha256 in event.snapshots:
            if sha256 not in known:
                self._effects.append(ForgetSnapshot(StreamId(""), sha256, (event.node,), False))

    def _evicted(self, event: NodeEvicted) -> None:
        for stream in self._involved(event.node, ()):
            mine = stream.snapshots.may_evict(event.node)
            late = self._thinking.concerns(stream.id, event.node)  # Its pending node events may add snapshots.
            gone = tuple(sha256 for sha256 in event.snapshots if late or sha256 in mine)
            if gone:
                self._inbox.append(CopiesEvicted(event.at, stream.id, event.node, gone))

    def _schedulability_changed(
        self, event: NodeDrained | NodeUndrained | DrainExpired | NodeLeaving | NodeForgotten
    ) -> None:
        """Record an event that determines whether a node gets runs, and inform the streams. A repeated event has no effect."""
        match event:
            case NodeDrained():
                changed = self.cluster.drain(event)
            case NodeUndrained():
                changed = self.cluster.undrain(event.node)
            case DrainExpired():
                changed = self.cluster.expire_drain(event.node)
            case NodeLeaving():
                changed = self.cluster.announce_leaving(event)
            case _:
                changed = self.cluster.forget(event.node)
        if changed:
            self._effects.append(Record(CLUSTER_STREAM, event))
            # Snapshots on this node no longer replace copies on the other unschedulable nodes.
            for node in self.cluster.unschedulable:
                self._tell_draining(node, event.at)

    def _expired(self, event: NodeExpired) -> None:
        if self.cluster.lose(event):
            self._effects.append(Record(CLUSTER_STREAM, event))
            self._lost(event.node, event.at, ())
            self._settle_inbox()
            # They may now have the only copies.
            for node in self.cluster.unschedulable:
                self._tell_draining(node, event.at)

    def _orphans(self, node: str) -> tuple[tuple[str, int], ...]:
        """Return the number of snapshots of which `node` has the only copy, by the id of their experiment, sorted."""
        counts = Counter(
            stream.jobs[entry.job].experiment.id
            for stream in self.streams.values()
            for entry in stream.snapshots.entries()
            if entry.nodes == {node} and not entry.stored
        )
        return tuple(sorted(counts.items()))

    def _release(self) -> None:
        """Let the stopping agents end on whose nodes nothing is needed any more."""
        for node in sorted(self.cluster.unreleased):
            if self._vacated(node):
                self.cluster.unreleased.discard(node)
                self._effects.append(NodeReleased(node))

    def _vacated(self, node: str) -> bool:
        """Return whether nothing on an unschedulable node is needed any more: no stream has slots there, and no upload is due.

        An upload is due if only unschedulable nodes have a snapshot, and it has not been given up.
        """
        away = set(self.cluster.unschedulable)
        due = (SnapshotState.UPLOADING, SnapshotState.ORDERED, SnapshotState.DEFERRED)
        return not any(
            self._thinking.concerns(stream.id, node)
            or any(slot.node == node for slot in stream.slots.values())
            or any(node in e.nodes and e.nodes <= away and e.state in due for e in stream.snapshots.entries())
            for stream in self.streams.values()
            if not stream.state.ended
        )

    def _tell_lost_before(self, at: float) -> None:
        """Send the `NodeLost` events that streams did not get before a crash. `at` is their time in seconds since the Unix epoch.

        The snapshots on these nodes are considered present until the nodes' agents announce what they have.
        """
        for name, node in self._lost_before:
            stream = self.streams[name]
            kept = tuple(sorted(e.info.sha256 for e in stream.snapshots.entries() if node in e.nodes))
            self.cluster.remove([m.id for m in stream.slots.values() if m.node == node and m.id in self.cluster.slots])
            self._inbox.append(NodeLost(at, name, node, kept))
        self._lost_before = []
        self._settle_inbox()

    def _tell_absent_before(self, at: float) -> None:
        """Tell the streams that `admit` has added what they lost while the core did not have them. `at` is the time of the events."""
        for name in self._absent_before:
            stream = self.streams.get(name)
            if stream is not None:
                self._inbox.extend(self._absent_events(stream, at))
        self._absent_before = []
        self._settle_inbox()

    def _absent_events(self, stream: Stream, at: float) -> Iterator[NodeBack | NodeLost]:
        """Yield an event for each node on which an admitted stream has lost its slots, its runs or its copies of snapshots."""
        holders = {node for entry in stream.snapshots.entries() for node in entry.nodes}
        for node in sorted(holders | {slot.node for slot in stream.slots.values()}):
            known = self.cluster.nodes.get(node)
            if known is None or known.lost_at is not None:
                yield NodeLost(at, stream.id, node, ())
                continue
            kept = tuple(sorted(e.info.sha256 for e in stream.snapshots.entries() if node in e.nodes))
            gone = tuple(sorted(slot.id for slot in stream.slots.values() if slot.node == node))
            lost = node_events.on_slots(stream, frozenset(gone))
            ship = node_events.not_shipped_any_more(stream, node, frozenset(), frozenset(kept))
            if gone or ship:
                yield NodeBack(at, stream.id, node, (), kept, lost, gone, ship)

    def _tell_draining(self, name: str, at: float) -> None:
        """Send `NodeDraining` to each stream that has slots or snapshots on the unschedulable node `name` and must act on it.

        A stream must act if it has not marked all these slots as draining, if nobody uploads a snapshot that only unschedulable nodes
        have, or if runs are left after the deadline of the drain. `at` is the time of these events in seconds since the Unix epoch.
        """
        node = self.cluster.nodes.get(name)
        if node is None or not node.unschedulable:  # The first event after a recovery changed that.
            return
        others = tuple(other for other in self.cluster.unschedulable if other != name)
        expired = node.drain is not None and node.drain.expired
        for stream in self.streams.values():
            slots = [slot for slot in stream.slots.values() if slot.node == name]
            if not stream.state.ended and (
                any(slot.id not in stream.draining or (expired and slot.run is not None) for slot in slots)
                or stream.snapshots.endangered(name, others)
            ):
                unsent = pending_answers.unsent(stream, name, self._effects)
                leaving = node.leaving is not None
                self._inbox.append(NodeDraining(at, stream.id, name, unsent, leaving, expired, others))

    def _recall(self) -> None:
        """Remove commands to processes that have left their slots, or whose run is closed, from the effects of the current event."""
        self._effects = [
            effect
            for effect in self._effects
            if not isinstance(effect, Send) or not pending_answers.in_vain(self.streams[effect.run.stream], effect)
        ]

    def _known_snapshots(self) -> set[str]:
        return {e.info.sha256 for stream in self.streams.values() for e in stream.snapshots.entries()}

    def _wanted(self, key: RunKey, node: str) -> bool:
        stream = self.streams.get(key.stream)
        if stream is None or not node_events.wanted(stream, key):
            return False
        return not self._thinking.is_lost_by_held_event(key, node) or node_events.has_ended(stream, key)

    def _involved(self, node: str, snapshots: tuple[str, ...] = (), runs: tuple[RunKey, ...] = ()) -> list[Stream]:
        listed, named = set(snapshots), {key.stream for key in runs}
        return [
            stream
            for stream in self.streams.values()
            if stream.id in named
            or any(m.node == node for m in stream.slots.values())
            or any(node in e.nodes or e.info.sha256 in listed for e in stream.snapshots.entries())
            or self._thinking.concerns(stream.id, node)
        ]

    def _lost(self, node: str, at: float, snapshots: tuple[str, ...]) -> None:
        for stream in self._involved(node):
            own = {entry.info.sha256 for entry in stream.snapshots.entries()}
            self._inbox.append(NodeLost(at, stream.id, node, tuple(s for s in snapshots if s in own)))

    def _settle(self, at: float) -> None:
        self._settle_inbox()
        while self._unschedulable_before:  # Only now, because the event may be the answer that a stream waits for.
            self._tell_draining(self._unschedulable_before.pop(), at)
            self._settle_inbox()
            self._recall()
        while self.cluster.unbalanced:
            grants = self.cluster.rebalance(at, {name: self.streams[name].slots for name in self._thinking})
            if not grants:
                break
            self._inbox.extend(grants)
            self._settle_inbox()

    def _time_turns(self) -> None:
        """Set the timer for the next end of a turn. The timer is not journalled: what follows from it, a `ShareSet`, is."""
        if self.cluster.turn_end != self._turn_timer:
            self._turn_timer = self.cluster.turn_end
            self._effects.append(SetTimer(CLUSTER_STREAM, _TURN, self._turn_timer))

    def _woken(self, event: StreamEvent) -> None:
        """Handle the policy's answer that a stream waits for, then the events that waited for the answer.

        An answer to an earlier up-call is ignored.

        Raises:
            RuntimeError: The event is not an answer.
        """
        stream = self.streams[event.stream]
        if not pending_answers.answers(stream, event):
            if isinstance(event, PolicyAnswered | PolicyFailed):
                return  # A repeated answer to an earlier up-call.
            raise RuntimeError(f"experiment {stream.id} waits for its policy's answer, found {type(event).__name__}")
        waiting = self._thinking.end(stream.id)
        self._inbox.append(event)
        self._settle_inbox()
        for waited in waiting:
            late = pending_answers.late(stream, waited, event.at)
            if isinstance(late, NodeDraining):
                late = replace(late, unsent=pending_answers.unsent(stream, late.node, self._effects))
            self._inbox.append(late)
            self._settle_inbox()
            if isinstance(late, NodeBack) and late.ship:
                self._effects.append(OrdersGiven(late.node))
        self._recall()
        self.cluster.touch()

    def _settle_inbox(self) -> None:
        while self._inbox:
            event = self._inbox.popleft()
            if self._thinking.keep(event):
                continue
            for effect in dispatch.handle(self.streams[event.stream], event):
                if type(effect) in _INWARD:
                    self._carry(effect)
                else:
                    self._effects.append(effect)

    def _carry(self, effect: Effect) -> None:
        match effect:
            case DemandChanged():
                self.cluster.set_demand(effect.stream, effect.slots, effect.gang, frozenset(effect.nodes))
            case TermsChanged():
                self.cluster.set_terms(effect.stream, effect.weight, effect.cap)
            case SlotReturned():
                self.cluster.take_back(effect.stream, effect.slot)
            case StreamEnded():
                self.cluster.leave(effect.stream)
            case StreamRevived():
                stream = self.streams[effect.stream]
                self.cluster.enter(effect.stream, Tenant(*stream.terms_sent, need=need(stream)))
            case ForgetSnapshot() if self._needed_elsewhere(effect):
                if effect.stored:  # This removes only the stream as an owner. Other streams need the copies on nodes.
                    self._effects.append(replace(effect, nodes=()))
            case _:
                self._effects.append(effect)

    def _needed_elsewhere(self, effect: ForgetSnapshot) -> bool:
        others = (stream for stream in self.streams.values() if stream.id != effect.stream)
        return any(stream.snapshots.holds(effect.sha256) for stream in others)


def need(stream: Stream) -> SlotKind:
    """Return the hardware that each slot of a stream must have, from its settings."""
    return SlotKind(stream.settings.cpus, stream.settings.gpus)


def outstanding(stream: Stream) -> list[Effect]:
    """Return the unanswered questions and the timers of a stream as effects, to be repeated after a recovery.

    Repetition is safe: the receiver recognizes a repeated question or timer by its ticket.
    """
    effects: list[Effect] = [question for question in stream.asks.values() if not stream.waits_for_person(question)]
    effects += [SetTimer(stream.id, ticket, when) for ticket, when in stream.timers.items()]
    return effects
