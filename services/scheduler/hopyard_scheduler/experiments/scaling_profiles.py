"""Reading of scaling profiles: the measured time of a training on several slots, from earlier experiments.

They are read once, before an experiment is created, and become part of the first record of its journal, so that a
replay uses the same values.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from hopyard.errors import HopyardError
from hopyard.v1 import appstat_pb2
from hopyard_engine.core.types import Measured

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc

_LOG = logging.getLogger(__name__)

SECONDS: Final = 10.0
"""Time limit of reading, in seconds."""


async def measured(
    stub: appstat_pb2_grpc.AppStatServiceAsyncStub, training: str, seconds: float = SECONDS
) -> tuple[Measured, ...]:
    """Return the measured seconds per iteration of a training, one entry for each kind of host and number of slots.

    If AppStat fails or the time limit is exceeded, it logs a warning and returns an empty tuple. The experiment then
    measures the times again.

    Args:
        stub: Client of AppStat.
        training: The hash of the training (`ExperimentProgram.training`).
        seconds: Time limit in seconds.
    """
    try:
        async with asyncio.timeout(seconds):
            return await _read(stub, training)
    except TimeoutError:
        _LOG.warning("scaling profiles could not be read within %g s, so they are measured again", seconds)
    except HopyardError as error:
        _LOG.warning("scaling profiles cannot be read, so they are measured again: %s", error)
    return ()


async def _read(stub: appstat_pb2_grpc.AppStatServiceAsyncStub, training: str) -> tuple[Measured, ...]:
    found: list[Measured] = []
    request = appstat_pb2.QueryScalingRequest(training=training)
    while True:
        page = await stub.QueryScaling(request)
        found += [Measured(row.hardware, row.slots, row.seconds) for row in page.scaling]
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return tuple(found)
