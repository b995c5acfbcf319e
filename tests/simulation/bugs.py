"""Seeded bugs: each removes a safeguard of the core, and the invariants must detect that."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from hopyard.policy.vocabulary import StartJob, StreamId
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core import Core, pending_answers
from hopyard_engine.core.actions import command_checks, failures, generator_feedback, runs
from hopyard_engine.core.actions.snapshots import eviction, store_quota
from hopyard_engine.core.cluster.cluster import ClusterState
from hopyard_engine.core.cluster.nodes import ClusterNode
from hopyard_engine.core.events import (
    Ended,
    NodeLost,
    PolicyAnswered,
    ShareSet,
    SlotGranted,
    SlotRecalled,
    StreamEvent,
)
from hopyard_engine.core.handlers import dispatch, node_events, preemption, run_messages
from hopyard_engine.core.pending_answers import PendingAnswers
from hopyard_engine.core.state import snapshot_entries, snapshots
from hopyard_engine.core.state.channel import RunChannel
from hopyard_engine.core.state.entities import GrantedSlot, Job, Rank, Run
from hopyard_engine.core.state.snapshot_entries import SnapshotEntry
from hopyard_engine.core.state.snapshots import SnapshotBook
from hopyard_engine.core.state.stream import Stream

ALL = ("predict", "rungs", "tree", "hops")
Patch = tuple[Any, str, Any]


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug that removes a safeguard within the context `seeded()`.

    Attributes:
        patches: Returns the replacements (object, attribute, new value) that remove the safeguard.
        probes: The probes that should detect the bug, used in turn.
        first: The seed of the first schedule, for rare bugs: one near a schedule that detects it.
    """

    patches: Callable[[], list[Patch]]
    probes: tuple[str, ...] = ALL
    first: int = 0

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """Apply the bug to the core within the context."""
        with ExitStack() as stack:
            for target, name, replacement in self.patches():
                stack.enter_context(mock.patch.object(target, name, replacement))
            yield


def _attempt_unchecked() -> list[Patch]:
    def current_run(job: Job, attempt: int) -> Run | None:
        return job.run

    return [(run_messages, "current_run", current_run)]


def _lease_kept_after_node_death() -> list[Patch]:
    real = node_events.node_lost

    def node_lost(stream: Stream, event: NodeLost) -> None:
        live, stream.live = stream.live, {}
        real(stream, event)
        stream.live = live

    return [(node_events, "node_lost", node_lost)]


def _sequence_unchecked() -> list[Patch]:
    return [(RunChannel, "is_next", lambda self, sequence: sequence >= self.received)]


def _pin_leaked() -> list[Patch]:
    return [(SnapshotBook, "unpin", lambda self, snapshot, holder: None)]


def _gang_on_busy_slot() -> list[Patch]:
    def gang(stream: Stream, job: Job, command: StartJob) -> list[GrantedSlot]:
        found = [stream.slots[m] for m in command.slots if m in stream.slots]
        if len(found) > 1 or any(m.idle for m in found):
            busy = [m for m in stream.slots.values() if not m.idle and m not in found]
            return found if len(found) == 1 else [found[0], *(busy or found[1:])[:1]]
        raise command_checks.RefusedError(Reason.of(ReasonCode.SLOT_NOT_IDLE, slot=""))

    return [(runs, "_gang", gang)]


def _local_snapshot_outlives_its_node() -> list[Patch]:
    return [(SnapshotBook, "node_lost", lambda self, node, kept=frozenset(): [])]


def _high_water_ignored() -> list[Patch]:
    real = run_messages._report

    def report(stream: Stream, job: Job, run: Run, *rest: Any) -> None:
        job.high_water = min(job.high_water, rest[0].position - 1)
        real(stream, job, run, *rest)

    return [(run_messages, "_report", report)]


