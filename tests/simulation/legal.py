"""Invariants of every single state of the core and of its effects, without history."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hopyard.policy.vocabulary import ExperimentState, JobState
from hopyard_engine.core import Core
from hopyard_engine.core.actions import failures
from hopyard_engine.core.actions.prediction_requests import PREDICT
from hopyard_engine.core.effects import ForgetSnapshot, Send
from hopyard_engine.core.events import NodeBack
from hopyard_engine.core.state.entities import Job, Run
from hopyard_engine.core.state.snapshot_entries import SnapshotEntry
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state_machines.snapshot_states import SnapshotState
from hopyard_engine.explain.waiting_reasons import WaitingReasons

# A second copy of the documented state table, since a seeded bug may patch that of the core.
LEGAL = {
    before: set(after.split())
    for before, after in {
        "CREATING": "PENDING HELD COMPLETED TERMINATED FAILED",
        "PENDING": "STARTING HELD COMPLETED TERMINATED FAILED",
        "STARTING": "RUNNING SUSPENDING SUSPENDED PENDING HELD COMPLETED TERMINATED FAILED",
        "RUNNING": "SUSPENDING SUSPENDED PENDING HELD COMPLETED TERMINATED FAILED",
        "SUSPENDING": "SUSPENDED PENDING HELD COMPLETED TERMINATED FAILED",
        "SUSPENDED": "STARTING PENDING HELD COMPLETED TERMINATED FAILED",
        "HELD": "PENDING SUSPENDED COMPLETED TERMINATED FAILED",
        "COMPLETED": "SUSPENDED PENDING",
        "TERMINATED": "",
        "FAILED": "",
    }.items()
}


PARTS = 3
"""The number of partitions on which the probe `hops` evaluates."""


class InvariantError(AssertionError):
    """An invariant does not hold."""


def require(holds: object, text: str, *values: object) -> None:
    """Raise InvariantError unless `holds` is true; the text is formatted only then, since formatting is slow."""
    if not holds:
        raise InvariantError(text.format(*values) if values else text)


def nobody_needs(core: Core, effect: ForgetSnapshot) -> None:
    for stream in core.streams.values():
        for entry in stream.snapshots.entries():
            if entry.info.sha256 == effect.sha256:
                theirs = not effect.stored or stream.id != effect.stream
                gone = theirs and entry.nodes.isdisjoint(effect.nodes)
                require(gone, "{} is deleted, and job {} of {} needs it", effect.sha256, entry.job, stream.id)


def all_on_its_way(core: Core, event: NodeBack) -> None:
    for entry in core.streams[event.stream].snapshots.entries():
        left = entry.shipper is None and not entry.deferred
        settled = event.node in entry.nodes and not entry.stored and left
        require(not settled, "{} is back with {}, and nobody brings it to the store", event.node, entry)


def legal_story(job: Job) -> None:
    words = [str(change).split(" ", 1)[0] for change in job.story]
    for before, after in pairwise(words):
        require(after in LEGAL[before], "job {0.id}: {1} -> {2}; story {0.story}", job, before, after)


def started_for_good(core: Core, send: Send) -> None:
    job = core.streams[send.run.stream].jobs[send.run.job]
    away = core.cluster.nodes[send.node].unschedulable
    require(not away, "{0.run} is started on {0.node}, which is drained or leaving", send)
    require(send.run.attempt <= job.attempt, "{} is started, the job is at attempt {}", send.run, job.attempt)


def released(core: Core, node: str) -> None:
    """Check that the agent of a node may end: no run is on it, and all snapshots that only it has could not be stored."""
    for stream in core.streams.values():
        for run in stream.live.values():
            require(all(rank.gone or rank.node != node for rank in run.ranks), "{} is released with {}", node, run)
        for entry in stream.snapshots.entries():
            only = entry.nodes == {node} and not entry.stored and entry.state is not SnapshotState.LOCAL
            require(stream.state.ended or not only, "{} is released with {}", node, entry)


def check_runs(stream: Stream, used: dict[str, str]) -> None:
    for name, run in stream.live.items():
        require(stream.jobs[name].run is run, "job {} and its live run disagree", name)
        alive = any(not rank.gone for rank in run.ranks)
        require(alive, "the run of job {} is live, and all its ranks are gone", name)
        for rank in run.ranks:
            if rank.gone:
                continue
            where = f"{stream.id} job {name} attempt {run.attempt}"
            require(rank.slot not in used, "slot {} holds {} and {}", rank.slot, used.get(rank.slot), where)
            used[rank.slot] = where
            held = stream.slots.get(rank.slot)
            holds = held is not None and held.run is run
            require(holds, "{} runs on {} without holding it", where, rank.slot)
    for held in stream.slots.values():
        if held.run is not None:
            alive = held.id in used and stream.live.get(held.run.job) is held.run
            require(alive, "slot {} leaks: its run is over", held.id)


def check_jobs(stream: Stream) -> None:
    for ticket, asked in stream.asks.items():
        over = asked.kind == PREDICT and stream.jobs[asked.payload["job"]].state.ended
        require(not over, "{} waits for a prediction {} of a job that is over", stream.id, ticket)
    waiting = set()
    for job in stream.jobs.values():
        state = job.state
        live = state.live
        require((job.run is not None) == live, "job {0.id} is {0.state} with run {0.run}", job)
        require((job.id in stream.live) == live, "job {0.id} is {0.state}, live: {1}", job, stream.live)
        fits = state in (JobState.HELD, JobState.CREATING, JobState.SUSPENDING) or live
        require(fits if job.held else state is not JobState.HELD, "job {0.id} is {0.state}: {0.held}", job)
        if state is JobState.HELD:
            _check_idle(stream, job)
        if state.idle:
            if not failures.is_backing_off(stream, job):
                paused_jobs = job.id in job.experiment.paused_jobs
                fits = paused_jobs != job.experiment.running
                require(fits, "job {0.id} of {0.experiment.state} paused_jobs: {1}", job, paused_jobs)
                if not paused_jobs:
                    waiting.add(job.id)
            _check_idle(stream, job)
    require(
        waiting == set(stream.idle) == set(stream.idle._keys),
        "idle jobs are {}, the queue has {}",
        waiting,
        stream.idle,
    )
    for m in stream.experiments.values():
        own = Counter(job.state for job in stream.jobs.values() if job.experiment is m)
        require(own == +Counter(m.states), "jobs of {0.id} are {1}, counted {0.states}", m, own)
        require(
            all(stream.jobs[name].state.idle for name in m.paused_jobs), "paused_jobs of {0.id}: {0.paused_jobs}", m
        )
        runs = [run for run in stream.live.values() if stream.jobs[run.job].experiment is m]
        require(not (m.state.ended and runs), "{} is over and has runs {}", m.id, runs)
    require(
        set(stream.open) == {j.id for j in stream.jobs.values() if not j.state.ended}, "open jobs are {}", stream.open
    )
    require(stream.busy == sum(not m.idle for m in stream.slots.values()), "{} slots are counted as busy", stream.busy)
    vacant = {m.id for m in stream.slots.values() if m.idle and not m.reserved}
    require(stream.vacant == vacant, "vacant are {}, counted {}", vacant, stream.vacant)
    moving = any(not entry.settled for entry in stream.snapshots.entries())
    settled = stream.snapshots.settled
    require(settled != moving, "{} counts its snapshots wrongly: settled is {}", stream.id, settled)
    require(not (stream.state.ended and (stream.live or stream.slots)), "{0.id} is over and holds {0.slots}", stream)


def _check_idle(stream: Stream, job: Job) -> None:
    source = stream.source_of(job)
    expected = source[1] if source is not None else 0
    require(job.position == expected, "job {0.id} waits at {0.position}, it can go on from {1}", job, expected)
    require(not job.forked or source is not None, "job {} waits, and what it was forked from is gone", job.id)
    if job.state is JobState.SUSPENDED:
        require(stream.snapshots.newest(job.id) is not None, "job {} is SUSPENDED without a snapshot", job.id)


def check_quota(stream: Stream) -> None:
    """Check that the size of all snapshots is correct, and that above the quota all remaining snapshots are needed."""
    sizes = {entry.info.sha256: entry.info.size for entry in stream.snapshots.entries()}
    total = sum(sizes.values())
    require(
        stream.snapshots.size == total,
        "{0.id} counts {0.snapshots.size} bytes of snapshots, there are {1}",
        stream,
        total,
    )
    limit = stream.snapshot_quota
    if limit is None:
        return
    quota_excess = max(total - limit, 0)
    require(
        stream.quota_excess == quota_excess,
        "{0.id} says that it is {0.quota_excess} bytes above {1}, with {2}",
        stream,
        limit,
        total,
    )
    if total <= limit:
        return
    for sha256 in sizes:
        holders = [entry for entry in stream.snapshots.entries() if entry.info.sha256 == sha256]
        needed = any(_vital(stream, entry) for entry in holders)
        require(needed, f"{stream.id} has {total} bytes of snapshots, {limit} allowed, and {sha256} is not needed")


def _vital(stream: Stream, entry: SnapshotEntry) -> bool:
    """Return whether a snapshot is needed, by a definition independent of the core's."""
    job, position = stream.jobs[entry.job], entry.info.position
    others = stream.snapshots.of(job.id)
    later = [e for e in others if e.info.position > position]
    newest = not later or (entry.stored and not any(e.stored for e in later))
    if later and later[-1].by_order and not later[-1].stored and len(later[-1].nodes) == 1:
        # Otherwise the loss of one node would cost more than one unit.
        elsewhere = [e for e in others[:-1] if e.stored or e.nodes - later[-1].nodes]
        newest = newest or entry in elsewhere[-1:]
    running = stream.state in (ExperimentState.RUNNING, ExperimentState.PAUSING, ExperimentState.PAUSED)
    may_fork = running or job.experiment.out_of_time
    # Other experiments of the group with the same training may still fork from a job that ended with its experiment.
    plan = job.experiment.settings.plan
    borrowers = [m for m in stream.experiments.values() if m is not job.experiment and plan and m.settings.plan == plan]
    lends = job.lends and any(not m.state.ended and m.state is not ExperimentState.ENDING for m in borrowers)
    may_fork = may_fork and (lends or job.state is not JobState.TERMINATED)
    asked = may_fork and position in (job.asked if job.kept is None else job.kept)
    best = job.experiment.best
    result = False
    if best is not None and best[0] == job.id:
        result = position == best[1] if stream.snapshots.get(job.id, best[1]) is not None else not later
    return bool(entry.pins) or (newest and not job.state.ended) or asked or result


