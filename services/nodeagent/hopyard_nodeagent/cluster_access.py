"""How an agent reaches the services of its cluster and the other agents: addresses, its token, and tickets."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from hopyard._net.auth import CallerKind, find_token
from hopyard._net.auth.secrets_folder import SECRETS
from hopyard._net.rpc import Channel, channel
from hopyard._net.rpc.address import is_socket
from hopyard._net.rpc.channel import Metadata, token_metadata
from hopyard._net.server import read_address
from hopyard.errors import NotFound, Unavailable
from hopyard.v1 import resource_manager_pb2, resource_manager_pb2_grpc

_LOOK_SECONDS: Final = 0.01
_ADDRESS_SECONDS: Final = 10.0
"""Maximum seconds to wait for the address of the scheduler before a ticket is requested."""


class TicketSource(Protocol):
    """Requests tickets for calls to other agents."""

    async def ticket(self, address: str, method: str, scope: str) -> Metadata:
        """Return the headers of one call to the agent at `address`, with a ticket for it.

        Args:
            address: Address of the agent.
            method: Name of the method, "FetchSnapshot" or "JoinGang".
            scope: What the call is about, as in `IssueTicketRequest.object`.
        """


class ClusterAccess:
    """Opens channels to the services of the cluster with the token of the node, and requests tickets. Implements `TicketSource`.

    Args:
        scheduler: Address of the scheduler, or the data folder (with a /) of a scheduler on this computer.
        data: Data folder of the agent. For services on TCP ports, its folder `secrets` contains the token, unless `scheduler` is a
            folder.
    """

    def __init__(self, scheduler: str, data: Path) -> None:
        self.scheduler: Final = scheduler
        self._data = Path(scheduler) if _is_folder(scheduler) else data
        self._channels: dict[str, Channel] = {}
        self._opening = asyncio.Lock()

    async def scheduler_address(self) -> str:
        """Return the address of the scheduler, unix:/PATH or HOST:PORT.

        For a folder, wait until a scheduler has written its address there: an agent can start before its scheduler, and finds a
        restarted scheduler at a new address.
        """
        if not _is_folder(self.scheduler):
            return self.scheduler
        while True:
            try:
                return read_address(Path(self.scheduler), "scheduler")
            except NotFound:
                await asyncio.sleep(_LOOK_SECONDS)

    def check_token(self) -> None:
        """Raise an error if the scheduler is at a TCP port and there is no token for it.

        A token next to a socket is not checked, because the cluster may create it later.

        Raises:
            Unauthenticated: There is no token.
            NotFound: The file that HOPYARD_NODE_TOKEN_FILE names does not exist.
            InvalidInput: A file is not private, or a file or variable does not contain the token of a node.
        """
        if not _is_folder(self.scheduler) and not is_socket(self.scheduler):
            find_token(CallerKind.NODE, self.scheduler, self._data)

    @property
    def advice(self) -> str:
        """What to do if a service does not accept the token of the node."""
        return (
            f"the token is next to the socket of the service, in {self._data / SECRETS} or in $HOPYARD_NODE_TOKEN_FILE: "
            "replace it by a copy of secrets/node.token in the data directory of the cluster"
        )

    async def to_scheduler(self) -> Channel:
        """Return a new channel to the scheduler, which the caller closes."""
        return self.to_service(await self.scheduler_address())

    def to_service(self, address: str) -> Channel:
        """Return a new channel to a service of the cluster, which the caller closes. Its calls send the token of the node."""
        return channel(address, token=partial(find_token, CallerKind.NODE, address, self._data))

    async def ticket(self, address: str, method: str, scope: str) -> Metadata:
        """Return the headers of one call to another agent, with a ticket for it; see `TicketSource`.

        Raises:
            NotFound: No connected node has the address.
            HopyardError: The scheduler has no address, did not answer, or refused.
        """
        try:
            async with asyncio.timeout(_ADDRESS_SECONDS):
                scheduler = await self.scheduler_address()
        except TimeoutError as error:
            raise Unavailable(f"no scheduler has written its address into {self.scheduler}") from error
        async with self._opening:
            if scheduler not in self._channels:
                # The address of a restarted scheduler may differ. Calls that wait for the old one fail by themselves.
                await self.close(_ADDRESS_SECONDS)
                self._channels[scheduler] = self.to_service(scheduler)
        stub = resource_manager_pb2_grpc.ResourceManagerServiceStub(self._channels[scheduler])
        request = resource_manager_pb2.IssueTicketRequest(address=address, method=method, object=scope)
        return token_metadata((await stub.IssueTicket(request)).ticket)

    async def close(self, grace: float | None = None) -> None:
        """Close the channel over which tickets are requested. Safe to call twice.

        Args:
            grace: Seconds after which pending calls are cancelled; None: immediately.
        """
        channels, self._channels = list(self._channels.values()), {}
        for one in channels:
            await one.close(grace)


def _is_folder(given: str) -> bool:
    """Return whether the text is a path (it contains a /) and not an address."""
    return "/" in given and not is_socket(given)
