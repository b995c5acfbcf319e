"""Recovery: rebuilds the core (the state machine of the engine) and the state of the policies from the journal when a scheduler starts.

Finished experiments are not replayed. For all others, the recorded events are applied again. Each up-call is repeated
on a fresh policy, and its answer is compared with the recorded one (`hopyard_engine.replay`). The recorded answer takes
effect in either case. If a policy now decides differently, it has diverged: its experiment is paused with the first
difference as the reason, and continues from the recorded state when it is resumed.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hopyard._net.rpc import Backoff
from hopyard.errors import DataLoss, Internal, TimedOut, Unavailable
from hopyard.policy.vocabulary import ExperimentState, StreamId
from hopyard.v1 import appstat_pb2, experiment_pb2
from hopyard_engine.core import CLUSTER_STREAM, Core
from hopyard_engine.core.effects import Effect, UpCall
from hopyard_engine.core.events import ClusterEvent, Event, Operated, ShareSet
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state.timers import IdleTimer
from hopyard_engine.journal.format import RecordError
from hopyard_engine.policy_host import Host
from hopyard_engine.policy_host.factory import host_of
from hopyard_engine.replay import DivergenceGuard, Replay
from hopyard_scheduler.converters import EXPERIMENT_STATES
from hopyard_scheduler.experiments.program import program_of
from hopyard_scheduler.policy_process.placement import runs_inline
from hopyard_scheduler.runtime.journal import Journal, persist
from hopyard_scheduler.runtime.journal_rows import JournalRows
from hopyard_scheduler.runtime.projections import has_damaged_row, unreadable_row, was_unreadable

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc

_LOG = logging.getLogger(__name__)

STRETCH_SECONDS: Final = 0.02
"""Seconds of replay after which other tasks of the event loop may run."""

LIVE_STATES = tuple(EXPERIMENT_STATES.to_proto(state) for state in ExperimentState if not state.ended)


@dataclass(slots=True)
class RecoveryResult:
    """The result of recovery, which the scheduler applies before it handles new events.

    Attributes:
        hosts: The built-in policy of each stream, with its state rebuilt.
        waiting: Unanswered up-calls to policy processes. They are sent again. A process that still runs has its state;
            for a new process, the state is rebuilt when it connects.
        unanswered: Answers of built-in policies to up-calls without a recorded answer. The scheduler handles them
            before all other events.
        diverged: For each stream whose policy now decides differently, a description of the first difference.
        outstanding: External requests and other effects to carry out again.
        rows: Rows of experiments whose journals cannot be read, and of those whose journals can be read again.
    """

    hosts: dict[StreamId, Host] = field(default_factory=dict)
    waiting: list[UpCall] = field(default_factory=list)
    unanswered: list[Event] = field(default_factory=list)
    diverged: dict[StreamId, str] = field(default_factory=dict)
    outstanding: list[Effect] = field(default_factory=list)
    rows: list[appstat_pb2.Projection] = field(default_factory=list)

    def follow_up_events(self, core: Core, at: float) -> list[Event]:
        """Return events to post after recovery, in addition to `unanswered`.

        Each experiment that ends when clients send no requests gets its full idle time again, because clients could not
        restart it while the scheduler was down.

        A policy has diverged if it now decides differently than recorded. The next up-call to it fails, which pauses
        its experiment (`hopyard_engine.replay.DivergenceGuard`). For a running stream without an unanswered up-call,
        the result contains an event that announces the share of the stream again and so causes an up-call. An
        experiment that is not running pauses when it is resumed.

        Args:
            core: The recovered core.
            at: The present time, in seconds since the Unix epoch.
        """
        found: list[Event] = [
            Operated(at, stream.id, "keep", experiment)
            for stream in core.streams.values()
            for experiment in stream.experiments
            if stream.due(IdleTimer(experiment)) is not None
        ]
        for name in self.diverged:
            stream = core.streams[name]
            if stream.state is ExperimentState.RUNNING and stream.conversation.in_flight is None:
                found.append(ShareSet(at, name, stream.share))
        return found


async def recover(core: Core, journal: Journal, stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> RecoveryResult:
    """Replay the journals of the cluster and of all unfinished experiments into the core.

    If the journal of a stream cannot be read, the experiments of that stream are paused (`RecoveryResult.rows`), and the core does
    not have it. Others are not affected. If it can be read again, its experiments continue in the state that the journal records. The
    damaged row of an experiment is written again from its journal.

    Args:
        core: An empty core (the state machine of the engine).
        journal: The journal, with the scheduler epoch begun.
        stub: Client of AppStat, for the rows of unfinished experiments.

    Raises:
        Internal: The journal of the cluster contains an event of an experiment.
    """
    found = RecoveryResult()
    async for event in journal.read(CLUSTER_STREAM):
        if not isinstance(event, ClusterEvent):
            raise Internal(f"journal of the cluster: {type(event).__name__} belongs to an experiment's stream")
        core.restore_cluster(event)
    streams: dict[StreamId, list[experiment_pb2.Experiment]] = {}
    for _, experiment in sorted((await live_experiments(stub)).items()):
        streams.setdefault(StreamId(experiment.group or experiment.id), []).append(experiment)
    for name, experiments in sorted(streams.items()):
        await _replay_or_pause(core, journal, name, experiments, found)
    found.outstanding = core.recovered()
    return found


async def _replay_or_pause(
    core: Core,
    journal: Journal,
    name: StreamId,
    experiments: list[experiment_pb2.Experiment],
    found: RecoveryResult,
) -> None:
    """Replay the journal of one stream into the core. If it cannot be read, the experiments of the stream are paused.

    It retries without a time limit while AppStat is unavailable or slow.

    Args:
        core: Receives the stream.
        journal: The journal to read.
        name: Id of the stream.
        experiments: The unfinished experiments of the stream, as AppStat has them.
        found: Receives the result.
    """
    failures, backoff, rng = 0, Backoff(), random.Random()
    damaged = [one for one in experiments if has_damaged_row(one)]
    while True:
        try:
            rows = await readable_rows(journal, name) if damaged or any(map(was_unreadable, experiments)) else []
            await replay(core, journal, name, found)
        except (Unavailable, TimedOut) as error:
            core.forget(name)
            failures += 1
            wait = backoff.wait(failures, rng)
            _LOG.warning("appstat went away while a journal was read (%s), trying again in %.1f s", error, wait)
            await asyncio.sleep(wait)
        except Exception as error:  # noqa: BLE001 - any error concerns only this journal
            core.forget(name)
            for one in damaged:
                # Its row would tell its group, whose journal may be a readable one.
                _LOG.error(
                    "experiment %s: its row is damaged; if it is in a group, it continues only with the group: %s",
                    one.id,
                    one.reason,
                )
            if len(damaged) == len(experiments):
                return
            if isinstance(error, RecordError | DataLoss):
                _LOG.error("experiment %s is paused: %s", name, error)
                why = str(error)
            else:
                _LOG.exception("experiment %s is paused: its journal cannot be replayed", name)
                why = f"{type(error).__name__}: {error}"
            found.rows += [unreadable_row(one, why) for one in experiments if not has_damaged_row(one)]
            return
        else:
            if damaged:
                _LOG.warning("the row of experiment %s was damaged, and is written again from its journal", name)
            found.rows += rows
            return


async def readable_rows(journal: Journal, name: StreamId) -> list[appstat_pb2.Projection]:
    """Return the rows of the experiments of a stream whose journal can be read again, in the state that it records.

    Args:
        journal: The journal.
        name: Id of the stream.

    Raises:
        DataLoss: A record is damaged, or records are missing.
        RecordError: A record cannot be read by this version.
    """
    made = JournalRows()
    async for record in journal.records(name):
        made.take(record)
    rows = made.table().rows
    return [rows["experiment", experiment] for experiment in made.experiments]


async def live_experiments(stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> dict[str, experiment_pb2.Experiment]:
    """Return all unfinished experiments by id, as AppStat has them, also those with a damaged row. Retries until AppStat answers."""
    found = {}
    for state in LIVE_STATES:
        token = ""
        while True:
            request = appstat_pb2.QueryExperimentsRequest(state=state, page_token=token)
            page = await persist(lambda request=request: stub.QueryExperiments(request))  # type: ignore[misc]
            found.update({experiment.id: experiment for experiment in (*page.experiments, *page.damaged)})
            token = page.next_page_token
            if not token:
                break
    return found


async def replay(core: Core, journal: Journal, name: StreamId, found: RecoveryResult) -> None:
    """Replay the journal of one stream into the core and add the result to `found`.

    An up-call is repeated when its recorded answer is read, on the same state as the original. Policy processes are not
    called here: their state is rebuilt when they are needed.

    Args:
        core: The state machine of the engine, which must not have the stream.
        journal: The journal.
        name: The id of the stream.
        found: Receives the policy, and unanswered up-calls, of the stream.

    Raises:
        DataLoss: A record is damaged, or records are missing.
        RecordError: A record cannot be read by this version.
    """
    driven = Replay(core, lambda stream: _host(stream) if _inline(stream) else None)
    began = time.monotonic()
    async for event in journal.read(name):
        driven.take(event)
        if time.monotonic() - began > STRETCH_SECONDS:
            await asyncio.sleep(0)
            began = time.monotonic()
    if name not in core.streams:
        raise DataLoss(f"journal of {name}: it has no records; restore the data directory from a backup")
    stream = core.streams[name]
    if not _inline(stream):
        if driven.unmade is not None:
            found.waiting.append(driven.unmade)
        return
    if driven.version_change:
        _LOG.warning("experiment %s: %s; its recorded decisions hold", name, driven.version_change)
    host, difference = driven.host or _host(stream), driven.unseen
    if difference is not None:
        found.diverged[name] = difference.text
        host = DivergenceGuard(host, difference)
    unanswered = driven.unanswered(host)
    if unanswered is not None:
        found.unanswered.append(unanswered)
    found.hosts[name] = host


def _host(stream: Stream) -> Host:
    return host_of(program_of(stream.founder.payload).spec)


def _inline(stream: Stream) -> bool:
    return runs_inline(program_of(stream.founder.payload).spec.policy)
