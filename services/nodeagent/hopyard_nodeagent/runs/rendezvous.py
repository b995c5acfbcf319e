"""How the ranks of a gang find each other: the nodes of the others ask that of rank 0 where it lets them in."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from hopyard._net.rpc import Backoff, channel
from hopyard.errors import NotFound, TimedOut, Unavailable
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, node_agent_pb2, node_agent_pb2_grpc, resource_manager_pb2
from hopyard_nodeagent.runs.run_key import RunKey

_BACKOFF: Final = Backoff(first=0.05, most=0.5)
_ANSWER_SECONDS: Final = 10.0
"""How long one answer of rank 0's agent may take before it is asked again."""


async def gang_of(key: RunKey, start: resource_manager_pb2.StartRun, seconds: float) -> wire.Gang | None:
    """What a run's process needs to know of its gang; None for a run on one machine.

    Args:
        key: the run.
        start: its start command.
        seconds: how long the ranks may take to come together, beginning now.

    Raises:
        TimedOut: rank 0 was not ready in that time.
        Unavailable: the scheduler does not know where all ranks are.
    """
    if start.world <= 1:
        return None
    addresses = list(start.rank_addresses)
    if len(addresses) != start.world or not all(addresses):
        raise Unavailable(f"of the nodes of {start.world} ranks the scheduler knows these addresses only: {addresses}")
    gang = wire.Gang(hosts=[_host(address) for address in addresses], join_seconds=seconds)
    if key.rank:
        gang.place.CopyFrom(await _place(addresses[0], key._replace(rank=0), seconds))
    return gang


async def _place(address: str, leader: RunKey, seconds: float) -> common_pb2.GangPlace:
    said, failures, rng = "it did not answer", 0, random.Random()
    try:
        async with asyncio.timeout(seconds), channel(address) as connection:
            stub = node_agent_pb2_grpc.NodeAgentServiceStub(connection)
            while True:
                try:
                    request = node_agent_pb2.JoinGangRequest(run=leader.to_proto())
                    return (await stub.JoinGang(request, timeout=_ANSWER_SECONDS)).place
                except (NotFound, TimedOut, Unavailable) as error:
                    said, failures = str(error), failures + 1
                await asyncio.sleep(_BACKOFF.wait(failures, rng))
    except TimeoutError as error:
        raise TimedOut(
            f"rank 0 of its gang, on the agent at {address}, was not ready in {seconds:g} s: {said}"
        ) from error


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
