"""Explains why a job or an experiment waits. The reason is computed from the current state and not stored.

`Job.reason` is the reason of the last state change. Why a job waits now depends on the current state: the state and share of its
experiment, the slots of the cluster, and the slots that are granted to other streams.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cached_property

from hopyard.policy.vocabulary import ExperimentState, IterationFinish, JobState
from hopyard.policy.vocabulary.reasons import Argument, Reason, ReasonCode
from hopyard_engine.core.actions import failures
from hopyard_engine.core.actions.experiment_state import runs_of
from hopyard_engine.core.cluster.cluster import ClusterState
from hopyard_engine.core.handlers.commands import CREATE
from hopyard_engine.core.state.entities import Job, Run
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state.timers import BackoffTimer, IdleTimer, ShareTimer

_NAMED = 3
"""Maximum number of other streams or nodes to name in a reason; if there are more, their number is given."""

_LONG = 2.0
"""Seconds without a policy's answer after which the reason contains the elapsed time."""

_SHORT = 60
"""Maximum length in characters of an experiment's reason for it to be repeated in the reasons of the experiment's jobs."""

_PAST = frozenset(
    [
        ReasonCode.FAILED,
        ReasonCode.RUN_LOST,
        ReasonCode.SNAPSHOT_LOST,
        ReasonCode.SNAPSHOT_UNUSABLE,
        ReasonCode.PREEMPTED,
        ReasonCode.BACK_AT_POSITION,
    ]
)
"""Reasons of the last state change that are added to the reason why a job waits."""


