"""Tests of a watched session: its begin before the agent has registered, and its end when the local cluster fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hopyard.cli.commands.experiments.local_slots import SlotWishes, wait_for_agent
from hopyard.cli.commands.session.run_session import RunSession
from hopyard.client.local_cluster.embedded import EmbeddedCluster
from hopyard.client.types import Experiment, Node, NodeState
from hopyard.errors import Unavailable
from tests.timing import HANG_SECONDS
from tests.unit.cli.test_live import experiment


class Client:
    """A client whose watch never yields a change."""

    async def statistics(self, _: Experiment) -> list[object]:
        return []

    async def watch(self, _: Experiment) -> AsyncGenerator[object]:
        await asyncio.Event().wait()
        yield None

    async def cluster(self) -> object:
        return SimpleNamespace(trouble="")

    async def nodes(self) -> list[object]:
        return []


class Dying:
    """A local cluster, one of whose processes has ended."""

    slots = 1

    async def died(self) -> None:
        raise Unavailable("scheduler ended with exit code 1; the end of its log: no space left")


async def test_a_cluster_of_one_s_own_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    session = RunSession(None, tmp_path, SlotWishes(1), "a test")
    session._own = cast("Any", Dying())
    with pytest.raises(Unavailable, match="scheduler ended with exit code 1"):
        await session._watch(cast("Any", Client()), experiment(), "", json=False)


class Registering:
    """A client that lists the node of the earlier cluster as lost until the agent has registered."""

    def __init__(self, *states: NodeState) -> None:
        self._states: Iterator[NodeState] = iter(states)
        self.state = NodeState.LOST

    async def nodes(self) -> list[Node]:
        self.state = next(self._states, self.state)
        return [Node("local", "127.0.0.1:1", self.state)]

    async def get(self, _: Experiment) -> Experiment:
        return replace(experiment(), reason="" if self.state is NodeState.UP else "no agent is connected")


class Running:
    """A local cluster whose processes do not end."""

    slots = 1

    async def died(self) -> None:
        await asyncio.Event().wait()


async def test_the_view_begins_when_the_agent_has_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Registering(NodeState.LOST, NodeState.LOST, NodeState.UP)
    session = RunSession(None, tmp_path, SlotWishes(1), "a test")

    async def begin(_: object) -> Experiment:
        return await client.get(experiment())

    async def watch(_: object, present: Experiment, *__: object) -> int:
        assert present.reason == ""
        return 0

    monkeypatch.setattr(session, "_connected", lambda: _opened(session, client))
    monkeypatch.setattr(session, "_watch", watch)
    assert await session.follow(begin, "", json=False) == 0


@asynccontextmanager
async def _opened(session: RunSession, client: Registering) -> AsyncGenerator[Registering]:
    session._own = cast("EmbeddedCluster", Running())
    yield client


@pytest.mark.parametrize(("cluster", "limit"), [(Running(), 0.0), (Dying(), HANG_SECONDS)])
async def test_an_agent_that_does_not_register_is_not_awaited_forever(cluster: object, limit: float) -> None:
    client = Registering()
    async with asyncio.timeout(HANG_SECONDS):
        await wait_for_agent(cast("Any", client), cast("Any", cluster), limit)
    assert client.state is NodeState.LOST
