"""Tests of requests to generators: their experiment has ended meanwhile, or its cluster was restored from a backup."""

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


@pytest.mark.parametrize("restored", [True, False])
async def test_a_generator_that_ran_on_while_the_cluster_was_restored_is_rebuilt_once(rig: Rig, restored: bool) -> None:
    async with Background("test") as background:
        asked, question = Asked(rig.core, background), rig.stream.asks["create/1"]
        asked.generators.restored = restored
        for _ in range(2):
            asked.generators.ask(question)
            await asked.answers.get()
        closed = [call.args[0].experiment for call in asked.stub.CloseGenerator.await_args_list]
        assert closed == (["x"] if restored else [])
        order = [name for name, _, _ in asked.stub.mock_calls if name in ("CloseGenerator", "CreateJob")]
        assert order == [*(["CloseGenerator"] if restored else []), "CreateJob", "CreateJob"]
