"""What must hold after every event, whatever has failed: checked on the core, on the agents, and between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

from hopyard.policy.vocabulary import JobState
from hopyard_scheduler.core import Core, losses
from hopyard_scheduler.core.effects import (
    Effect,
    ForgetSnapshot,
    JobChanged,
    Record,
    ReportAccepted,
    Send,
    Start,
    UpCall,
)
from hopyard_scheduler.core.events import Event, NodeBack, NodeExpired, NodeJoined, PolicyAnswered, PolicyFailed
from hopyard_scheduler.core.experiment import Experiment
from hopyard_scheduler.core.member import Member, Phase
from hopyard_scheduler.core.model import POLICY, Job, Run
from hopyard_scheduler.core.predicting import PREDICT
from hopyard_scheduler.core.snapshots import Entry
from hopyard_scheduler.core.waiting import Waiting
from tests.simulation import training
from tests.simulation.training import Store

if TYPE_CHECKING:
    from tests.simulation.agent import Agent

# The documented state table, written down a second time: the core's own may be patched by a seeded bug.
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
"""Partitions that the probe `hops` evaluates on."""


class InvariantError(AssertionError):
    """An invariant does not hold."""


def require(holds: object, text: str, *values: object) -> None:
    """Raises InvariantError unless it holds; the text is formatted with the values only then, for that costs most."""
    if not holds:
        raise InvariantError(text.format(*values) if values else text)


class Invariants:
    """The watcher of a schedule."""

    def __init__(self, agents: dict[str, Agent], store: Store) -> None:
        self.agents = agents
        self.store = store
        self._accepted: dict[tuple[str, str], int] = {}
        self._evaluated: set[tuple[str, str, str, int]] = set()
        self._states: dict[tuple[str, str], list[int]] = {}
        self._over: dict[str, Experiment] = {}  # A restarted scheduler does not read finished experiments again.
        self._core: Core | None = None
        self._positions: dict[tuple[str, str], list[int]] = {}
        self._stored: dict[tuple[str, str], int] = {}
        self._held: dict[str, set[tuple[str, int]]] = {}
        self._live: dict[str, int] = {}
        self.reports = 0

    # ------------------------------------------------------------------------------------------------- after each event

    def handled(self, core: Core, event: Event, effects: list[Effect]) -> None:
        """The core took an event."""
        calls: set[str] = set()
        late = isinstance(
            event, PolicyAnswered | PolicyFailed
        )  # Its node may have been drained while the policy thought.
        touched: set[str] = set()  # Nothing changes in an experiment without a line in its journal.
        for effect in effects:
            if isinstance(effect, Record):
                touched.add(effect.stream)
                if isinstance(effect.event, NodeBack) and not late:
                    _all_on_its_way(core, effect.event)
            elif isinstance(effect, UpCall):
                require(effect.experiment not in calls, f"two up-calls of {effect.experiment} at once")
                calls.add(effect.experiment)
            elif isinstance(effect, ForgetSnapshot):
                _nobody_needs(core, effect)
            elif isinstance(effect, JobChanged) and not effect.removed:
                _legal_story(_stream(core, effect.experiment).jobs[effect.job])
            elif isinstance(effect, Send) and isinstance(effect.body, Start):
                _started_for_good(core, effect, late)
        used: dict[str, str] = {}
        for x in core.experiments.values():
            if x.id not in touched and x.phase.over:
                continue
            _check_runs(x, used)
            may = x.concurrency if x.concurrency is not None else len(x.live)
            # One of a group may end, and its limit with it, right after a job was started within that.
            before, self._live[x.id] = self._live.get(x.id, 0), max(len(x.live), may)
            require(len(x.live) <= max(before, may), "{0.id} trains {0.live}, {1} jobs may at a time", x, may)
            if not core.thinks(x.id):  # Else it does not know yet what has happened to nodes and shares.
                _check_shares(core, x)
                self._check_snapshots(core, x)
            if x.id in touched:
                _check_jobs(x)
                _check_pins(x)
                _check_quota(x)
                self._check_stored(core, x)
                self._check_held(x, lossy=late or isinstance(event, NodeJoined | NodeExpired))
                _check_reasons(core, x, event.at)
        require(sum(t.share for t in core.cluster.tenants.values()) <= _usable(core), "more shares than machines")
        self._check_agents()

    def _check_snapshots(self, core: Core, x: Experiment) -> None:
        for entry in x.snapshots.entries():
            require(entry.available, "{} of {} is kept and nowhere", entry, x.id)
            sha256 = entry.info.sha256
            owned = not entry.stored or x.id in self.store.owners.get(sha256, ())
            require(owned, "{} of {} is believed in the store, and is not", entry, x.id)
            for node in entry.nodes:
                agent = self.agents[node]
                told = agent.alive and agent.incarnation_known == agent.life
                require(
                    core.cluster.nodes[node].up, "{} of {} is believed on node {}, which is lost", entry, x.id, node
                )
                if told:
                    there = sha256 in agent.disk or sha256 in agent.evicted
                    require(there, "{} of {} is believed on node {}, and is not", entry, x.id, node)
                    room = sha256 in agent.disk or sha256 in self.store
                    require(room, "{} of {} made room on node {}, and is not in the store", entry, x.id, node)

    def _check_stored(self, core: Core, x: Experiment) -> None:
        """What an open job would fall back to is replaced by a newer one only: here the store loses nothing."""
        if core is not self._core:  # A new one knows what was journalled; the rest is said again.
            self._core, self._stored, self._held = core, {}, {}
        for name in x.open:
            highest = max((e.info.position for e in x.snapshots.of(name) if e.stored), default=0)
            before = self._stored.get((x.id, name), 0)
            text = "job {} of {} could fall back to {}, and now to {} only"
            require(highest >= before, text, name, x.id, before, highest)
            self._stored[x.id, name] = highest

    def _check_held(self, x: Experiment, lossy: bool) -> None:
        """What a run loads, a forked job starts from or the policy asked for goes with its last copy, never to make room."""
        held = {run.source for run in x.live.values() if run.source is not None}
        held |= {job.fork_pin for job in x.jobs.values() if job.fork_pin is not None}
        if x.phase in (Phase.RUNNING, Phase.PAUSING, Phase.PAUSED):
            held |= {(j.id, p) for j in x.jobs.values() if j.state is not JobState.TERMINATED for p in j.asked}
        here = {source for source in held if x.snapshots.get(*source) is not None}
        gone = (self._held.get(x.id, set()) & held) - here
        require(lossy or not gone, "{} has dropped {}, which a run or a forked job needs", x.id, gone)
        self._held[x.id] = here

    def _check_agents(self) -> None:
        attempts: dict[tuple[str, str], tuple[int, str]] = {}
        for agent in self.agents.values():
            if not agent.welcomed:
                continue  # It trains on while it is cut off; what it says of lost runs is refused, and it ends them when it is back.
            for machine, process in agent.on_machine.items():
                key = process.key
                first = attempts.setdefault((key.experiment, key.job), (key.attempt, machine))
                require(first[0] == key.attempt, "attempts {} and {} of one job are alive", first, key)

    # ------------------------------------------------------------------------------------------------- after each batch

    def journalled(self, core: Core, effects: Iterable[Effect]) -> None:
        """A batch is in the journal, and so are its reports."""
        self._over.update((name, x) for name, x in core.experiments.items() if x.phase.over)
        for effect in effects:
            if isinstance(effect, ReportAccepted):
                self._accept(_stream(core, effect.experiment), effect)

    def _accept(self, x: Experiment, effect: ReportAccepted) -> None:
        self.reports += 1
        report = effect.report
        where = f"{x.id} job {effect.job} position {report.position}"
        state = self._state(x, effect.job, report.position)
        if report.part:
            key = (x.id, effect.job, report.part, report.position)
            require(key not in self._evaluated, f"{where} part {report.part} is accepted twice")
            self._evaluated.add(key)
            self._check_combined(x, effect)
            expected = training.evaluation(state, report.part)[0]
        else:
            last = self._accepted.get((x.id, effect.job), -1)
            require(report.position > last, f"{where} is accepted after {last}")
            self._accepted[x.id, effect.job] = report.position
            self._positions.setdefault((x.id, effect.job), []).append(report.position)
            expected = training.metrics(state)
        require(report.metrics == expected, f"{where}: accepted {report.metrics}, an undisturbed run gives {expected}")

    def _state(self, x: Experiment, name: str, position: int) -> int:
        job = x.jobs[name]
        assert job.hyperparameters is not None
        lr = int(job.hyperparameters["lr"])
        chain = self._states.get((x.id, name))
        start = job.origin[1] if job.forked and job.origin is not None else 0
        if chain is None:
            first = self._state(x, job.origin[0], start) if job.forked and job.origin else training.initial(lr)
            chain = self._states[x.id, name] = [first]
        while len(chain) <= position - start:
            chain.append(training.train(chain[-1], lr, start + len(chain)))
        return chain[position - start] if position >= start else self._state(x, job.origin[0], position)  # type: ignore[index]

    # ------------------------------------------------------------------------------------------------------- at the end

    def ended(self, core: Core, orphans: set[str]) -> None:
        """Everything is over and everybody has said all: nothing may be left over."""
        known: set[str] = set()
        for x in {**self._over, **core.experiments}.values():
            for m in x.members.values():
                require(m.phase in (Phase.COMPLETED, Phase.STOPPED), f"{m.id} is {m.phase.value}: {m.reason}")
                require(not m.deferred, f"{m.id} still has changes to make: {m.deferred}")
                self._check_told(m, x)
            require(not x.machines and not x.live, f"{x.id} still holds {list(x.machines)} and runs {list(x.live)}")
            late = any(m.out_of_time for m in x.members.values())  # These may go on.
            timers = [ticket for ticket in x.timers if not (late and ticket.startswith(POLICY))]
            require(not x.asks and not timers, f"{x.id} still waits for {list(x.asks)} {timers}")
            for job in x.jobs.values():
                waits = job.member.out_of_time and (job.state.idle or job.state is JobState.HELD)
                require(job.state.ended or waits, f"job {job.id} of {x.id} is {job.state.value}: {list(job.story)}")
                require(not job.state.idle or job.id in job.member.withheld, f"job {job.id} of {x.id} would not go on")
                kept, most = (
                    [e for e in x.snapshots.of(job.id) if not e.pins],
                    max(job.terms.keep_latest, 1) + job.terms.keep_best,
                )
                # One more: the newest that is STORED, where the newest is not.
                asked = len(job.asked) if job.member.out_of_time else 0
                require(len(kept) <= most + 1 + asked, f"job {job.id} of {x.id} still keeps {kept}")
                self._check_curve(x, job)
            forks = {job.fork_holder for job in x.jobs.values() if not job.state.ended}
            for entry in x.snapshots.entries():
                pins = entry.pins - forks
                require(not pins, f"snapshot {entry.job}@{entry.info.position} is still pinned by {pins}")
                known.add(entry.info.sha256)
        for x in core.experiments.values():  # All nodes have said hello since the faults stopped.
            local = [e for e in x.snapshots.entries() if not e.stored]
            require(not local, f"{x.id} keeps what is not in the store: {local}")
        require(not core.cluster.tenants, f"tenants are left: {list(core.cluster.tenants)}")
        held = [m.spec.id for m in core.cluster.machines.values() if m.holder]
        require(not held, f"machines are held by nobody alive: {held}")
        garbage = set(self.store) - known - orphans
        require(not garbage, f"the store keeps what nobody needs: {sorted(garbage)}")
        for agent in self.agents.values():
            require(not agent.on_machine, f"{agent.node} still runs {list(agent.on_machine)}")
            require(not agent.channels, f"{agent.node} still has channels {list(agent.channels)}")
            require(not agent.orders, f"{agent.node} still has orders {list(agent.orders)}")
            require(set(agent.disk) <= known, f"{agent.node} keeps {sorted(set(agent.disk) - known)}")

    def _check_combined(self, x: Experiment, effect: ReportAccepted) -> None:
        """The last part, and no other, tells what all parts are together."""
        position = effect.report.position
        count = _parts_of(x)
        parts = [part for *job, part, at in self._evaluated if (tuple(job), at) == ((x.id, effect.job), position)]
        if effect.combined is None:
            require(len(parts) < count, f"job {effect.job} of {x.id}: {count} parts of {position} make no whole")
            return
        require(len(parts) == count, f"job {effect.job} of {x.id}: {parts} count as all parts of {position}")
        self._positions.setdefault((x.id, effect.job), []).append(position)

    def _check_told(self, member: Member, x: Experiment) -> None:
        """A generator is told what it reads: each accepted report of its jobs once, in their order, and how jobs ended."""
        reads, calls = member.settings.generator_reads, member.generator_calls
        for job in (job for job in x.jobs.values() if job.member is member):
            where = f"the generator of {member.id}, which reads {reads}, on job {job.id}"
            told = [call.position for call in calls if call.kind == "report" and call.job == job.id]
            accepted = self._positions.get((x.id, job.id), []) if reads == "reports" and job.generated else []
            require(told == accepted, f"{where}: told of {told}, accepted are {accepted}")
            ends = [call.outcome for call in calls if call.kind == "final" and call.job == job.id]
            final = reads != "nothing" and job.state.ended
            require(
                ends[-1:] == ([job.state] if final else []), f"{where}: told of ends {ends}, it is {job.state.value}"
            )

    def _check_curve(self, x: Experiment, job: Job) -> None:
        if job.hyperparameters is None or (job.origin is not None and not job.forked):
            return
        for point in x.curve(job):
            if point.whole is not None:
                state = self._state(x, job.id, point.position)
                require(dict(point.whole) == training.metrics(state), f"curve of {job.id} at {point.position}")
            if point.parts:
                state = self._state(x, job.id, point.position)
                all_parts = [training.evaluation(state, part) for part in point.parts]
                mean = sum(n * m["val"] for m, n in all_parts) / sum(n for _, n in all_parts)
                if len(point.parts) < _parts_of(x):
                    require(
                        "val" not in point.metrics, f"job {job.id} at {point.position}: {len(point.parts)} parts count"
                    )
                    continue
                require(abs(point.metrics["val"] - mean) < 1e-12, f"parts of {job.id} at {point.position}")


# ------------------------------------------------------------------------------------------------------------ of the core


def _parts_of(x: Experiment) -> int:
    """How many parts an evaluation has."""
    return PARTS if x.data is None else sum(name.startswith("eval/") for name in x.data.partitions)


def _nobody_needs(core: Core, effect: ForgetSnapshot) -> None:
    for x in core.experiments.values():
        for entry in x.snapshots.entries():
            if entry.info.sha256 == effect.sha256:
                theirs = not effect.stored or x.id != effect.experiment
                gone = theirs and entry.nodes.isdisjoint(effect.nodes)
                require(gone, "{} is deleted, and job {} of {} needs it", effect.sha256, entry.job, x.id)


def _all_on_its_way(core: Core, event: NodeBack) -> None:
    for entry in core.experiments[event.experiment].snapshots.entries():
        left = entry.shipper is None and not entry.held_back
        settled = event.node in entry.nodes and not entry.stored and left
        require(not settled, "{} is back with {}, and nobody brings it to the store", event.node, entry)


def _legal_story(job: Job) -> None:
    words = [line.split(" ", 1)[0] for line in job.story]
    for before, after in pairwise(words):
        require(after in LEGAL[before], "job {0.id}: {1} -> {2}; story {0.story}", job, before, after)


def _started_for_good(core: Core, send: Send, late: bool) -> None:
    job = core.experiments[send.run.experiment].jobs[send.run.job]
    leaves = late and job.run is not None and job.run.ending is not None
    drained = core.cluster.nodes[send.node].draining
    require(not drained or leaves, "{0.run} is started on {0.node}, which is drained", send)
    require(send.run.attempt <= job.attempt, "{} is started, the job is at attempt {}", send.run, job.attempt)


def _check_runs(x: Experiment, used: dict[str, str]) -> None:
    for name, run in x.live.items():
        require(x.jobs[name].run is run, "job {} and its live run disagree", name)
        alive = any(not rank.gone for rank in run.ranks)
        require(alive, "the run of job {} is live, and all its ranks are gone", name)
        for rank in run.ranks:
            if rank.gone:
                continue
            where = f"{x.id} job {name} attempt {run.attempt}"
            require(rank.machine not in used, "machine {} holds {} and {}", rank.machine, used.get(rank.machine), where)
            used[rank.machine] = where
            held = x.machines.get(rank.machine)
            holds = held is not None and held.run is run
            require(holds, "{} runs on {} without holding it", where, rank.machine)
    for held in x.machines.values():
        if held.run is not None:
            alive = held.id in used and x.live.get(held.run.job) is held.run
            require(alive, "machine {} leaks: its run is over", held.id)


def _check_jobs(x: Experiment) -> None:
    for ticket, asked in x.asks.items():
        over = asked.kind == PREDICT and x.jobs[asked.payload["job"]].state.ended
        require(not over, "{} waits for a prediction {} of a job that is over", x.id, ticket)
    waiting = set()
    for job in x.jobs.values():
        state = job.state
        live = state.live
        require((job.run is not None) == live, "job {0.id} is {0.state} with run {0.run}", job)
        require((job.id in x.live) == live, "job {0.id} is {0.state}, live: {1}", job, x.live)
        fits = state in (JobState.HELD, JobState.CREATING, JobState.SUSPENDING) or live
        require(fits if job.held else state is not JobState.HELD, "job {0.id} is {0.state}: {0.held}", job)
        if state is JobState.HELD:
            _check_idle(x, job)
        if state.idle:
            if not losses.held(x, job):
                withheld = job.id in job.member.withheld
                fits = withheld != job.member.running
                require(fits, "job {0.id} of {0.member.phase} withheld: {1}", job, withheld)
                if not withheld:
                    waiting.add(job.id)
            _check_idle(x, job)
    require(waiting == set(x.idle) == set(x.idle._keys), "idle jobs are {}, the queue has {}", waiting, x.idle)
    for m in x.members.values():
        own = Counter(job.state for job in x.jobs.values() if job.member is m)
        require(own == +Counter(m.states), "jobs of {0.id} are {1}, counted {0.states}", m, own)
        require(all(x.jobs[name].state.idle for name in m.withheld), "withheld of {0.id}: {0.withheld}", m)
        runs = [run for run in x.live.values() if x.jobs[run.job].member is m]
        require(not (m.phase.over and runs), "{} is over and has runs {}", m.id, runs)
    require(set(x.open) == {j.id for j in x.jobs.values() if not j.state.ended}, "open jobs are {}", x.open)
    require(x.busy == sum(not m.idle for m in x.machines.values()), "{} machines are counted as busy", x.busy)
    vacant = {m.id for m in x.machines.values() if m.idle and not m.reserved}
    require(x.vacant == vacant, "vacant are {}, counted {}", vacant, x.vacant)
    moving = any(not entry.settled for entry in x.snapshots.entries())
    settled = x.snapshots.settled
    require(settled != moving, "{} counts its snapshots wrongly: settled is {}", x.id, settled)
    require(not (x.phase.over and (x.live or x.machines)), "{0.id} is over and holds {0.machines}", x)


def _check_idle(x: Experiment, job: Job) -> None:
    source = x.source_of(job)
    expected = source[1] if source is not None else 0
    require(job.position == expected, "job {0.id} waits at {0.position}, it can go on from {1}", job, expected)
    require(not job.forked or source is not None, "job {} waits, and what it was forked from is gone", job.id)
    if job.state is JobState.SUSPENDED:
        require(x.snapshots.newest(job.id) is not None, "job {} is SUSPENDED without a snapshot", job.id)


def _check_quota(x: Experiment) -> None:
    """The bytes are counted as they are, and above the quota there is only what somebody needs."""
    sizes = {entry.info.sha256: entry.info.size for entry in x.snapshots.entries()}
    total = sum(sizes.values())
    require(x.snapshots.size == total, "{0.id} counts {0.snapshots.size} bytes of snapshots, there are {1}", x, total)
    limit = x.snapshot_quota
    if limit is None:
        return
    crowded = max(total - limit, 0)
    require(x.crowded == crowded, "{0.id} says that it is {0.crowded} bytes above {1}, with {2}", x, limit, total)
    if total <= limit:
        return
    for sha256 in sizes:
        holders = [entry for entry in x.snapshots.entries() if entry.info.sha256 == sha256]
        needed = any(_vital(x, entry) for entry in holders)
        require(needed, f"{x.id} has {total} bytes of snapshots, {limit} allowed, and {sha256} is not needed")


def _vital(x: Experiment, entry: Entry) -> bool:
    """Written down a second time, apart from the core's own."""
    job, position = x.jobs[entry.job], entry.info.position
    others = x.snapshots.of(job.id)
    later = [e for e in others if e.info.position > position]
    newest = not later or (entry.stored and not any(e.stored for e in later))
    if later and later[-1].by_order and not later[-1].stored and len(later[-1].nodes) == 1:
        # Else the loss of one node cost more than that.
        elsewhere = [e for e in others[:-1] if e.stored or e.nodes - later[-1].nodes]
        newest = newest or entry in elsewhere[-1:]
    running = x.phase in (Phase.RUNNING, Phase.PAUSING, Phase.PAUSED)
    may_fork = running or job.member.out_of_time
    asked = position in job.asked and may_fork and job.state is not JobState.TERMINATED
    best = job.member.best
    result = False
    if best is not None and best[0] == job.id:
        result = position == best[1] if x.snapshots.get(job.id, best[1]) is not None else not later
    return bool(entry.pins) or (newest and not job.state.ended) or asked or result


