"""Tests of a watched session: its begin before the agent has registered, and its end when the local cluster fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hopyard.cli.commands.experiments.local_slots import SlotWishes
from hopyard.cli.commands.session.run_session import RunSession
from hopyard.client.types import Experiment
from hopyard.errors import Unavailable
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
