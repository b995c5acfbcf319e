"""Rebuilding the core and the policies' memories from the journal when a scheduler starts.

Finished experiments are not replayed. The events of the others are applied again; each up-call that follows is made on a fresh
policy, and its answer is compared with the recorded one (`replaying`). The recorded answers hold in any case: an experiment
whose policy would decide otherwise now is paused with the first difference as its reason, and goes on from what is recorded
when it is resumed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hopyard.rpc import retry
from hopyard.v1 import appstat_pb2
from hopyard_scheduler.core import CLUSTER_STREAM, Core
from hopyard_scheduler.core.effects import Effect
from hopyard_scheduler.core.events import Event, ShareSet
from hopyard_scheduler.core.experiment import Experiment, Phase
from hopyard_scheduler.journal import Journal
from hopyard_scheduler.policies import host_of
from hopyard_scheduler.policyhost import Host
from hopyard_scheduler.program import program_of
from hopyard_scheduler.replaying import Objecting, Replay

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc

LIVE_PHASES = tuple(phase.value for phase in Phase if not phase.over)


@dataclass(slots=True)
class Recovered:
    """What recovery found.

    Attributes:
        hosts: The policies by experiment, their memories rebuilt.
        unanswered: Answers to up-calls that the journal has no answer for: the first events of the new life.
        diverged: The first difference that nobody was shown, of each experiment whose policy decides otherwise now.
        outstanding: What to ask the outside again.
    """

    hosts: dict[str, Host] = field(default_factory=dict)
    unanswered: list[Event] = field(default_factory=list)
    diverged: dict[str, str] = field(default_factory=dict)
    outstanding: list[Effect] = field(default_factory=list)

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
    """Re-applies the journals of all experiments that are not over."""
    found = Recovered()
    await journal.find_end(CLUSTER_STREAM)
    for name in await live_experiments(stub):
        await replay(core, journal, name, found)
    found.outstanding = core.recovered()
    return found


async def live_experiments(stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> list[str]:
    """Ids of the experiments that are not over. Finished ones, however many, are not looked at."""
    names = []
    for phase in LIVE_PHASES:
        token = ""
        while True:
            request = appstat_pb2.QueryExperimentsRequest(state=phase, page_token=token)
            page = await retry(lambda request=request: stub.QueryExperiments(request), deadline=None)  # type: ignore[misc]
            names += [row.id for row in page.experiments]
            token = page.next_page_token
            if not token:
                break
    return sorted(names)


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
    return host_of(program_of(x.payload).spec)