def _loaded_snapshot_dropped() -> list[Patch]:
    def collect(
        self: SnapshotBook, job: str, keep: bool, value: Any, how_many: Any = None, asked: Any = ()
    ) -> list[Any]:
        by_position = self._entries.get(job, {})
        kept = snapshot_entries.retained(by_position, value, how_many) if keep else set()
        return [d for p in list(by_position) if p not in kept for d in self.released(by_position.pop(p))]

    return [(SnapshotBook, "collect", collect)]


def _slot_not_returned() -> list[Patch]:
    def take_back(self: ClusterState, experiment: str, slot: str) -> None:
        if experiment in self.tenants:
            self.tenants[StreamId(experiment)].granted.discard(slot)

    return [(ClusterState, "take_back", take_back)]


def _double_completion() -> list[Patch]:
    real = run_messages.rank_ended

    def rank_ended(stream: Stream, job: Job, run: Run, rank: Rank, body: Ended, at: float) -> None:
        real(stream, job, run, rank, body, at)
        if job.run is None and job.state.ended:
            stream.live[job.id] = run
            run_messages.close_run(stream, job, run, at)

    return [(run_messages, "rank_ended", rank_ended)]


def _run_over_with_a_rank_alive() -> list[Patch]:
    real = run_messages.rank_ended

    def rank_ended(stream: Stream, job: Job, run: Run, rank: Rank, body: Ended, at: float) -> None:
        for other in run.ranks[1:]:
            if other is not rank and not other.gone and rank is run.ranks[0]:
                other.gone = True
                stream.free(other.slot)
        real(stream, job, run, rank, body, at)

    return [(run_messages, "rank_ended", rank_ended)]


def _up_call_number_unchecked() -> list[Patch]:
    real = dispatch._changes_state

    def is_news(stream: Stream, event: StreamEvent) -> bool:
        return stream.conversation.in_flight is not None if isinstance(event, PolicyAnswered) else real(stream, event)

    return [(dispatch, "_changes_state", is_news)]


def _share_ignored() -> list[Patch]:
    return [(preemption, "preempt", lambda x: None)]


def _fork_from_lost_snapshot_starts_anew() -> list[Patch]:
    return [(failures, "rewind_all", lambda x, lost: None)]


def _newest_stored_not_retained() -> list[Patch]:
    def retained(by_position: dict[int, SnapshotEntry], value: Any, how_many: Any) -> set[int]:
        return {p for p, e in by_position.items() if e.available and not e.nodes}

    return [(snapshots, "retained", retained)]


def _unstorable_snapshot_waited_for() -> list[Patch]:
    return [(SnapshotBook, "given_up", lambda self, job, position, sha256, attempt: False)]


def _local_snapshots_left_on_their_node() -> list[Patch]:
    return [(node_events, "not_shipped_any_more", lambda x, node, listed, disk: ())]


def _not_asked_after_a_wait() -> list[Patch]:
    real = failures.end_backoff

    def end_backoff(stream: Stream, job: Job | None) -> None:
        real(stream, job)
        stream.conversation.demand_outdated = False

    return [(failures, "end_backoff", end_backoff)]


def _lives_forgotten() -> list[Patch]:
    def assume_up(self: ClusterState, name: str) -> None:
        node = self.nodes.setdefault(name, ClusterNode(name))
        node.incarnation, node.up = "", True

    return [(ClusterState, "assume_up", assume_up)]


def _bytes_of_another_experiment_deleted() -> list[Patch]:
    return [(Core, "_needed_elsewhere", lambda self, effect: False)]


def _quota_ignored() -> list[Patch]:
    return [(eviction, "keep_within", lambda x: None)]


def _quota_drops_what_a_job_falls_back_to() -> list[Patch]:
    real = SnapshotBook.vital
    return [(SnapshotBook, "vital", lambda self, job: {max(real(self, job))} if real(self, job) else set())]


