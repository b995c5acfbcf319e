"""Rebuilding the core and the policies' memories from the journal when a scheduler starts.

Finished experiments are not replayed. The events of the others are applied again; each up-call that follows is made on a fresh
policy, and its answer is compared with the recorded one (`replaying`). The recorded answers hold in any case: an experiment
whose policy would decide otherwise now is paused with the first difference as its reason, and goes on from what is recorded
when it is resumed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.protobuf.json_format import Parse

from hopyard.errors import Internal, TimedOut, Unavailable
from hopyard.rpc import Backoff
from hopyard.v1 import appstat_pb2, experiment_pb2
from hopyard_scheduler.core import CLUSTER_STREAM, Core
from hopyard_scheduler.core.effects import Effect
from hopyard_scheduler.core.events import Event, NodeDrained, NodeExpired, NodeJoined, ShareSet
from hopyard_scheduler.core.experiment import Experiment
from hopyard_scheduler.core.member import Phase
from hopyard_scheduler.journal import Journal, persist
from hopyard_scheduler.policies import host_of
from hopyard_scheduler.policyhost import Host
from hopyard_scheduler.program import program_of
from hopyard_scheduler.projections import failed_row
from hopyard_scheduler.replaying import Objecting, Replay

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc

_LOG = logging.getLogger(__name__)

LIVE_PHASES = tuple(phase.value for phase in Phase if not phase.over)


@dataclass(slots=True)
class Recovered:
    """What recovery found.

    Attributes:
        hosts: The policies by experiment, their memories rebuilt.
        unanswered: Answers to up-calls that the journal has no answer for: the first events of the new life.
        diverged: The first difference that nobody was shown, of each experiment whose policy decides otherwise now.
        outstanding: What to ask the outside again.
        failed: Rows of the experiments whose journals cannot be applied again.
    """

    hosts: dict[str, Host] = field(default_factory=dict)
    unanswered: list[Event] = field(default_factory=list)
    diverged: dict[str, str] = field(default_factory=dict)
    outstanding: list[Effect] = field(default_factory=list)
    failed: list[appstat_pb2.Projection] = field(default_factory=list)

    def nudges(self, core: Core, at: float) -> list[Event]:
        """Events after which each experiment whose policy differs pauses, with the difference as its reason.

        Its share is announced once more: the up-call that follows is the one that fails (`Objecting`). One with an up-call
        under way pauses by the answer to that; one that does not run pauses when it is resumed.
        """
        found: list[Event] = []
        for name in self.diverged:
            x = core.experiments[name]
            if x.phase is Phase.RUNNING and x.in_flight is None:
                found.append(ShareSet(at, name, x.share))
        return found


async def recover(core: Core, journal: Journal, stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> Recovered:
    """Re-applies the journals of the cluster and of all experiments that are not over."""
    found = Recovered()
    async for event in journal.read(CLUSTER_STREAM):
        if not isinstance(event, NodeJoined | NodeExpired | NodeDrained):
            raise Internal(f"journal of the cluster: {type(event).__name__} belongs to an experiment's stream")
        core.restore_cluster(event)
    streams: dict[str, list[appstat_pb2.ExperimentRow]] = {}
    for _, row in sorted((await live_experiments(stub)).items()):
        streams.setdefault(group_of(row), []).append(row)
    for name, rows in sorted(streams.items()):
        await _replay_or_fail(core, journal, name, rows, found)
    found.outstanding = core.recovered()
    return found


async def _replay_or_fail(
    core: Core, journal: Journal, name: str, rows: list[appstat_pb2.ExperimentRow], found: Recovered
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
            _LOG.exception("experiment %s is failed: its journal cannot be applied again", name)
            reason = f"its journal cannot be applied again: {type(error).__name__}: {error}"
            found.failed += [failed_row(row, reason) for row in rows]
            return
        else:
            return


async def live_experiments(stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> dict[str, appstat_pb2.ExperimentRow]:
    """Rows of the experiments that are not over, by id. Finished ones, however many, are not looked at."""
    rows = {}
    for phase in LIVE_PHASES:
        token = ""
        while True:
            request = appstat_pb2.QueryExperimentsRequest(state=phase, page_token=token)
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


async def replay(core: Core, journal: Journal, name: str, found: Recovered) -> None:
    """Re-applies one experiment's journal. An up-call is made when its answer comes: on the state it was first made on."""
    driven = Replay(core, _host)
    async for event in journal.read(name):
        driven.take(event)
    difference = driven.unseen
    objecting = None
    if difference is not None:
        found.diverged[name] = difference.text
        objecting = Objecting(driven.host or _host(core.experiments[name]), difference)
    unanswered = driven.unanswered(objecting)
    if unanswered is not None:
        found.unanswered.append(unanswered)
    found.hosts[name] = objecting or driven.host or _host(core.experiments[name])


def _host(x: Experiment) -> Host:
    return host_of(program_of(x.founder.payload).spec)
