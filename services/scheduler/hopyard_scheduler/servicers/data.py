"""DataService: the catalog of data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopyard.v1 import data_pb2 as pb
from hopyard.v1 import data_pb2_grpc
from hopyard_scheduler.data.catalog import Catalog
from hopyard_scheduler.pagination import page

if TYPE_CHECKING:
    import grpc.aio


class DataServicer(data_pb2_grpc.DataServiceServicer):
    """Implements DataService on the catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def RegisterData(
        self,
        request: pb.RegisterDataRequest,
        context: grpc.aio.ServicerContext[pb.RegisterDataRequest, pb.RegisterDataResponse],
    ) -> pb.RegisterDataResponse:
        """Registers a data set."""
        return pb.RegisterDataResponse(data=await self._catalog.register(request.data, request.request_id))

    async def GetData(
        self, request: pb.GetDataRequest, context: grpc.aio.ServicerContext[pb.GetDataRequest, pb.GetDataResponse]
    ) -> pb.GetDataResponse:
        """Returns a data set."""
        return pb.GetDataResponse(data=self._catalog.show(request.name))

    async def ListData(
        self, request: pb.ListDataRequest, context: grpc.aio.ServicerContext[pb.ListDataRequest, pb.ListDataResponse]
    ) -> pb.ListDataResponse:
        """Returns a page of the data sets."""
        shown, token = page(self._catalog.show_all(), request.page_size, request.page_token)
        return pb.ListDataResponse(data=shown, next_page_token=token)

    async def DropData(
        self, request: pb.DropDataRequest, context: grpc.aio.ServicerContext[pb.DropDataRequest, pb.DropDataResponse]
    ) -> pb.DropDataResponse:
        """Removes a data set from the catalog."""
        await self._catalog.drop(request.name)
        return pb.DropDataResponse()
