"""Test of two schedulers on one AppStat: the newer one writes, and the older one reports why it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from tests.e2e.harness import softmax_file
from tests.e2e.services import Services
from tests.timing import HANG_SECONDS


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_the_older_of_two_schedulers_ends_with_one_clear_line(tmp_path: Path, busy: bool) -> None:
    async with Services(tmp_path / "data") as services:
        appstat = await services.start("appstat", "appstat")
        hpgen = await services.start("hpgen", "hpgen")
        options = ("--appstat", appstat, "--hpgen", hpgen)
        older = await services.start("older", "scheduler", *options)
        experiment = ""
        if busy:
            async with AsyncClient(server=older) as client:
                experiment = (await client.create(softmax_file(tmp_path / "e"))).id
        newer = await services.start("newer", "scheduler", *options)
        async with asyncio.timeout(HANG_SECONDS):
            code = await services.running["older"].wait()
        assert code == 1
        # On a busy host there may be warnings, such as of a stall.
        said = services.said("older").splitlines()
        (line,) = [line for line in said if " INFO " not in line and " WARNING " not in line]
        assert "ERROR scheduler" in line
        assert "another scheduler has taken over this AppStat, so this one ends: epoch 1 is over: epoch 2 (of '" in line
        assert services.running["newer"].running
        async with AsyncClient(server=newer) as client:
            known = [one.id for one in await client.experiments()]
            assert known == ([experiment] if busy else [])
            await client.stop((await client.create(softmax_file(tmp_path / "e"))).id)
