"""Why a job or an experiment waits, in words made from the state as it is: nothing here is stored, and nothing changes.

What the last transition said (`Job.reason`) tells the past; a waiting job's reason is a matter of the present: of its
experiment's state and share, of the slots of the cluster, of what the others hold.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cached_property

from hopyard.policy.vocabulary import ExperimentState, IterationFinish, JobState
from hopyard_engine.core.actions import failures
from hopyard_engine.core.actions.experiment_state import runs_of
from hopyard_engine.core.cluster.cluster import ClusterState
from hopyard_engine.core.handlers.commands import CREATE
from hopyard_engine.core.state.entities import Job, Run
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state.timers import BackoffTimer, IdleTimer, ShareTimer

_NAMED = 3
"""So many neighbours or nodes are named, the others counted."""

_LONG = 2.0
"""Seconds after which it is said how long a policy has been thinking."""

_SHORT = 60
"""Characters of an experiment's reason that each of its jobs repeats."""

_PAST = ("failed (", "its run was lost", "its snapshot was lost", "preempted", "back at position")
"""Beginnings of last transitions that are worth telling beside why the job waits now."""


class WaitingReasons:
    """Says why the jobs and experiments of one stream wait, at one moment: made anew for each look.

    Args:
        stream: The stream.
        cluster: The cluster that it shares with others.
        at: The time, of the clock that the core's events carry.
        policy: Why the policy cannot answer now, where it has no process; empty: it can.
    """

    def __init__(self, stream: Stream, cluster: ClusterState, at: float, policy: str = "") -> None:
        self._policy = policy if stream.conversation.in_flight is not None else ""
        self._stream = stream
        self._cluster = cluster
        self._at = at

    # ------------------------------------------------------------------------------------------------------------- jobs

    def job(self, job: Job) -> str:
        """Why a job waits; how it ended, if it has; empty while it trains.

        A job that waits, in whatever state, always has a reason.
        """
        match job.state:
            case JobState.CREATING:
                return "waits for the generator's answer"
            case JobState.HELD:
                return "paused by a person"
            case JobState.SUSPENDING if job.held:
                return f"paused by a person: {job.reason}"
            case JobState.PENDING | JobState.SUSPENDED if not job.experiment.state.ended:
                past = f"; last: {job.reason}" if job.reason.startswith(_PAST) else ""
                return self._idle(job) + past
            case JobState.STARTING if job.run is not None:
                return self._starting(job, job.run)
            case JobState.RUNNING if job.run is not None:
                return self._running(job, job.run)
            case _:
                return job.reason

    def _idle(self, job: Job) -> str:
        state = job.experiment.state
        if state is ExperimentState.ENDING:
            return "waits: the experiment is ending"
        if state is not ExperimentState.RUNNING:
            why = job.experiment.reason  # A long one is told of the experiment, and not by each of its jobs again.
            return f"waits: the experiment is {state.value.lower()}" + (f" ({why})" if len(why) <= _SHORT else "")
        if (again_at := self._stream.due(BackoffTimer(job.id))) is not None:
            return self._backs_off(job, again_at)
        return self._for_a_slot

    def _backs_off(self, job: Job, again_at: float) -> str:
        again = f"tries again in {_seconds(again_at - self._at)}"
        source = self._stream.source_of(job)
        entry = self._stream.snapshots.get(*source) if source is not None else None
        if entry is None or not entry.misses or entry.stored:
            return f"waits after {job.setbacks} losses or failures in a row: {again}"
        whose = "its snapshot" if entry.job == job.id else f"job {entry.job}'s snapshot"
        away = [node for node in sorted(entry.nodes) if not self._is_up(node)]
        if away:
            where = f"it is on {_nodes(away)}, which {'is' if len(away) == 1 else 'are'} away"
        else:
            where = f"{_nodes(sorted(entry.nodes))} did not give it"
        tried = f"try {entry.misses} of {failures.MISSES}"
        return f"waits until {whose} at {entry.info.position} can be loaded: {where} ({tried}); {again}"

    @cached_property
    def _for_a_slot(self) -> str:
        """Why the jobs that any idle slot would serve have none: the same for all of them."""
        stream, slots = self._stream, self._usable
        if self._impossible:
            return f"waits for a slot: {self._impossible}"
        if stream.conversation.in_flight is not None:
            return self._thinking
        idle = [slot for slot in stream.slots.values() if slot.idle and slot.id not in stream.draining]
        if self._missing and (idle or stream.share == 0):
            return f"waits for {self._missing}"
        if stream.share == 0:
            return f"waits for a slot: {self._its_share} is 0 of {slots}{self._limit}"
        if stream.placed > stream.share:
            return f"waits for a slot: {self._its_share} fell to {stream.share}, and {_count(stream.placed, 'is', 'are')} busy"
        if stream.placed == stream.share:
            return f"waits for a slot: {stream.placed} of {stream.share} in {self._its_share} are busy{self._limit}"
        free = sum(not slot.reserved for slot in idle)
        if idle and len(idle) < stream.gang:
            return f"waits for {stream.gang} slots at once: {_count(len(idle), 'is', 'are')} idle"
        if free:
            return f"the policy has not started it ({_count(free, 'slot is', 'slots are')} idle)"
        if idle:
            kept = _count(len(idle), "idle slot", "idle slots")
            return f"waits for a slot: the policy keeps {kept} for something else"
        missing = stream.share - stream.granted
        return (
            f"waits for a slot: {stream.placed} of {stream.share} in {self._its_share} are busy, "
            f"{missing} {'has' if missing == 1 else 'have'} yet to be left by others"
        )

    @property
    def _thinks_long(self) -> bool:
        return self._at - self._stream.conversation.asked_at >= _LONG

    @property
    def _thinking(self) -> str:
        """What is said of a policy that was asked and has not answered."""
        if self._policy:
            return f"waits for the policy: {self._policy}"
        thought = (
            f", which has been thinking for {_seconds(self._at - self._stream.conversation.asked_at)}"
            if self._thinks_long
            else ""
        )
        return f"waits for the policy{thought}"

    def _starting(self, job: Job, run: Run) -> str:
        waiting = [rank for rank in run.ranks if not rank.started and not rank.gone]
        unheard = sorted({rank.node for rank in waiting if not rank.channel.acknowledged and not rank.channel.received})
        where = f"starts on {', '.join(run.slots)}"
        if len(waiting) < len(run.ranks):
            where += f", {len(run.ranks) - len(waiting)} of {len(run.ranks)} have begun"
        if unheard:
            return f"{where}: {_nodes(unheard)} {'has' if len(unheard) == 1 else 'have'} not taken it over yet"
        if run.source is None:
            return f"{where}: its process prepares"
        whose = "its snapshot" if run.source[0] == job.id else f"job {run.source[0]}'s snapshot"
        return f"{where}: its process loads {whose} at {run.source[1]}"

    def _running(self, job: Job, run: Run) -> str:
        if run.ending is not None or run.ended is not None:
            return ""
        call = self._stream.conversation.in_flight.call if self._stream.conversation.in_flight is not None else None
        if isinstance(call, IterationFinish) and call.job == job.id:
            return f"waits at {call.position} for the policy's decision" + (f": {self._policy}" if self._policy else "")
        if run.parked and not run.amends:
            return f"parked at {run.position}: waits in memory for the policy to go on"
        return ""

    # ------------------------------------------------------------------------------------------------------ experiments

    def experiment(self, experiment: Experiment) -> str:
        """Why an experiment stands where it does, and what it waits for; empty while its jobs train within its share."""
        if experiment.state in (ExperimentState.PAUSING, ExperimentState.ENDING):
            return "; ".join(part for part in (experiment.reason, self._leaving(experiment)) if part)
        if experiment.state is not ExperimentState.RUNNING or experiment.reason:
            return experiment.reason
        if only_held := self._only_held(experiment):
            return only_held
        if self._impossible:
            return self._impossible
        if self._policy:
            return self._policy
        if runs_of(self._stream, experiment):
            return self._shrinking
        return self._nothing_runs(experiment)

    def _leaving(self, experiment: Experiment) -> str:
        """What pausing and ending wait for."""
        runs = len(runs_of(self._stream, experiment))
        if runs:
            return f"waits for {_count(runs, 'run', 'runs')} to reach a boundary and leave"
        entries = self._stream.snapshots.entries()
        unsettled = sum(not e.settled and self._stream.jobs[e.job].experiment is experiment for e in entries)
        return f"waits for {_count(unsettled, 'snapshot', 'snapshots')} to reach the store" if unsettled else ""

    def _only_held(self, experiment: Experiment) -> str:
        """That it goes on when a person resumes a job, and not before; empty: it goes on."""
        stream, held, still = self._stream, experiment.states.get(JobState.HELD, 0), experiment.jobs_left
        # Others may stand where the policy never lets them go on, as at a rung.
        done = stream.demand == 0 and not (
            stream.live or stream.asks or stream.conversation.busy or stream.conversation.demand_outdated
        )
        alone = sum(n for state, n in experiment.states.items() if not state.ended) == held
        if not held or still or not (alone or done):
            return ""
        names = [
            job.id for job in self._stream.open.values() if job.state is JobState.HELD and job.experiment is experiment
        ]
        named = _and(names if held <= _NAMED else [*names[: _NAMED - 1], f"{held - _NAMED + 1} more"])
        which = f"job {named}, which is" if held == 1 else f"jobs {named}, which are"
        return (
            f"nothing is left to train but {which} paused by a person: resume or stop {'it' if held == 1 else 'them'}"
        )

    def _nothing_runs(self, experiment: Experiment) -> str:
        stream, slots = self._stream, self._usable
        waiting = [job for job in stream.open.values() if job.experiment is experiment]
        if waiting and self._missing:
            return f"no job runs: it waits for {self._missing}"
        if (end := stream.due(IdleTimer(experiment.id))) is not None:
            left = _seconds(end - self._at)
            return f"is open for requests and has none: ends in {left} unless one comes"
        if stream.share == 0:
            return f"{self._its_share} is 0 of {_count(slots, 'slot', 'slots')}{self._limit}"
        if not stream.granted:
            others = _count(stream.share, "slot", "slots")
            return f"{self._its_share} is {stream.share} of {slots}, and others have yet to leave {others}"
        coming = [job for job in waiting if job.state is JobState.CREATING]
        if stream.conversation.in_flight is not None and not self._thinks_long:
            return self._thinking
        # Who has run already and has no slot now waits by the will of the policy: for others, as at a rung.
        first = next(
            (job for job in waiting if job.state is not JobState.CREATING and not (coming and job.attempt)), None
        )
        if first is not None:
            return f"no job runs: job {first.id} {self.job(first)}"
        if coming or any(name.startswith(CREATE) and a.experiment == experiment.id for name, a in stream.asks.items()):
            return f"waits for the generator's answer for {_count(len(coming), 'job', 'jobs')}"
        if stream.conversation.in_flight is not None:
            return self._thinking
        return f"the policy has no job to run ({_count(len(stream.vacant), 'slot is', 'slots are')} idle)"

    @property
    def _shrinking(self) -> str:
        """What it has yet to leave to others."""
        stream = self._stream
        if stream.granted <= stream.share:
            return ""
        words = f"{self._its_share} fell to {stream.share} of {self._usable}: "
        words += f"it has yet to leave {_count(stream.granted - stream.share, 'slot', 'slots')}"
        if (deadline := stream.due(ShareTimer())) is not None:
            return f"{words}, and is made to in {_seconds(deadline - self._at)}"
        return words

    # ------------------------------------------------------------------------------------------------------ the cluster

    @cached_property
    def _usable(self) -> int:
        """Slots of the cluster that are divided: all but those of drained nodes."""
        nodes = self._cluster.nodes
        return sum(not nodes[slot.node].draining for slot in self._cluster.slots.values())

    def _is_up(self, name: str) -> bool:
        node = self._cluster.nodes.get(name)
        return node is not None and node.up

    @property
    def _its_share(self) -> str:
        return "its share" if len(self._stream.experiments) == 1 else "its group's share"

    @cached_property
    def _impossible(self) -> str:
        """Why no slot of the cluster can serve it, whoever has it now; empty: they can."""
        cluster, tenant = self._cluster, self._cluster.tenants.get(self._stream.id)
        if not self._usable:
            return f"the cluster has no slot ({self._no_slot})"
        if tenant is None:
            return ""
        slots = [m for m in cluster.slots.values() if not cluster.nodes[m.node].draining]
        serving = sum(slot.kind.serves(tenant.need) for slot in slots)
        if tenant.nodes and not any(slot.node in tenant.nodes for slot in slots):
            return f"its policy can use slots of {_nodes(sorted(tenant.nodes))} only, where there is none now"
        there = _and([f"{number} with {kind}" for kind, number in sorted(Counter(m.kind for m in slots).items())])
        if not serving:
            return f"each job needs a slot with {tenant.need} (resources.per_job); there are {there}"
        if serving < tenant.gang:
            return f"each job needs {tenant.gang} slots with {tenant.need} at once; there are {there}"
        if tenant.cap is not None and tenant.cap < tenant.gang:
            return f"each job needs {tenant.gang} slots at once; resources.slots allows {tenant.cap}"
        return ""

    @cached_property
    def _missing(self) -> str:
        """Partitions of the experiment's data that no live node holds, and where they should be; empty: none is."""
        data = self._stream.data
        missing = data.missing() if data is not None else []
        if data is None or not missing:
            return ""
        names = [one.name for one in missing]
        shown = names if len(names) <= _NAMED else [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} more"]
        word = f"{'partition' if len(names) == 1 else 'partitions'} {_and(shown)} of data set {data.name}"
        homes = sorted({node for one in missing for node in one.homes})
        if not homes:
            return f"{word}: the catalog has none of that name and content (hopyard data list)"
        away = [node for node in homes if not self._is_up(node)]
        why = f"{_nodes(away)} {'is' if len(away) == 1 else 'are'} away" if away else f"{_nodes(homes)} lost the file"
        return f"{word}: {why} (hopyard data show {data.name})"

    @cached_property
    def _no_slot(self) -> str:
        """Why the cluster has no slot that may be used."""
        cluster = self._cluster
        if cluster.slots:
            return f"{_count(len(cluster.slots), 'is', 'are')} being drained"
        if any(node.up for node in cluster.nodes.values()):
            return "its agents have brought none"
        lost = sorted(cluster.nodes)
        gone = f"; {_nodes(lost)} {'is' if len(lost) == 1 else 'are'} lost" if lost else ""
        return f"no agent is connected{gone}"

    @cached_property
    def _limit(self) -> str:
        """What keeps the share from being larger, after a separator; empty: it is all there is."""
        stream, slots = self._stream, self._usable
        tenant = self._cluster.tenants.get(stream.id)
        if tenant is None or stream.share >= slots:
            return ""
        if stream.concurrency is not None and len(stream.live) >= stream.concurrency:
            return f": resources.concurrency is {stream.concurrency}"
        if tenant.demand is not None and stream.share + tenant.gang > tenant.demand:
            return f": the policy can use {'none now' if tenant.demand == 0 else f'no more than {tenant.demand} now'}"
        if tenant.cap is not None and stream.share + tenant.gang > tenant.cap:
            if stream.concurrency is not None:
                return f": resources.concurrency is {stream.concurrency}"
            return f": resources.slots is {tenant.cap}"
        others = [(name, t) for name, t in sorted(self._cluster.tenants.items()) if name != stream.id and t.share]
        named = [f"{name} (weight {t.weight:g}: {t.share})" for name, t in others[:_NAMED]]
        if len(others) > _NAMED:
            named.append(f"{len(others) - _NAMED} more")
        return f": weight {tenant.weight:g} beside {_and(named)}" if named else ""


def _seconds(left: float) -> str:
    return f"{max(math.ceil(left), 0)} s"


def _count(amount: int, one: str, many: str) -> str:
    return f"{amount} {one if amount == 1 else many}"


def _nodes(names: list[str]) -> str:
    """`node a`, `nodes a and b`."""
    shown = names[:_NAMED] if len(names) <= _NAMED else [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} more"]
    return f"{'node' if len(names) == 1 else 'nodes'} {_and(shown)}"


def _and(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
