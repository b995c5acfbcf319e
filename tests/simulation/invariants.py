"""Invariants that must hold after every event and fault: of the core, of the agents, and between them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hopyard.policy.vocabulary import ExperimentId, ExperimentState, JobState, StreamId
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Effect, ForgetSnapshot, JobChanged, Record, ReportAccepted, Send, Start, UpCall
from hopyard_engine.core.events import Event, NodeBack, NodeExpired, NodeJoined, PolicyAnswered, PolicyFailed
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state.timers import POLICY
from tests.simulation import training
from tests.simulation.legal import (
    PARTS,
    all_on_its_way,
    check_jobs,
    check_pins,
    check_quota,
    check_reasons,
    check_runs,
    check_shares,
    legal_story,
    nobody_needs,
    require,
    started_for_good,
)
from tests.simulation.training import Store

if TYPE_CHECKING:
    from tests.simulation.agent import Agent


class Invariants:
    """Checks the invariants of one schedule, as the watcher of its scheduler."""

    def __init__(self, agents: dict[str, Agent], store: Store) -> None:
        self.agents = agents
        self.store = store
        self._accepted: dict[tuple[str, str], int] = {}
        self._evaluated: set[tuple[str, str, str, int]] = set()
        self._states: dict[tuple[str, str], list[int]] = {}
        self._over: dict[StreamId, Stream] = {}  # A restarted scheduler does not load finished experiments.
        self._core: Core | None = None
        self._positions: dict[tuple[str, str], list[int]] = {}
        self._stored: dict[tuple[str, str], int] = {}
        self._held: dict[str, set[tuple[str, int]]] = {}
        self._live: dict[str, float] = {}
        self.reports = 0

    # ------------------------------------------------------------------------------------------------- after each event

    def handled(self, core: Core, event: Event, effects: list[Effect]) -> None:
        """Check the state after an event and its effects."""
        if core is not self._core:  # A new core has what was journalled; the rest is sent again.
            self._core, self._stored, self._held = core, {}, {}
            self._live = {stream.id: len(stream.live) for stream in core.streams.values()}
        calls: set[str] = set()
        late = isinstance(event, PolicyAnswered | PolicyFailed)  # Events that waited are handled with it.
        touched: set[str] = set()  # No experiment changes without a record in its journal.
        for effect in effects:
            if isinstance(effect, Record):
                touched.add(effect.stream)
                if isinstance(effect.event, NodeBack) and not late:
                    all_on_its_way(core, effect.event)
            elif isinstance(effect, UpCall):
                require(effect.stream not in calls, f"two up-calls of {effect.stream} at once")
                calls.add(effect.stream)
            elif isinstance(effect, ForgetSnapshot):
                nobody_needs(core, effect)
            elif isinstance(effect, JobChanged) and not effect.removed:
                legal_story(_stream(core, effect.experiment).jobs[effect.job])
            elif isinstance(effect, Send) and isinstance(effect.body, Start):
                started_for_good(core, effect)
        used: dict[str, str] = {}
        for stream in core.streams.values():
            if stream.id not in touched and stream.state.ended:
                continue
            check_runs(stream, used)
            may = stream.concurrency if stream.concurrency is not None else math.inf
            # An experiment of a group, and its limit with it, can end right after a job was started within that limit.
            before, self._live[stream.id] = self._live.get(stream.id, 0), max(len(stream.live), may)
            require(len(stream.live) <= max(before, may), "{0.id} trains {0.live}, {1} jobs may at a time", stream, may)
            if not core.awaits_answer(stream.id):  # Otherwise it has not handled changes of nodes and shares yet.
                check_shares(core, stream)
                self._check_snapshots(core, stream)
            if stream.id in touched:
                check_jobs(stream)
                check_pins(stream)
                check_quota(stream)
                self._check_stored(stream)
                self._check_held(stream, lossy=late or isinstance(event, NodeJoined | NodeExpired))
                check_reasons(core, stream, event.at)
        require(sum(t.share for t in core.cluster.tenants.values()) <= _usable(core), "more shares than slots")
        self._check_agents()

    def _check_snapshots(self, core: Core, stream: Stream) -> None:
        for entry in stream.snapshots.entries():
            require(entry.available, "{} of {} is kept and nowhere", entry, stream.id)
            sha256 = entry.info.sha256
            owned = not entry.stored or stream.id in self.store.owners.get(sha256, ())
            require(owned, "{} of {} is believed in the store, and is not", entry, stream.id)
            for node in entry.nodes:
                agent = self.agents[node]
                told = agent.alive and agent.incarnation_known == agent.life
                require(
                    core.cluster.nodes[node].up,
                    "{} of {} is believed on node {}, which is lost",
                    entry,
                    stream.id,
                    node,
                )
                if told:
                    there = sha256 in agent.disk or sha256 in agent.evicted
                    require(there, "{} of {} is believed on node {}, and is not", entry, stream.id, node)
                    # A copy that the node stores for another experiment only is as good while it exists.
                    own = stream.snapshots.keeps(node, sha256)
                    room = sha256 in agent.disk or not own or stream.id in self.store.owners.get(sha256, ())
                    require(room, "{} of {} made room on node {}, and is not in the store", entry, stream.id, node)

    def _check_stored(self, stream: Stream) -> None:
        """Check that the newest stored snapshot of an open job is replaced only by a newer one; the store loses nothing here."""
        for name in stream.open:
            highest = max((e.info.position for e in stream.snapshots.of(name) if e.stored), default=0)
            before = self._stored.get((stream.id, name), 0)
            text = "job {} of {} could fall back to {}, and now to {} only"
            require(highest >= before, text, name, stream.id, before, highest)
            self._stored[stream.id, name] = highest

    def _check_held(self, stream: Stream, lossy: bool) -> None:
        """Check that snapshots that a run loads, a fork starts from or the policy requested are never evicted, only lost."""
        held = {run.source for run in stream.live.values() if run.source is not None}
        held |= {job.fork_pin for job in stream.jobs.values() if job.fork_pin is not None}
        if stream.state in (ExperimentState.RUNNING, ExperimentState.PAUSING, ExperimentState.PAUSED):
            held |= {
                (j.id, p) for j in stream.jobs.values() if j.state is not JobState.TERMINATED for p in _asked(stream, j)
            }
        here = {source for source in held if stream.snapshots.get(*source) is not None}
        gone = (self._held.get(stream.id, set()) & held) - here
        require(lossy or not gone, "{} has dropped {}, which a run or a forked job needs", stream.id, gone)
        self._held[stream.id] = here

    def _check_agents(self) -> None:
        attempts: dict[tuple[str, str], tuple[int, str]] = {}
        for agent in self.agents.values():
            if not agent.welcomed:
                continue  # It trains while disconnected, and ends lost runs when it is back.
            for slot, process in agent.on_slot.items():
                key = process.key
                first = attempts.setdefault((key.stream, key.job), (key.attempt, slot))
                require(first[0] == key.attempt, "attempts {} and {} of one job are alive", first, key)

    # ------------------------------------------------------------------------------------------------- after each batch

    def journalled(self, core: Core, effects: Iterable[Effect]) -> None:
        """Check the reports of a batch that was written to the journal."""
        self._over.update((name, stream) for name, stream in core.streams.items() if stream.state.ended)
        for effect in effects:
            if isinstance(effect, ReportAccepted):
                self._accept(_stream(core, effect.experiment), effect)

    def reread(self, stream: Stream) -> None:
        """Replace the state of a finished experiment by that of its journal, after a crash lost its last events."""
        self._over[stream.id] = stream

    def _accept(self, stream: Stream, effect: ReportAccepted) -> None:
        self.reports += 1
        report = effect.report
        where = f"{stream.id} job {effect.job} position {report.position}"
        state = self._state(stream, effect.job, report.position)
        if report.part:
            key = (stream.id, effect.job, report.part, report.position)
            require(key not in self._evaluated, f"{where} part {report.part} is accepted twice")
            self._evaluated.add(key)
            self._check_combined(stream, effect)
            expected = training.evaluation(state, report.part)[0]
        else:
            last = self._accepted.get((stream.id, effect.job), -1)
            require(report.position > last, f"{where} is accepted after {last}")
            self._accepted[stream.id, effect.job] = report.position
            self._positions.setdefault((stream.id, effect.job), []).append(report.position)
            expected = training.metrics(state)
        require(report.metrics == expected, f"{where}: accepted {report.metrics}, an undisturbed run gives {expected}")

    def _state(self, stream: Stream, name: str, position: int) -> int:
        job = stream.jobs[name]
        assert job.hyperparameters is not None
        rates = training.Rates(job.hyperparameters)
        chain = self._states.get((stream.id, name))
        start = job.origin[1] if job.forked and job.origin is not None else 0
        if chain is None:
            first = (
                self._state(stream, job.origin[0], start)
                if job.forked and job.origin
                else training.initial(rates.before(1))
            )
            chain = self._states[stream.id, name] = [first]
        while len(chain) <= position - start:
            chain.append(training.train(chain[-1], rates.before(start + len(chain)), start + len(chain)))
        return chain[position - start] if position >= start else self._state(stream, job.origin[0], position)  # type: ignore[index]

    # ------------------------------------------------------------------------------------------------------- at the end

    def ended(self, core: Core, orphans: set[str]) -> None:
        """Check that nothing is left over when all experiments have ended and all messages have arrived."""
        known: set[str] = set()
        for stream in self.streams(core).values():
            for m in stream.experiments.values():
                require(
                    m.state in (ExperimentState.COMPLETED, ExperimentState.STOPPED),
                    f"{m.id} is {m.state.value}: {m.reason}",
                )
                require(not m.deferred, f"{m.id} still has changes to make: {m.deferred}")
                self._check_told(m, stream)
            require(
                not stream.slots and not stream.live,
                f"{stream.id} still holds {list(stream.slots)} and runs {list(stream.live)}",
            )
            late = any(m.out_of_time for m in stream.experiments.values())  # These can be extended.
            timers = [ticket for ticket in stream.timers if not (late and ticket.startswith(POLICY))]
            require(not stream.asks and not timers, f"{stream.id} still waits for {list(stream.asks)} {timers}")
            for job in stream.jobs.values():
                left = job.experiment.out_of_time or _nothing_left(job.experiment)
                waits = left and (job.state.idle or job.state is JobState.HELD)
                require(
                    job.state.ended or waits, f"job {job.id} of {stream.id} is {job.state.value}: {list(job.story)}"
                )
                require(
                    not job.state.idle or job.id in job.experiment.paused_jobs,
                    f"job {job.id} of {stream.id} would not go on",
                )
                kept, most = (
                    [e for e in stream.snapshots.of(job.id) if not e.pins],
                    max(job.terms.keep_latest, 1) + job.terms.keep_best,
                )
                # One more: the newest STORED one, if the newest is not stored.
                lasting = job.terms.plan and job.state is JobState.COMPLETED
                asked = len(job.asked) if job.experiment.out_of_time or lasting else 0
                require(len(kept) <= most + 1 + asked, f"job {job.id} of {stream.id} still keeps {kept}")
                self._check_curve(stream, job)
            forks = {job.fork_holder for job in stream.jobs.values() if not job.state.ended}
            for entry in stream.snapshots.entries():
                pins = entry.pins - forks
                require(not pins, f"snapshot {entry.job}@{entry.info.position} is still pinned by {pins}")
                known.add(entry.info.sha256)
        for stream in core.streams.values():  # All nodes have opened a session since the faults stopped.
            local = [e for e in stream.snapshots.entries() if not e.stored]
            require(not local, f"{stream.id} keeps what is not in the store: {local}")
        require(not core.cluster.tenants, f"tenants are left: {list(core.cluster.tenants)}")
        held = [m.spec.id for m in core.cluster.slots.values() if m.holder]
        require(not held, f"slots are held by nobody alive: {held}")
        garbage = set(self.store) - known - orphans
        require(not garbage, f"the store keeps what nobody needs: {sorted(garbage)}")
        for agent in self.agents.values():
            require(not agent.on_slot, f"{agent.node} still runs {list(agent.on_slot)}")
            require(not agent.channels, f"{agent.node} still has channels {list(agent.channels)}")
            require(not agent.orders, f"{agent.node} still has orders {list(agent.orders)}")
            require(set(agent.disk) <= known, f"{agent.node} keeps {sorted(set(agent.disk) - known)}")

    def streams(self, core: Core) -> dict[StreamId, Stream]:
        """Return all current and finished streams."""
        return {**self._over, **core.streams}

    def _check_combined(self, stream: Stream, effect: ReportAccepted) -> None:
        """Check that only the last part of an evaluation brings the combined metrics."""
        position = effect.report.position
        count = _parts_of(stream)
        parts = [part for *job, part, at in self._evaluated if (tuple(job), at) == ((stream.id, effect.job), position)]
        if effect.combined is None:
            require(len(parts) < count, f"job {effect.job} of {stream.id}: {count} parts of {position} make no whole")
            return
        require(len(parts) == count, f"job {effect.job} of {stream.id}: {parts} count as all parts of {position}")
        self._positions.setdefault((stream.id, effect.job), []).append(position)

    def _check_told(self, experiment: Experiment, stream: Stream) -> None:
        """Check that a generator got each accepted report once and in order, and each end of a job, as far as it reads them."""
        reads, calls = experiment.settings.generator_reads, experiment.generator_calls
        for job in (job for job in stream.jobs.values() if job.experiment is experiment):
            where = f"the generator of {experiment.id}, which reads {reads}, on job {job.id}"
            told = [call.position for call in calls if call.kind == "report" and call.job == job.id]
            accepted = self._positions.get((stream.id, job.id), []) if reads == "reports" and job.generated else []
            require(told == accepted, f"{where}: told of {told}, accepted are {accepted}")
            ends = [call.outcome for call in calls if call.kind == "final" and call.job == job.id]
            final = reads != "nothing" and job.state.ended
            require(
                ends[-1:] == ([job.state] if final else []), f"{where}: told of ends {ends}, it is {job.state.value}"
            )

    def _check_curve(self, stream: Stream, job: Job) -> None:
        if job.hyperparameters is None or (job.origin is not None and not job.forked):
            return
        for point in stream.curve(job):
            if point.whole is not None:
                state = self._state(stream, job.id, point.position)
                require(dict(point.whole) == training.metrics(state), f"curve of {job.id} at {point.position}")
            if point.parts:
                state = self._state(stream, job.id, point.position)
                all_parts = [training.evaluation(state, part) for part in point.parts]
                mean = sum(n * m["val"] for m, n in all_parts) / sum(n for _, n in all_parts)
                if len(point.parts) < _parts_of(stream):
                    require(
                        "val" not in point.metrics, f"job {job.id} at {point.position}: {len(point.parts)} parts count"
                    )
                    continue
                require(abs(point.metrics["val"] - mean) < 1e-12, f"parts of {job.id} at {point.position}")


def _parts_of(stream: Stream) -> int:
    """Return the number of parts of an evaluation."""
    return PARTS if stream.data is None else sum(name.startswith("eval/") for name in stream.data.partitions)


def _stream(core: Core, experiment: str) -> Stream:
    found = core.find(ExperimentId(experiment))
    assert found is not None
    return found[0]


def _usable(core: Core) -> int:
    return sum(not core.cluster.nodes[m.node].unschedulable for m in core.cluster.slots.values())


def _asked(stream: Stream, job: Job) -> set[int]:
    """Return the positions from which the policy may fork a job, by its requests or its last `KeepSnapshots`.

    For policies with `forks_newest`, it is only the newest existing one.
    """
    asked = job.asked if job.kept is None else job.kept
    if not stream.settings.forks_newest:
        return asked
    return {max(there)} if (there := asked.intersection(stream.snapshots.positions(job.id))) else set()


def _nothing_left(experiment: Experiment) -> bool:
    """Return whether an experiment ended with jobs that its policy did not finish, which continue if it is extended."""
    return experiment.reason is not None and experiment.reason.code is ReasonCode.NOTHING_LEFT