class WaitingReasons:
    """Explains why the jobs and experiments of a stream wait at one moment. Results are cached, so each query needs a new object.

    Args:
        stream: The stream.
        cluster: The state of its cluster.
        at: The current time in seconds since the Unix epoch, by the clock of the core's events.
        policy: Why the policy cannot answer now, if its process is missing; None: it can.
    """

    def __init__(self, stream: Stream, cluster: ClusterState, at: float, policy: Reason | None = None) -> None:
        self._policy = policy if stream.conversation.in_flight is not None else None
        self._stream = stream
        self._cluster = cluster
        self._at = at

    # ------------------------------------------------------------------------------------------------------------- jobs

    def job(self, job: Job) -> Reason | None:
        """Return why a job waits, or how it ended; None while it trains or its run is ending. A waiting job always has a reason.

        A job that trains has a reason, too, if a run of it failed and it has reported nothing new since.
        """
        match job.state:
            case JobState.CREATING if not job.experiment.generator_failed:
                return Reason(ReasonCode.WAITS_FOR_GENERATOR)
            case JobState.CREATING:
                return self._idle(job)
            case JobState.HELD:
                return Reason(ReasonCode.PAUSED_BY_PERSON)
            case JobState.SUSPENDING if job.held:
                return Reason.of(ReasonCode.PAUSED_BY_PERSON, cause=job.reason)
            case JobState.PENDING | JobState.SUSPENDED if not job.experiment.state.ended:
                told = job.reason is not None and job.reason.code in _PAST
                return self._idle(job).plus(last=job.reason if told else job.failure)
            case JobState.STARTING if job.run is not None:
                return self._starting(job, job.run).plus(last=job.failure)
            case JobState.RUNNING if job.run is not None:
                return self._running(job, job.run)
            case _:
                return job.reason

    def _idle(self, job: Job) -> Reason:
        state = job.experiment.state
        if state is ExperimentState.ENDING:
            return Reason(ReasonCode.WAITS_EXPERIMENT_ENDING)
        if state is not ExperimentState.RUNNING:
            why = job.experiment.reason  # A long reason is shown once, for the experiment.
            cause = why if len(str(why)) <= _SHORT else None
            return Reason.of(ReasonCode.WAITS_EXPERIMENT_PAUSED, state=state.value.lower(), cause=cause)
        if (again_at := self._stream.due(BackoffTimer(job.id))) is not None:
            return self._backs_off(job, again_at)
        return self._for_a_slot

    def _backs_off(self, job: Job, again_at: float) -> Reason:
        again = _seconds(again_at - self._at)
        source = self._stream.source_of(job)
        entry = self._stream.snapshots.get(*source) if source is not None else None
        if entry is None or not entry.misses or entry.stored:
            return Reason.of(ReasonCode.WAITS_AFTER_SETBACKS, setbacks=job.setbacks, seconds=again)
        away = [node for node in sorted(entry.nodes) if not self._is_up(node)]
        nodes = away or sorted(entry.nodes)
        return Reason.of(
            ReasonCode.WAITS_FOR_AWAY_SNAPSHOT if away else ReasonCode.WAITS_FOR_SNAPSHOT,
            owner=entry.job if entry.job != job.id else None,
            position=entry.info.position,
            count=len(nodes),
            nodes=_listed(nodes),
            misses=entry.misses,
            tries=failures.MISSES,
            seconds=again,
        )

    @cached_property
    def _for_a_slot(self) -> Reason:
        """The reason why an idle job that can use any slot has none. It is the same for all such jobs of the stream."""
        stream = self._stream
        if self._impossible is not None:
            return Reason.of(ReasonCode.WAITS_FOR_SLOT, cause=self._impossible)
        if stream.conversation.in_flight is not None:
            return self._thinking
        idle = [slot for slot in stream.slots.values() if slot.idle and slot.id not in stream.draining]
        if self._missing is not None and (idle or stream.share == 0):
            return Reason.of(ReasonCode.WAITS_FOR_DATA, cause=self._missing)
        free = sum(not slot.reserved for slot in idle)
        return self._within_the_share or self._unstarted(len(idle), free)

    @property
    def _within_the_share(self) -> Reason | None:
        """The reason why jobs wait if runs occupy all slots of the share; None if at least one slot of the share is not occupied.

        The reason says whether the share is 0, was reduced below the number of occupied slots, or is equal to this number.
        """
        stream, whose, limit = self._stream, self._whose, self._limit
        if stream.share == 0:
            return Reason.of(ReasonCode.WAITS_SHARE_EMPTY, whose=whose, slots=self._usable, limit=limit)
        if stream.placed > stream.share:
            return Reason.of(ReasonCode.WAITS_SHARE_REDUCED, whose=whose, share=stream.share, placed=stream.placed)
        if stream.placed == stream.share:
            code = ReasonCode.WAITS_SHARE_BUSY
            return Reason.of(code, placed=stream.placed, share=stream.share, whose=whose, limit=limit)
        return None

    def _unstarted(self, idle: int, free: int) -> Reason:
        """Return the reason why an idle job has no slot although the share is not used up.

        Args:
            idle: Number of idle slots of the stream.
            free: Number of these that are not reserved.
        """
        stream = self._stream
        if idle and idle < stream.gang:
            return Reason.of(ReasonCode.WAITS_FOR_GANG, gang=stream.gang, idle=idle)
        if free:
            return Reason.of(ReasonCode.WAITS_UNSTARTED, idle=free)
        if idle:
            return Reason.of(ReasonCode.WAITS_RESERVED, idle=idle)
        return Reason.of(
            ReasonCode.WAITS_SHARE_NOT_FREE,
            placed=stream.placed,
            share=stream.share,
            whose=self._whose,
            missing=stream.share - stream.granted,
        )

    @property
    def _thinks_long(self) -> bool:
        return self._at - self._stream.conversation.asked_at >= _LONG

    @property
    def _thinking(self) -> Reason:
        """The reason why jobs wait while the policy is computing an answer."""
        if self._policy is not None:
            return Reason.of(ReasonCode.WAITS_FOR_POLICY, cause=self._policy)
        thought = _seconds(self._at - self._stream.conversation.asked_at) if self._thinks_long else None
        return Reason.of(ReasonCode.WAITS_FOR_POLICY, seconds=thought)

    def _starting(self, job: Job, run: Run) -> Reason:
        waiting = [rank for rank in run.ranks if not rank.started and not rank.gone]
        unheard = sorted({rank.node for rank in waiting if not rank.channel.acknowledged and not rank.channel.received})
        args: dict[str, Argument] = {"slots": ", ".join(run.slots)}
        if len(waiting) < len(run.ranks):
            args |= {"begun": len(run.ranks) - len(waiting), "ranks": len(run.ranks)}
        if unheard:
            return Reason.of(ReasonCode.STARTS_UNHEARD, **args, count=len(unheard), nodes=_listed(unheard))
        if run.source is None:
            return Reason(ReasonCode.STARTS_PREPARING, args)
        owner = run.source[0] if run.source[0] != job.id else None
        return Reason.of(ReasonCode.STARTS_LOADING, **args, owner=owner, position=run.source[1])

    def _running(self, job: Job, run: Run) -> Reason | None:
        if run.ending is not None or run.ended is not None:
            return None
        call = self._stream.conversation.in_flight.call if self._stream.conversation.in_flight is not None else None
        if isinstance(call, IterationFinish) and call.job == job.id:
            code = ReasonCode.WAITS_FOR_DECISION
            return Reason.of(code, position=call.position, cause=self._policy, last=job.failure)
        if run.parked and not run.amends:
            return Reason.of(ReasonCode.PARKED, position=run.position, last=job.failure)
        if job.failure is None:
            return None
        # The number of runs so far and of the failures that are still allowed, each of which is followed by another run.
        left, cause = job.failure.args["left"], job.failure.args["cause"]
        assert isinstance(left, int)
        code = ReasonCode.ATTEMPT_AFTER_FAILURE
        return Reason.of(code, attempt=job.attempt, attempts=job.attempt + left, cause=cause)

    # ------------------------------------------------------------------------------------------------------ experiments

    def experiment(self, experiment: Experiment) -> Reason | None:
        """Return the reason of an experiment's state and what the experiment waits for; None while its jobs train within its share.

        For a PAUSED or ended experiment this is the recorded reason of its state.
        """
        if experiment.state in (ExperimentState.PAUSING, ExperimentState.ENDING):
            leaving = self._leaving(experiment)
            return experiment.reason.plus(waits=leaving) if experiment.reason is not None else leaving
        if experiment.state is not ExperimentState.RUNNING or experiment.reason is not None:
            return experiment.reason
        found = self._only_held(experiment) or self._impossible or self._policy
        if found is not None:
            return found
        if runs_of(self._stream, experiment):
            return self._shrinking
        return self._nothing_runs(experiment)

    def _leaving(self, experiment: Experiment) -> Reason | None:
        """Return what a PAUSING or ENDING experiment waits for: its runs, or uploads of its snapshots; None: it waits for nothing."""
        runs = len(runs_of(self._stream, experiment))
        if runs:
            return Reason.of(ReasonCode.LEAVING_RUNS, runs=runs)
        entries = self._stream.snapshots.entries()
        unsettled = sum(not e.settled and self._stream.jobs[e.job].experiment is experiment for e in entries)
        return Reason.of(ReasonCode.LEAVING_SNAPSHOTS, snapshots=unsettled) if unsettled else None

    def _only_held(self, experiment: Experiment) -> Reason | None:
        """Return the reason why an experiment waits if it can continue only when a person resumes a paused job; else None."""
        stream, held, still = self._stream, experiment.states.get(JobState.HELD, 0), experiment.jobs_left
        # The policy may never continue the other jobs, for example at a rung.
        done = stream.demand == 0 and not (
            stream.live or stream.asks or stream.conversation.busy or stream.conversation.demand_outdated
        )
        alone = sum(n for state, n in experiment.states.items() if not state.ended) == held
        if not held or still or not (alone or done):
            return None
        names = [
            job.id for job in self._stream.open.values() if job.state is JobState.HELD and job.experiment is experiment
        ]
        named = _and(names if held <= _NAMED else [*names[: _NAMED - 1], f"{held - _NAMED + 1} more"])
        return Reason.of(ReasonCode.ONLY_PAUSED_JOBS, count=held, jobs=named)

    def _nothing_runs(self, experiment: Experiment) -> Reason:
        stream = self._stream
        waiting = [job for job in stream.open.values() if job.experiment is experiment]
        if waiting and self._missing is not None:
            return Reason.of(ReasonCode.NO_RUN_DATA_MISSING, cause=self._missing)
        if (end := stream.due(IdleTimer(experiment.id))) is not None:
            return Reason.of(ReasonCode.OPEN_FOR_REQUESTS, seconds=_seconds(end - self._at))
        if stream.share == 0:
            code = ReasonCode.SHARE_EMPTY
            return Reason.of(code, whose=self._whose, slots=self._usable, limit=self._limit)
        if not stream.granted:
            code = ReasonCode.SHARE_NOT_FREE
            return Reason.of(code, whose=self._whose, share=stream.share, slots=self._usable)
        coming = [job for job in waiting if job.state is JobState.CREATING]
        if stream.conversation.in_flight is not None and not self._thinks_long:
            return self._thinking
        # A job that has run before and has no slot now waits for the policy, for example at a rung.
        first = next(
            (job for job in waiting if job.state is not JobState.CREATING and not (coming and job.attempt)), None
        )
        if first is not None and (waits := self.job(first)) is not None:
            # Why its last run ended is shown with the job.
            return Reason.of(ReasonCode.NO_RUN_JOB_WAITS, job=first.id, cause=waits.plus(last=None))
        if coming or any(name.startswith(CREATE) and a.experiment == experiment.id for name, a in stream.asks.items()):
            return Reason.of(ReasonCode.GENERATOR_ASKED, jobs=len(coming))
        if stream.conversation.in_flight is not None:
            return self._thinking
        return Reason.of(ReasonCode.POLICY_WITHOUT_JOB, idle=len(stream.vacant))

    @property
    def _shrinking(self) -> Reason | None:
        """The reason why jobs wait while the stream has more slots than its share; None if it does not."""
        stream = self._stream
        if stream.granted <= stream.share:
            return None
        deadline = stream.due(ShareTimer())
        return Reason.of(
            ReasonCode.SHARE_REDUCED,
            whose=self._whose,
            share=stream.share,
            slots=self._usable,
            surplus=stream.granted - stream.share,
            seconds=_seconds(deadline - self._at) if deadline is not None else None,
        )

    # ------------------------------------------------------------------------------------------------------ the cluster

    @cached_property
    def _usable(self) -> int:
        """The number of slots in the cluster, except those of drained and leaving nodes."""
        nodes = self._cluster.nodes
        return sum(not nodes[slot.node].unschedulable for slot in self._cluster.slots.values())

    def _is_up(self, name: str) -> bool:
        node = self._cluster.nodes.get(name)
        return node is not None and node.up

    @property
    def _whose(self) -> str:
        """The possessive of the share's owner in a sentence: "its" or "its group's"."""
        return "its" if len(self._stream.experiments) == 1 else "its group's"

    @cached_property
    def _impossible(self) -> Reason | None:
        """The reason why jobs wait if no job of the stream could start even with all slots free; None if one could.

        Slots may be missing in the cluster or on the nodes that the stream can use, have too little hardware, or be too few for a gang.
        """
        cluster, tenant = self._cluster, self._cluster.tenants.get(self._stream.id)
        if not self._usable:
            return self._no_slot
        if tenant is None:
            return None
        slots = [m for m in cluster.slots.values() if not cluster.nodes[m.node].unschedulable]
        others = [m for m in cluster.slots.values() if cluster.nodes[m.node].unschedulable]
        serving = sum(slot.kind.serves(tenant.need) for slot in slots)
        if tenant.nodes and not any(slot.node in tenant.nodes for slot in slots):
            nodes = sorted(tenant.nodes)
            away = tenant.nodes <= {slot.node for slot in others}
            code = ReasonCode.ONLY_UNSCHEDULABLE_NODES if away else ReasonCode.NO_SLOT_ON_NODES
            return Reason.of(code, count=len(nodes), nodes=_listed(nodes))
        kinds = sorted(Counter(m.kind for m in slots).items())
        there, need = _and([f"{number} with {kind}" for kind, number in kinds]), str(tenant.need)
        fitting = [slot.node for slot in others if slot.kind.serves(tenant.need)]
        if serving < tenant.gang <= serving + len(fitting):
            nodes, gang = sorted(set(fitting)), tenant.gang if tenant.gang > 1 else None
            code = ReasonCode.FITTING_SLOTS_UNSCHEDULABLE
            return Reason.of(code, gang=gang, need=need, count=len(nodes), nodes=_listed(nodes))
        if not serving:
            return Reason.of(ReasonCode.NO_FITTING_SLOT, need=need, slots=there)
        if serving < tenant.gang:
            return Reason.of(ReasonCode.TOO_FEW_FITTING_SLOTS, gang=tenant.gang, need=need, slots=there)
        if tenant.cap is not None and tenant.cap < tenant.gang:
            return Reason.of(ReasonCode.SLOTS_BELOW_GANG, gang=tenant.gang, slots=tenant.cap)
        return None

    @cached_property
    def _missing(self) -> Reason | None:
        """The reason why jobs wait if no live node has some partitions of the data; None if no partition is missing."""
        data = self._stream.data
        missing = data.missing() if data is not None else []
        if data is None or not missing:
            return None
        args: dict[str, Argument] = {"count": len(missing), "partitions": _listed([one.name for one in missing])}
        homes = sorted({node for one in missing for node in one.homes})
        if not homes:
            return Reason.of(ReasonCode.PARTITIONS_UNKNOWN, **args, data=data.name)
        away = [node for node in homes if not self._is_up(node)]
        nodes, code = away or homes, ReasonCode.PARTITIONS_AWAY if away else ReasonCode.PARTITIONS_LOST
        return Reason.of(code, **args, data=data.name, homes=len(nodes), nodes=_listed(nodes))

    @cached_property
    def _no_slot(self) -> Reason:
        """The reason why the cluster has no usable slot at all."""
        cluster = self._cluster
        if cluster.slots:
            nodes = sorted({slot.node for slot in cluster.slots.values()})
            return Reason.of(ReasonCode.NO_SLOT_DRAINED, slots=len(cluster.slots), nodes=_listed(nodes))
        if any(node.up for node in cluster.nodes.values()):
            return Reason(ReasonCode.NO_SLOT_ANNOUNCED)
        lost = sorted(node.id for node in cluster.nodes.values() if not node.up)
        if not lost:
            return Reason(ReasonCode.NO_AGENT)
        return Reason.of(ReasonCode.NO_AGENT, count=len(lost), nodes=_listed(lost))

    @cached_property
    def _limit(self) -> Reason | None:
        """The reason why the stream's share is not larger; None if the share is all usable slots, or the reason is unknown."""
        stream = self._stream
        tenant = self._cluster.tenants.get(stream.id)
        if tenant is None or stream.share >= self._usable:
            return None
        if stream.concurrency is not None and len(stream.live) >= stream.concurrency:
            return Reason.of(ReasonCode.LIMITED_BY_CONCURRENCY, concurrency=stream.concurrency)
        if tenant.demand is not None and stream.share + tenant.gang > tenant.demand:
            if tenant.demand == 0:
                return Reason(ReasonCode.WITHOUT_DEMAND)
            return Reason.of(ReasonCode.LIMITED_BY_DEMAND, demand=tenant.demand)
        if tenant.cap is not None and stream.share + tenant.gang > tenant.cap:
            if stream.concurrency is not None:
                return Reason.of(ReasonCode.LIMITED_BY_CONCURRENCY, concurrency=stream.concurrency)
            return Reason.of(ReasonCode.LIMITED_BY_SLOTS, slots=tenant.cap)
        others = [(name, t) for name, t in sorted(self._cluster.tenants.items()) if name != stream.id and t.share]
        named = [f"{name} (weight {t.weight:g}: {t.share})" for name, t in others[:_NAMED]]
        if len(others) > _NAMED:
            named.append(f"{len(others) - _NAMED} more")
        return Reason.of(ReasonCode.LIMITED_BY_WEIGHT, weight=tenant.weight, others=_and(named)) if named else None


def _seconds(left: float) -> int:
    return max(math.ceil(left), 0)


def _listed(names: list[str]) -> str:
    """Return names as text, such as `a`, `a and b`, or `a, b and 3 more`.

    The text has at most `_NAMED` items, of which "3 more" is one.
    """
    return _and(names if len(names) <= _NAMED else [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} more"])


def _and(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