def _quota_drops_what_is_loaded() -> list[Patch]:
    real = eviction.needed

    def needed(stream: Stream, job: Job, entry: SnapshotEntry) -> bool:
        pins, entry.pins = entry.pins, set()
        try:
            return real(stream, job, entry)
        finally:
            entry.pins = pins

    return [(eviction, "needed", needed)]


def _room_takes_what_is_needed() -> list[Patch]:
    return [(store_quota, "_needed", lambda x, entry: False)]


def _asked_snapshots_not_kept() -> list[Patch]:
    return [(Stream, "asked", lambda self, job: set())]


def _thinking_disturbed() -> list[Patch]:
    return [(PendingAnswers, "keep", lambda self, event: False)]


def _believed_slot_granted() -> list[Patch]:
    real = ClusterState.rebalance

    def rebalance(
        self: ClusterState, at: float, thinking: Mapping[str, Container[str]]
    ) -> list[ShareSet | SlotGranted | SlotRecalled]:
        return real(self, at, dict.fromkeys(thinking, ()))

    return [(ClusterState, "rebalance", rebalance)]


def _started_in_vain() -> list[Patch]:
    return [(pending_answers, "in_vain", lambda x, send: False)]


def _generator_not_told() -> list[Patch]:
    return [(generator_feedback, "tell_report", lambda job, report: None)]


def _predictions_of_jobs_that_are_over() -> list[Patch]:
    return [(Stream, "withdraw_predictions", lambda self, job: None)]


BUGS: dict[str, Bug] = {
    "attempt unchecked": Bug(_attempt_unchecked, first=27),
    "lease kept after node death": Bug(_lease_kept_after_node_death),
    "sequence unchecked": Bug(_sequence_unchecked, first=38),
    "double completion": Bug(_double_completion),
    "snapshot pin leaked": Bug(_pin_leaked),
    "gang started on a busy slot": Bug(_gang_on_busy_slot, ("hops",)),
    "gang over while a rank is alive": Bug(_run_over_with_a_rank_alive, ("hops",)),
    "local snapshot outlives its node": Bug(_local_snapshot_outlives_its_node),
    "high-water mark ignored": Bug(_high_water_ignored),
    "snapshot dropped while it is loaded": Bug(_loaded_snapshot_dropped),
    "answer to an older up-call taken": Bug(_up_call_number_unchecked),
    "slot not returned": Bug(_slot_not_returned),
    "share ignored at the deadline": Bug(_share_ignored, ("predict", "rungs", "tree"), first=27),
    "fork from a lost snapshot starts anew": Bug(_fork_from_lost_snapshot_starts_anew),
    "snapshot collected that is needed": Bug(_newest_stored_not_retained),
    "snapshot waited for that cannot be stored": Bug(_unstorable_snapshot_waited_for, first=217),
    "local snapshots left on their node": Bug(_local_snapshots_left_on_their_node, first=29),
    "policy not asked when a wait is over": Bug(_not_asked_after_a_wait, ("barrier",), first=89),
    "lives of agents forgotten": Bug(_lives_forgotten, first=36),
    "bytes deleted that another experiment needs": Bug(_bytes_of_another_experiment_deleted),
    "snapshot quota ignored": Bug(_quota_ignored),
    "quota drops what a job would fall back to": Bug(_quota_drops_what_a_job_falls_back_to),
    "quota drops what a run loads": Bug(_quota_drops_what_is_loaded, first=14),
    "room taken of what is needed": Bug(_room_takes_what_is_needed, first=3),
    "snapshot dropped that the policy asked for": Bug(_asked_snapshots_not_kept, ("rungs", "tree")),
    "an event is applied during a pending up-call": Bug(_thinking_disturbed),
    "slot granted that an experiment with a pending up-call still holds": Bug(_believed_slot_granted, first=34),
    "commands sent to processes lost during a pending up-call": Bug(_started_in_vain, first=87),
    "generator not told of reports": Bug(_generator_not_told),
    "predictions awaited of jobs that are over": Bug(_predictions_of_jobs_that_are_over, ("predict",)),
}