def check_pins(stream: Stream) -> None:
    for entry in stream.snapshots.entries():
        here = (entry.job, entry.info.position)
        for pin in entry.pins:
            kind, _, holder = pin.partition(":")
            if kind == "fork":
                require(stream.jobs[holder].fork_pin == here, "{} is pinned by {}, which does not know", here, pin)
            else:
                job, _, attempt = holder.rpartition(".")
                run = stream.live.get(job)
                known = run is not None and run.attempt == int(attempt) and run.source == here
                require(known, "{} is pinned by {}, which is over or has loaded it", here, pin)
    for run in stream.live.values():
        _check_source(stream, run)
    for child in stream.jobs.values():
        if child.fork_pin is not None:
            require(not child.state.ended, "job {} ended and still pins its origin", child.id)
            entry_of = stream.snapshots.get(*child.fork_pin)
            require(entry_of is None or child.fork_holder in entry_of.pins, "job {} lost its pin", child.id)


def _check_source(stream: Stream, run: Run) -> None:
    if run.source is not None:
        entry = stream.snapshots.get(*run.source)
        require(entry is None or run.holder in entry.pins, "job {0.job} loads {0.source}, which is not pinned", run)


def check_shares(core: Core, stream: Stream) -> None:
    tenant = core.cluster.tenants.get(stream.id)
    require((tenant is None) == stream.state.ended, "{0.id} is {0.state} with tenant {1}", stream, tenant)
    if tenant is None:
        return
    require(tenant.granted == set(stream.slots), "{0.id} holds {0.slots}, the cluster says {1}", stream, tenant)
    terms = stream.terms
    require((tenant.weight, tenant.cap) == terms, "{} is {}, the cluster says {}", stream.id, terms, tenant)
    require(tenant.share == stream.share, "{0.id} has share {0.share}, the cluster says {1}", stream, tenant)
    for slot in tenant.granted:
        known = core.cluster.slots.get(slot)
        agreed = known is not None and known.holder == stream.id
        require(agreed, "{} holds {}, the cluster does not know", stream.id, slot)
    if stream.granted > stream.share and "core/share" not in stream.timers:
        leaving = sum(
            len(r.slots)
            for r in stream.live.values()
            if r.ending is not None or not r.preemptible or stream.must_finish(r)
        )
        text = "{0.id} holds {0.granted} of {0.share} after its deadline, {1} are leaving"
        require(stream.granted - leaving <= stream.share, text, stream, leaving)


def check_reasons(core: Core, stream: Stream, at: float) -> None:
    waiting = WaitingReasons(stream, core.cluster, at)
    for job in stream.open.values():
        trains = job.state is JobState.RUNNING
        require(trains or waiting.job(job), "job {0.id} of {1} is {0.state} and does not say why", job, stream.id)
    for experiment in stream.experiments.values():
        says = waiting.experiment(experiment)
        at_work = experiment.state is ExperimentState.RUNNING and any(
            stream.jobs[r.job].experiment is experiment for r in stream.live.values()
        )
        require(says or at_work, "{0.id} is {0.state}, runs nothing, and does not say why", experiment)