def _check_pins(x: Experiment) -> None:
    for entry in x.snapshots.entries():
        here = (entry.job, entry.info.position)
        for pin in entry.pins:
            kind, _, holder = pin.partition(":")
            if kind == "fork":
                require(x.jobs[holder].fork_pin == here, "{} is pinned by {}, which does not know", here, pin)
            else:
                job, _, attempt = holder.rpartition(".")
                run = x.live.get(job)
                known = run is not None and run.attempt == int(attempt) and run.source == here
                require(known, "{} is pinned by {}, which is over or has loaded it", here, pin)
    for run in x.live.values():
        _check_source(x, run)
    for child in x.jobs.values():
        if child.fork_pin is not None:
            require(not child.state.ended, "job {} ended and still pins its origin", child.id)
            entry_of = x.snapshots.get(*child.fork_pin)
            require(entry_of is None or child.fork_holder in entry_of.pins, "job {} lost its pin", child.id)


def _check_source(x: Experiment, run: Run) -> None:
    if run.source is not None:
        entry = x.snapshots.get(*run.source)
        require(entry is None or run.holder in entry.pins, "job {0.job} loads {0.source}, which is not pinned", run)


def _check_shares(core: Core, x: Experiment) -> None:
    tenant = core.cluster.tenants.get(x.id)
    require((tenant is None) == x.phase.over, "{0.id} is {0.phase} with tenant {1}", x, tenant)
    if tenant is None:
        return
    require(tenant.held == set(x.machines), "{0.id} holds {0.machines}, the cluster says {1}", x, tenant)
    terms = x.terms
    require((tenant.weight, tenant.cap) == terms, "{} is {}, the cluster says {}", x.id, terms, tenant)
    require(tenant.share == x.share, "{0.id} has share {0.share}, the cluster says {1}", x, tenant)
    for machine in tenant.held:
        known = core.cluster.machines.get(machine)
        agreed = known is not None and known.holder == x.id
        require(agreed, "{} holds {}, the cluster does not know", x.id, machine)
    if x.held > x.share and "core/share" not in x.timers:
        leaving = sum(len(r.machines) for r in x.live.values() if r.ending is not None or not r.preemptible)
        text = "{0.id} holds {0.held} of {0.share} after its deadline, {1} are leaving"
        require(x.held - leaving <= x.share, text, x, leaving)


def _check_reasons(core: Core, x: Experiment, at: float) -> None:
    waiting = Waiting(x, core.cluster, at)
    for job in x.open.values():
        trains = job.state is JobState.RUNNING
        require(trains or waiting.job(job), "job {0.id} of {1} is {0.state} and does not say why", job, x.id)
    for member in x.members.values():
        says = waiting.experiment(member)
        at_work = member.phase is Phase.RUNNING and any(x.jobs[r.job].member is member for r in x.live.values())
        require(says or at_work, "{0.id} is {0.phase}, runs nothing, and does not say why", member)


def _stream(core: Core, experiment: str) -> Experiment:
    found = core.find(experiment)
    assert found is not None
    return found[0]


def _usable(core: Core) -> int:
    return sum(not core.cluster.nodes[m.node].draining for m in core.cluster.machines.values())
