"""Rebuilding the core and the policies' memories from the journal when a scheduler starts.

Finished experiments are not replayed. The events of the others are applied again; each up-call that follows is made on a fresh
policy, and its answer is compared with the recorded one (`hopyard_engine.replay`). The recorded answers hold in any case: an experiment
whose policy would decide otherwise now is paused with the first difference as its reason, and goes on from what is recorded
when it is resumed.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from google.protobuf.json_format import Parse

from hopyard._net.rpc import Backoff
from hopyard.errors import Internal, TimedOut, Unavailable
from hopyard.policy.vocabulary import ExperimentState, StreamId
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard.v1 import appstat_pb2, experiment_pb2
from hopyard_engine.core import CLUSTER_STREAM, Core
from hopyard_engine.core.effects import Effect, UpCall
from hopyard_engine.core.events import ClusterEvent, Event, Operated, ShareSet
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state.timers import IdleTimer
from hopyard_engine.journal.format import RecordError
from hopyard_engine.policy_host import Host
from hopyard_engine.policy_host.factory import host_of
from hopyard_engine.replay import Objecting, Replay
from hopyard_scheduler.experiments.program import program_of
from hopyard_scheduler.policy_process.placement import runs_inline
from hopyard_scheduler.runtime.journal import Journal, persist
from hopyard_scheduler.runtime.projections import failed_row

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc

_LOG = logging.getLogger(__name__)

STRETCH_SECONDS: Final = 0.02
"""How long events are applied before others have their turn."""

LIVE_STATES = tuple(state.value for state in ExperimentState if not state.ended)


@dataclass(slots=True)
class Recovered:
    """What recovery found.

    Attributes:
        hosts: The policies by experiment, their memories rebuilt.
        waiting: Up-calls that the journal has no answer for, of policies that run in processes: these remember themselves, or
            their memories are rebuilt when their processes come.
        unanswered: Answers to up-calls that the journal has no answer for: the first events of the new life.
        diverged: The first difference that nobody was shown, of each experiment whose policy decides otherwise now.
        outstanding: What to ask the outside again.
        failed: Rows of the experiments whose journals cannot be applied again.
    """

    hosts: dict[str, Host] = field(default_factory=dict)
    waiting: list[UpCall] = field(default_factory=list)
    unanswered: list[Event] = field(default_factory=list)
    diverged: dict[str, str] = field(default_factory=dict)
    outstanding: list[Effect] = field(default_factory=list)
    failed: list[appstat_pb2.Projection] = field(default_factory=list)

    def nudges(self, core: Core, at: float) -> list[Event]:
        """What the new life begins with, beside the unanswered.

        Experiments that are open for requests stay so for their full idle time: their clients could not keep them meanwhile. Each one
        whose policy differs or was given up pauses, with that as its reason.

        Its share is announced once more: the up-call that follows is the one that fails (`Objecting`). One with an up-call
        under way pauses by the answer to that; one that does not run pauses when it is resumed.
        """
        found: list[Event] = [
            Operated(at, stream.id, "keep", experiment)
            for stream in core.streams.values()
            for experiment in stream.experiments
            if stream.due(IdleTimer(experiment)) is not None
        ]
        for name in self.diverged:
            stream = core.streams[StreamId(name)]
            if stream.state is ExperimentState.RUNNING and stream.conversation.in_flight is None:
                found.append(ShareSet(at, StreamId(name), stream.share))
        return found


async def recover(core: Core, journal: Journal, stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> Recovered:
    """Re-applies the journals of the cluster and of all experiments that are not over."""
    found = Recovered()
    async for event in journal.read(CLUSTER_STREAM):
        if not isinstance(event, ClusterEvent):
            raise Internal(f"journal of the cluster: {type(event).__name__} belongs to an experiment's stream")
        core.restore_cluster(event)
    streams: dict[str, list[appstat_pb2.ExperimentRow]] = {}
    for _, row in sorted((await live_experiments(stub)).items()):
        streams.setdefault(group_of(row), []).append(row)
    for name, rows in sorted(streams.items()):
        await _replay_or_fail(core, journal, StreamId(name), rows, found)
    found.outstanding = core.recovered()
    return found


async def _replay_or_fail(
    core: Core, journal: Journal, name: StreamId, rows: list[appstat_pb2.ExperimentRow], found: Recovered
) -> None:
    """Re-applies one journal. What cannot be re-applied costs its own experiments, never the start of the scheduler."""
    failures, backoff, rng = 0, Backoff(), random.Random()
    while True:
        try:
            await replay(core, journal, name, found)
        except (Unavailable, TimedOut) as error:
            core.forget(name)
            wait = backoff.wait(failures, rng)
            failures += 1
            _LOG.warning("appstat went away while a journal was read (%s), trying again in %.1f s", error, wait)
            await asyncio.sleep(wait)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one journal
            core.forget(name)
            if isinstance(error, RecordError):
                _LOG.error("experiment %s is failed: %s", name, error)
                reason = Reason.of(ReasonCode.JOURNAL_UNREADABLE, error=str(error))
            else:
                _LOG.exception("experiment %s is failed: its journal cannot be applied again", name)
                reason = Reason.of(ReasonCode.JOURNAL_UNREADABLE, error=f"{type(error).__name__}: {error}")
            found.failed += [failed_row(row, reason) for row in rows]
            return
        else:
            return


async def live_experiments(stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> dict[str, appstat_pb2.ExperimentRow]:
    """Rows of the experiments that are not over, by id. Finished ones, however many, are not looked at."""
    rows = {}
    for state in LIVE_STATES:
        token = ""
        while True:
            request = appstat_pb2.QueryExperimentsRequest(state=state, page_token=token)
            page = await persist(lambda request=request: stub.QueryExperiments(request))  # type: ignore[misc]
            rows.update({row.id: row for row in page.experiments})
            token = page.next_page_token
            if not token:
                break
    return rows


def group_of(row: appstat_pb2.ExperimentRow) -> str:
    """The stream that an experiment's events are in: its own, or that of the group that it joined."""
    shown = Parse(row.detail_json, experiment_pb2.Experiment(), ignore_unknown_fields=True)
    return shown.group or row.id


async def replay(core: Core, journal: Journal, name: StreamId, found: Recovered) -> None:
    """Re-applies one experiment's journal. An up-call is made when its answer comes: on the state it was first made on.

    Policies in processes are not asked here: they are told their up-calls again when they are needed.
    """
    driven = Replay(core, lambda stream: _host(stream) if _inline(stream) else None)
    began = time.monotonic()
    async for event in journal.read(name):
        driven.take(event)
        if time.monotonic() - began > STRETCH_SECONDS:
            await asyncio.sleep(0)
            began = time.monotonic()
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
        host = Objecting(host, difference)
    unanswered = driven.unanswered(host)
    if unanswered is not None:
        found.unanswered.append(unanswered)
    found.hosts[name] = host


def _host(stream: Stream) -> Host:
    return host_of(program_of(stream.founder.payload).spec)


def _inline(stream: Stream) -> bool:
    return runs_inline(program_of(stream.founder.payload).spec.policy)
