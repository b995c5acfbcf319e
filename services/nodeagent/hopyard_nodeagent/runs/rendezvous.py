"""The rendezvous of a gang: agents of other ranks request the meeting place from the agent of rank 0.

The meeting place is the address at which the processes of the gang connect to each other. The process of rank 0 opens it.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from hopyard._net.rpc import Backoff, channel
from hopyard._net.rpc.address import host_of
from hopyard._net.rpc.values import run_key_to_proto
from hopyard.errors import NotFound, TimedOut, Unavailable
from hopyard.policy.vocabulary import RunKey
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, node_agent_pb2, node_agent_pb2_grpc, resource_manager_pb2
from hopyard_nodeagent.cluster_access import TicketSource

_BACKOFF: Final = Backoff(first=0.05, most=0.5)
_ANSWER_SECONDS: Final = 10.0
"""Timeout in seconds of one request to the agent of rank 0; then the request is repeated."""


async def gang_of(
    key: RunKey, start: resource_manager_pb2.StartRun, seconds: float, tickets: TicketSource
) -> wire.Gang | None:
    """Return the hosts of a gang's ranks, the time limit, and, on ranks other than 0, the meeting place; None for a run on one slot.

    On ranks other than 0, wait until the process of rank 0 has opened the meeting place.

    Args:
        key: Identifies the run and its rank.
        start: The start command of the run.
        seconds: Time limit in seconds, from now.
        tickets: Requests tickets for the agent of rank 0.

    Raises:
        TimedOut: Rank 0 did not open the meeting place in time.
        Unavailable: The scheduler does not know the addresses of all ranks.
    """
    if start.world <= 1:
        return None
    addresses = list(start.rank_addresses)
    if len(addresses) != start.world or not all(addresses):
        raise Unavailable(f"of the nodes of {start.world} ranks the scheduler knows these addresses only: {addresses}")
    gang = wire.Gang(hosts=[host_of(address) for address in addresses], join_seconds=seconds)
    if key.rank:
        gang.place.CopyFrom(await _place(addresses[0], key._replace(rank=0), seconds, tickets))
    return gang


async def _place(address: str, leader: RunKey, seconds: float, tickets: TicketSource) -> common_pb2.GangPlace:
    scope = f"{leader.stream}/{leader.job}"
    said, failures, rng = "it did not answer", 0, random.Random()
    try:
        async with asyncio.timeout(seconds), channel(address, token=None) as connection:
            stub = node_agent_pb2_grpc.NodeAgentServiceStub(connection)
            while True:
                try:
                    request = node_agent_pb2.JoinGangRequest(run=run_key_to_proto(leader))
                    headers = await tickets.ticket(address, "JoinGang", scope)
                    return (await stub.JoinGang(request, timeout=_ANSWER_SECONDS, metadata=headers)).place
                except (NotFound, TimedOut, Unavailable) as error:
                    said, failures = str(error), failures + 1
                await asyncio.sleep(_BACKOFF.wait(failures, rng))
    except TimeoutError as error:
        raise TimedOut(
            f"rank 0 of its gang, on the agent at {address}, was not ready in {seconds:g} s: {said}"
        ) from error
