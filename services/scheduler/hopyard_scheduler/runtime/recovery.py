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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.json_format import Parse

from hopyard._net.rpc import Backoff
from hopyard._net.server.killable_threads import Threads, TooLong
from hopyard.errors import Internal, TimedOut, Unavailable
from hopyard.policy.vocabulary import ExperimentState
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard.v1 import appstat_pb2, experiment_pb2
from hopyard_engine.core import CLUSTER_STREAM, Core
from hopyard_engine.core.effects import Effect, UpCall
from hopyard_engine.core.events import ClusterEvent, Event, Operated, PolicyAnswered, PolicyFailed, ShareSet
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state.timers import IdleTimer
from hopyard_engine.journal.format import RecordError
from hopyard_engine.policy_host import Host, took_too_long
from hopyard_engine.policy_host.factory import host_of
from hopyard_engine.replay import Objecting, Replay, of_experiment
from hopyard_scheduler.experiments.program import program_of
from hopyard_scheduler.runtime.journal import Journal, persist
from hopyard_scheduler.runtime.projections import failed_row

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

CHUNK = 500
"""Events that are applied at a stretch."""

LIVE_STATES = tuple(state.value for state in ExperimentState if not state.ended)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long (seconds) a policy may take over an up-call, and the threads that policies think on."""

    threads: Threads
    seconds: float


@dataclass(slots=True)
class Recovered:
    """What recovery found.

    Attributes:
        hosts: The policies by experiment, their memories rebuilt.
        waiting: Up-calls that the journal has no answer for, of policies that run in processes of their own: these remember
            themselves, or their memories are rebuilt when they dial in.
        unanswered: Answers to up-calls that the journal has no answer for: the first events of the new life.
        diverged: The first difference that nobody was shown, of each experiment whose policy decides otherwise now.
        given_up: Experiments whose policies took too long when their up-calls were made again. With a reason, their next up-call
            fails with it; else the policy is made again then.
        outstanding: What to ask the outside again.
        failed: Rows of the experiments whose journals cannot be applied again.
    """

    hosts: dict[str, Host] = field(default_factory=dict)
    waiting: list[UpCall] = field(default_factory=list)
    unanswered: list[Event] = field(default_factory=list)
    diverged: dict[str, str] = field(default_factory=dict)
    given_up: dict[str, Reason | None] = field(default_factory=dict)
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
        for name in {**self.diverged, **self.given_up}:
            stream = core.streams[name]
            if stream.state is ExperimentState.RUNNING and stream.conversation.in_flight is None:
                found.append(ShareSet(at, name, stream.share))
        return found


async def recover(
    core: Core, journal: Journal, stub: appstat_pb2_grpc.AppStatServiceAsyncStub, patience: Patience
) -> Recovered:
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
        await _replay_or_fail(core, journal, name, rows, found, patience)
    found.outstanding = core.recovered()
    return found


async def _replay_or_fail(
    core: Core, journal: Journal, name: str, rows: list[appstat_pb2.ExperimentRow], found: Recovered, patience: Patience
) -> None:
    """Re-applies one journal. What cannot be re-applied costs its own experiments, never the start of the scheduler."""
    failures, backoff, rng = 0, Backoff(), random.Random()
    while True:
        try:
            await replay(core, journal, name, found, patience)
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


async def replay(core: Core, journal: Journal, name: str, found: Recovered, patience: Patience) -> None:
    """Re-applies one experiment's journal. An up-call is made when its answer comes: on the state it was first made on.

    That happens on another thread, which nothing else may do with this core meanwhile. A policy that takes too long over an
    up-call is asked nothing more, and what is recorded is applied without it.
    """
    driven = Replay(core, lambda stream: None if _elsewhere(stream) else _host(stream))
    chunk: list[Event] = []
    async for event in journal.read(name):
        chunk.append(event)
        if len(chunk) == CHUNK:
            await _feed(driven, chunk, patience)
            chunk = []
    await _feed(driven, chunk, patience)
    stream = core.streams[name]
    if _elsewhere(stream):
        if driven.unmade is not None:
            found.waiting.append(driven.unmade)
        return
    if driven.version_change:
        _LOG.warning("experiment %s: %s; its recorded decisions hold", name, driven.version_change)
    difference = driven.unseen
    objecting = None
    if difference is not None:
        found.diverged[name] = difference.text
        objecting = Objecting(driven.host or _host(stream), difference)
    unanswered = await _unanswered(driven, objecting, patience)
    if unanswered is not None:
        found.unanswered.append(unanswered)
    if driven.gone is not None:
        found.diverged.pop(name, None)
        found.given_up[name] = driven.gone if stream.state is ExperimentState.RUNNING and unanswered is None else None
    else:
        found.hosts[name] = objecting or driven.host or _host(stream)


async def _feed(driven: Replay, events: list[Event], patience: Patience) -> None:
    while events:
        before = driven.number

        def take(events: list[Event] = events) -> None:
            for event in events:
                driven.take(event)

        try:
            await _minded(driven, take, patience)
        except TooLong:
            taken = driven.number - before
            driven.apply(of_experiment(events[taken - 1], driven.number))
            events = events[taken:]
        else:
            return


async def _unanswered(
    driven: Replay, objecting: Host | None, patience: Patience
) -> PolicyAnswered | PolicyFailed | None:
    try:
        return await _minded(driven, lambda: driven.unanswered(objecting), patience)
    except TooLong:
        return driven.unanswered()


async def _minded(driven: Replay, function: Callable[[], T], patience: Patience) -> T:
    """Does a part of a replay on a thread; gives the policy up that takes too long, with its reason left in `driven`."""

    def stop(doing: object) -> bool:
        assert driven.experiment is not None
        policy = program_of(driven.experiment.founder.payload).spec.policy.label
        call = doing if isinstance(doing, UpCall) else None
        return driven.give_up(doing, took_too_long(policy, patience.seconds, call, again=True))

    threads = patience.threads
    return await threads.finish(threads.start(function), patience.seconds, lambda: driven.doing, stop)


def _host(stream: Stream) -> Host:
    return host_of(program_of(stream.founder.payload).spec)


def _elsewhere(stream: Stream) -> bool:
    """Whether the policy runs in a process of its own."""
    return program_of(stream.founder.payload).spec.policy.remote
