"""Handlers of events about a stream's slots, nodes and data."""

from __future__ import annotations

from hopyard.policy.vocabulary import RunEndReason, RunKey, SlotsChange
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.actions import earlier_results, failures, runs
from hopyard_engine.core.actions.snapshots import deferred_uploads
from hopyard_engine.core.effects import ExperimentChanged, Kill
from hopyard_engine.core.events import (
    CopiesEvicted,
    DataChanged,
    Ended,
    Imported,
    NodeBack,
    NodeDraining,
    NodeLost,
    SlotGranted,
    SlotRecalled,
)
from hopyard_engine.core.handlers import run_messages
from hopyard_engine.core.state.entities import GrantedSlot
from hopyard_engine.core.state.stream import Stream


def granted(stream: Stream, event: SlotGranted) -> None:
    """Add a granted slot to the stream and inform the policy."""
    stream.slots[event.slot] = GrantedSlot(
        event.slot,
        event.node,
        cpus=event.cpus,
        gpus=event.gpus,
        incarnation=event.incarnation,
        hardware=event.hardware,
    )
    stream.vacant.add(event.slot)
    stream.call(SlotsChange(joined=(event.slot,)))
    stream.wake()


def data_changed(stream: Stream, event: DataChanged) -> None:
    """Update the locations of partitions, inform the policy, and let it state its demand again."""
    assert stream.data is not None
    stream.data.take(event.partitions)
    stream.call(SlotsChange())
    stream.wake()
    stream.conversation.demand_outdated = stream.demand is not None


def recalled(stream: Stream, event: SlotRecalled) -> None:
    """Mark a recalled slot as draining and preempt its run. The slot is returned when it is idle.

    A run that is not preemptible continues until it ends. An unknown slot is ignored.
    """
    slot = stream.slots.get(event.slot)
    if slot is None:
        return
    stream.draining.add(slot.id)
    if slot.run is not None and slot.run.ended is None and slot.run.preemptible:
        runs.end_run(stream, slot.run, RunEndReason.PREEMPTED, displaces=True)


def node_lost(stream: Stream, event: NodeLost) -> None:
    """Remove a lost node: its snapshot copies, its slots, and its runs, which end as LOST.

    The snapshot copies are removed first, so that the jobs of the runs resume from snapshots that still exist.
    """
    kept = frozenset(event.snapshots)  # The restarted agent announced these; `node_back` follows.
    stream.snapshots.not_shipping(event.node, lambda job, attempt: True, kept)
    lost_snapshots = stream.snapshots.node_lost(event.node, kept)
    stream.snapshots_changed = True
    gone = tuple(sorted(m.id for m in stream.slots.values() if m.node == event.node))
    for slot in gone:
        stream.give_up(slot)
    for run in list(stream.live.values()):
        job = stream.jobs[run.job]
        for rank in run.ranks:
            if rank.node == event.node and not rank.gone:
                cause = Reason.of(ReasonCode.NODE_LOST, node=event.node)
                lost = Ended(RunEndReason.LOST, run.position, cause=cause)
                runs.displace(run)
                run_messages.rank_ended(stream, job, run, rank, lost, event.at)
    failures.rewind_all(stream, lost_snapshots)
    if stream.data is not None:
        stream.data.leave(event.node)
    if gone:
        stream.call(SlotsChange(lost=gone))
        stream.wake()


def not_run_any_more(stream: Stream, node: str, listed: frozenset[RunKey], gone: frozenset[str]) -> tuple[RunKey, ...]:
    """Return the channels of live runs that a node has lost although its lease did not expire.

    The result is journalled in `NodeBack`, because acknowledgements of agents, on which it depends, are not in the journal.

    Args:
        stream: The stream.
        node: The node, which has opened a session.
        listed: Channels that the node announced. A live channel that the node had accepted and that is not listed is lost.
        gone: Ids of the slots that the node no longer has. Live channels on these slots are lost too.
    """
    return tuple(
        key
        for run in stream.live.values()
        for index, rank in enumerate(run.ranks)
        if rank.node == node and not rank.gone
        for key in (RunKey(stream.id, run.job, run.attempt, index),)
        if rank.slot in gone or (key not in listed and (rank.channel.acknowledged or rank.channel.received))
    )


def not_shipped_any_more(
    stream: Stream, node: str, listed: frozenset[RunKey], disk: frozenset[str]
) -> tuple[tuple[str, int], ...]:
    """Return the snapshots (job id, position) on a node's disk that are not in the store and that no run of the node uploads any more.

    The result is journalled in `NodeBack`, because it depends on the node's announcement.

    Args:
        stream: The stream.
        node: The node, which has opened a session.
        listed: Channels that the node announced.
        disk: Hashes of the snapshots on its disk.
    """
    return tuple(stream.snapshots.unshipped(node, disk, lambda job, attempt: RunKey(stream.id, job, attempt) in listed))


def on_slots(stream: Stream, slots: frozenset[str]) -> tuple[RunKey, ...]:
    """Return the channels of the processes of live runs on the slots with these ids."""
    return tuple(
        RunKey(stream.id, run.job, run.attempt, index)
        for run in stream.live.values()
        for index, rank in enumerate(run.ranks)
        if rank.slot in slots and not rank.gone
    )


