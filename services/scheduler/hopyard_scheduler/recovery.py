"""Rebuilding the core and the policies' memories from the journal when a scheduler starts.

Finished experiments are not replayed. The events of the others are applied again; each up-call that follows is made on a fresh
policy, and its answer is compared with the recorded one. The recorded answers hold in any case: an experiment whose policy
would decide otherwise now is paused, and says so.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hopyard.errors import Internal
from hopyard.rpc import retry
from hopyard.v1 import appstat_pb2
from hopyard_scheduler.core import CLUSTER_STREAM, Core
from hopyard_scheduler.core.effects import Effect, UpCall
from hopyard_scheduler.core.events import (
    Event,
    NodeDrained,
    NodeExpired,
    NodeJoined,
    PolicyAnswered,
    PolicyFailed,
)
from hopyard_scheduler.core.experiment import Phase
from hopyard_scheduler.journal import Journal
from hopyard_scheduler.policies import host_of
from hopyard_scheduler.policyhost import Host
from hopyard_scheduler.program import program_of

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
        diverged: The first difference of each experiment whose policy decides otherwise now.
        outstanding: What to ask the outside again.
    """

    hosts: dict[str, Host] = field(default_factory=dict)
    unanswered: list[Event] = field(default_factory=list)
    diverged: dict[str, str] = field(default_factory=dict)
    outstanding: list[Effect] = field(default_factory=list)


async def recover(core: Core, journal: Journal, stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> Recovered:
    """Re-applies the journals of all experiments that are not over."""
    found = Recovered()
    await journal.find_end(CLUSTER_STREAM)
    for name in await live_experiments(stub):
        await replay(core, journal, name, found)
    found.outstanding = core.recovered()
    return found


async def live_experiments(stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> list[str]:
    """Ids of the experiments that are not over."""
    names, token = [], ""
    while True:
        request = appstat_pb2.QueryExperimentsRequest(page_token=token)
        page = await retry(lambda request=request: stub.QueryExperiments(request), deadline=None)  # type: ignore[misc]
        names += [row.id for row in page.experiments if row.state in LIVE_PHASES]
        token = page.next_page_token
        if not token:
            return sorted(names)


async def replay(core: Core, journal: Journal, name: str, found: Recovered) -> None:
    """Re-applies one experiment's journal. An up-call is made when its answer comes: on the state it was first made on."""
    pending: UpCall | None = None
    async for event in journal.read(name):
        if isinstance(event, NodeJoined | NodeExpired | NodeDrained):
            raise Internal(f"journal of {name}: {type(event).__name__} belongs to the stream of the cluster")
        if isinstance(event, PolicyAnswered | PolicyFailed) and pending is not None:
            _compare(name, _host(core, name, found).answer(core.experiments[name], pending), event, found)
            pending = None
        for effect in core.restore(event):
            if isinstance(effect, UpCall):
                pending = effect
    if pending is not None and core.experiments[name].in_flight is not None:
        found.unanswered.append(_host(core, name, found).answer(core.experiments[name], pending))


def _host(core: Core, name: str, found: Recovered) -> Host:
    if name not in found.hosts:
        found.hosts[name] = host_of(program_of(core.experiments[name].payload).spec)
    return found.hosts[name]


def _compare(name: str, computed: Event, recorded: Event, found: Recovered) -> None:
    if computed != recorded:
        found.diverged.setdefault(name, f"it answers {computed} now where it answered {recorded}")
