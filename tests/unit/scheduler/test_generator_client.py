"""Test of a request to a generator whose experiment has ended meanwhile."""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock

import pytest

from hopyard._net.server import Background
from hopyard.policy.vocabulary import CreateJob, StreamId
from hopyard.v1 import hpgen_pb2
from hopyard_engine.core import Core
from hopyard_engine.core.events import Event
from hopyard_scheduler.external_requests.generator_client import Generators
from tests.unit.core.rig import Rig

pytestmark = pytest.mark.quick


class Asked:
    """The client of generators with a stub for the service; its answers are in the queue `answers`."""

    def __init__(self, core: Core, background: Background) -> None:
        self.stub = AsyncMock()
        self.stub.CreateJob.return_value = hpgen_pb2.CreateJobResponse(exhausted=True)
        self.answers: asyncio.Queue[Event] = asyncio.Queue()
        self.generators = Generators(self.stub, background, lambda: 1.0)
        self.generators.attach(core, self.answers.put_nowait)


@pytest.fixture
def rig() -> Rig:
    """A core that waits for the configuration of a job."""
    rig = Rig()
    rig.command(CreateJob("1"))
    return rig


async def test_a_question_of_an_experiment_that_is_forgotten_costs_nobody_else_anything(rig: Rig) -> None:
    async with Background("test") as background:
        asked, late = Asked(rig.core, background), rig.stream.asks["create/1"]
        rig.core.forget(StreamId("x"))
        asked.generators.ask(late)
        answer = await asked.answers.get()
        assert getattr(answer, "error", "") == "experiment x is over"
        assert background.failure is None
