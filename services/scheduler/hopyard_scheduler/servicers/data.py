"""The gRPC service DataService: the catalog of data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopyard.v1 import data_pb2 as pb
from hopyard.v1 import data_pb2_grpc
from hopyard_scheduler.data.catalog import Catalog
from hopyard_scheduler.pagination import page

if TYPE_CHECKING:
    import grpc.aio


class DataServicer(data_pb2_grpc.DataServiceServicer):
    """Implements the gRPC service DataService by calls to the catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def RegisterData(
        self,
        request: pb.RegisterDataRequest,
        context: grpc.aio.ServicerContext[pb.RegisterDataRequest, pb.RegisterDataResponse],
    ) -> pb.RegisterDataResponse:
        """Register a data set after its nodes have read the files. Return it with the state of its replicas.

        InvalidInput: names, nodes or files are invalid or missing. AlreadyExists: the name is used. Conflict: a node
        that has a replica is not connected.
        """
        return pb.RegisterDataResponse(data=await self._catalog.register(request.data, request.request_id))

    async def GetData(
        self, request: pb.GetDataRequest, context: grpc.aio.ServicerContext[pb.GetDataRequest, pb.GetDataResponse]
    ) -> pb.GetDataResponse:
        """Return the data set with the requested name and the state of its replicas. NotFound: it is not registered."""
        return pb.GetDataResponse(data=self._catalog.show(request.name))

    async def ListData(
        self, request: pb.ListDataRequest, context: grpc.aio.ServicerContext[pb.ListDataRequest, pb.ListDataResponse]
    ) -> pb.ListDataResponse:
        """Return a page of the registered data sets, sorted by name. InvalidInput: the page size or token is invalid."""
        shown, token = page(self._catalog.show_all(), request.page_size, request.page_token)
        return pb.ListDataResponse(data=shown, next_page_token=token)

    async def DropData(
        self, request: pb.DropDataRequest, context: grpc.aio.ServicerContext[pb.DropDataRequest, pb.DropDataResponse]
    ) -> pb.DropDataResponse:
        """Remove a data set from the catalog; its files stay. NotFound: unknown name. Conflict: an unfinished experiment uses it."""
        await self._catalog.drop(request.name)
        return pb.DropDataResponse()