def node_back(stream: Stream, event: NodeBack) -> None:
    """Apply what a node announced when it opened a session again.

    What the node no longer has is lost: runs, snapshot copies and slots. The node gets orders for the uploads that no run performs.
    """
    listed = set(event.runs)
    stream.snapshots.node_holds(event.node, frozenset(event.snapshots))
    stream.snapshots_changed = True
    stream.snapshots.not_shipping(event.node, lambda job, attempt: RunKey(stream.id, job, attempt) not in listed)
    failures.rewind_all(stream, stream.snapshots.node_lost(event.node, frozenset(event.snapshots)))
    for key in event.lost:
        run = stream.live.get(key.job)  # The loss of one rank may already have ended the run.
        if run is not None and run.attempt == key.attempt and not run.ranks[key.rank].gone:
            cause = Reason.of(ReasonCode.NODE_WITHOUT_RUN, node=event.node)
            lost = Ended(RunEndReason.LOST, run.position, cause=cause)
            runs.displace(run)
            run_messages.rank_ended(stream, stream.jobs[run.job], run, run.ranks[key.rank], lost, event.at)
    for snapshot in (*event.ship, *stream.snapshots.left(event.node)):
        stream.snapshots.order(snapshot, event.node)
    gone = tuple(m for m in event.gone if m in stream.slots)
    for slot in gone:
        stream.give_up(slot)
    if gone:
        stream.call(SlotsChange(lost=gone))
        stream.wake()


def copies_evicted(stream: Stream, event: CopiesEvicted) -> None:
    """Remove the snapshot copies that a node deleted. From now on runs load these snapshots from the store or from another node."""
    stream.snapshots_changed = True
    jobs, lost = stream.snapshots.evicted(event.node, frozenset(event.snapshots))
    failures.rewind_all(stream, lost)
    for job in dict.fromkeys(jobs):
        stream.changed(stream.jobs[job])


def imported(stream: Stream, event: Imported) -> None:
    """Apply an import from another cluster: all slots and runs are lost, and all snapshots except those in `event.snapshots`."""
    stream.requests.add(event.request)
    earlier_results.lend_no_more(stream)
    lost_snapshots = stream.snapshots.moved(frozenset(event.snapshots))
    gone = tuple(sorted(stream.slots))
    for slot in gone:
        stream.give_up(slot)
    for run in list(stream.live.values()):
        for rank in run.ranks:
            if not rank.gone:
                lost = Ended(RunEndReason.LOST, run.position, cause=Reason(ReasonCode.OTHER_CLUSTER))
                runs.displace(run)
                run_messages.rank_ended(stream, stream.jobs[run.job], run, rank, lost, event.at)
    failures.rewind_all(stream, lost_snapshots)
    if stream.data is not None:
        stream.data.moved()
    if gone:
        stream.call(SlotsChange(lost=gone))
    for job in stream.jobs.values():
        stream.changed(job)
    for experiment in stream.experiments.values():
        stream.emit(ExperimentChanged(experiment.id))


def node_draining(stream: Stream, event: NodeDraining) -> None:
    """Return the idle slots of a drained or stopping node now, the others when their runs have left, and upload what only it has.

    Runs with an unsent start command on the node (`event.unsent`) end before they begin, including their ranks on other nodes. After
    the deadline of the drain, the processes on the node are killed, so that their runs end as LOST.
    """
    for key in event.unsent:
        run = stream.live.get(key.job)
        if run is not None and run.attempt == key.attempt:
            cause = Reason.of(ReasonCode.NODE_LEAVING if event.leaving else ReasonCode.NODE_DRAINED, node=event.node)
            never = Ended(RunEndReason.SUSPENDED, run.position, cause=cause)
            runs.displace(run)
            for rank in run.ranks:
                if not rank.gone:
                    run_messages.rank_ended(stream, stream.jobs[run.job], run, rank, never, event.at)
    for slot in stream.slots.values():
        if slot.node == event.node:
            stream.draining.add(slot.id)
            if slot.run is not None and slot.run.ended is None:
                runs.end_run(stream, slot.run, RunEndReason.SUSPENDED, displaces=True)
    if event.expired:
        for run in stream.live.values():
            for index, rank in enumerate(run.ranks):
                if rank.node == event.node and not rank.gone:
                    stream.send(run, index, Kill(Reason.of(ReasonCode.DRAIN_EXPIRED, node=event.node)))
    deferred_uploads.node_leaves(stream, event.node, event.others)


def wanted(stream: Stream, key: RunKey) -> bool:
    """Return whether an agent must keep the process with the channel `key`, which it announced.

    It must if the process is part of a live run and has not left its slot, or if the process has reported its end.
    A process that has reported its end may still send messages, such as the end of an upload. Any other process must be ended.
    """
    job = stream.jobs.get(key.job)
    channel = job.channels.get((key.attempt, key.rank)) if job is not None else None
    if job is None or channel is None:
        return False
    if channel.finished:
        return True
    run = run_messages.current_run(job, key.attempt)
    return run is not None and not run.ranks[key.rank].gone


def has_ended(stream: Stream, key: RunKey) -> bool:
    """Return whether the process with the channel `key` has reported its end. False for an unknown channel.

    After its end a process may still send messages, such as the end of an upload.
    """
    job = stream.jobs.get(key.job)
    channel = job.channels.get((key.attempt, key.rank)) if job is not None else None
    return channel is not None and channel.finished
