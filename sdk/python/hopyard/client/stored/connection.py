"""Opens the stored data of a cluster that does not run, with the interface of a connection to a cluster."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import grpc.aio

from hopyard._common.plugins import READERS, load_plugin
from hopyard._common.private_files import check_own_folder
from hopyard._net.rpc.channel import Metadata
from hopyard._net.rpc.servicer_channel import ServicerChannel
from hopyard.client.local_cluster.embedded import agent_folders
from hopyard.client.stored.servicers import (
    StoredDataServicer,
    StoredExperiments,
    StoredExperimentServicer,
    StoredJobServicer,
    StoredNodeServicer,
)
from hopyard.client.wire.connection import Connection
from hopyard.v1.appstat_pb2_grpc import AppStatServiceStub, CatalogServiceStub
from hopyard.v1.data_pb2_grpc import add_DataServiceServicer_to_server
from hopyard.v1.experiment_pb2_grpc import add_ExperimentServiceServicer_to_server
from hopyard.v1.job_manager_pb2_grpc import add_JobManagerServiceServicer_to_server
from hopyard.v1.resource_manager_pb2_grpc import add_ResourceManagerServiceServicer_to_server

if TYPE_CHECKING:
    from hopyard.v1.appstat_pb2_grpc import AppStatServiceAsyncStub

T = TypeVar("T")

_SCHEDULER: Final = "stored"
"""The address of the stored services within a `StoredConnection`."""


class StoredService(Protocol):
    """Reads the folder of a service that does not run, and answers the service's queries from it.

    Two plugins of the entry-point group `hopyard.readers` return such objects: "appstat" for a data directory, "agent" for the
    folder of a node agent. Such a plugin is called with the folder as its only argument. It raises an error of `hopyard.errors` if it
    cannot read the folder.
    """

    def register(self, server: grpc.aio.Server) -> None:
        """Add the servicers that answer the queries to `server`, which may be a `ServicerChannel`."""

    def close(self) -> None:
        """Release all files. Safe to call twice."""


class StoredConnection(Connection):
    """The queries of a cluster, answered from its data directory while it does not run. Calls that change something raise `Conflict`.

    Args:
        data: The data directory.
        options: The options with which commands find the directory, with a leading blank, for the commands that messages name; empty:
            none needed.

    Raises:
        InvalidInput: Another user can change the data directory (`check_own_folder`). Its code could run as this user, for example by
            `hopyard replay --execute`.
        Conflict: The data are of another version of Hopyard.
        DataLoss: The database is damaged.
        Unavailable: The database cannot be opened.
    """

    live = False

    def __init__(self, data: Path, options: str = "") -> None:
        check_own_folder(data)
        super().__init__(_SCHEDULER, timeout=0.0, patience=0.0)
        self._refusal = (
            f"no cluster runs in {data}, and this needs one: `hopyard up --data {shlex.quote(str(data))}` or "
            f"`hopyard resume{options}` starts it"
        )
        self._readers: list[StoredService] = []
        self._local = {_SCHEDULER: ServicerChannel(self._refusal)}
        server: Any = self._local[_SCHEDULER]  # The generated functions accept it; see `ServicerChannel`.
        self._open("appstat", data, server)
        experiments = StoredExperiments(
            AppStatServiceStub(server), lambda experiment: f"hopyard resume {experiment}{options}"
        )
        # The channel refuses the methods that the servicers do not implement.
        jobs, nodes = StoredJobServicer(experiments), StoredNodeServicer(agent_folders(data))  # type: ignore[abstract]
        add_ExperimentServiceServicer_to_server(StoredExperimentServicer(experiments), server)  # type: ignore[abstract]
        add_JobManagerServiceServicer_to_server(jobs, server)
        add_ResourceManagerServiceServicer_to_server(nodes, server)
        data_sets = StoredDataServicer(CatalogServiceStub(server), experiments)  # type: ignore[abstract]
        add_DataServiceServicer_to_server(data_sets, server)

    async def appstat(self) -> AppStatServiceAsyncStub:
        """Return the stub of the AppStat that reads the data."""
        return AppStatServiceStub(self._channel(_SCHEDULER))

    async def call(self, once: Callable[[], Awaitable[T]]) -> T:
        """Call `once`, and return its result or raise its error. It is not retried: there is no connection that could be lost."""
        return await once()

    async def close(self) -> None:
        """Close all files. Safe to call twice."""
        for reader in self._readers:
            reader.close()

    async def ticket(self, address: str, method: str, scope: str) -> Metadata:
        """Return no headers: the folder of a node agent is read, and needs no ticket."""
        return ()

    def _channel(self, address: str, *, with_token: bool = True) -> grpc.aio.Channel:
        if address not in self._local:  # the folder of a node agent
            self._local[address] = ServicerChannel(self._refusal)
            self._open("agent", Path(address), self._local[address])
        return self._local[address]

    def _open(self, plugin: str, folder: Path, server: Any) -> None:
        make: Any = load_plugin(READERS, plugin)
        reader: StoredService = make(folder)
        self._readers.append(reader)
        reader.register(server)
