"""Tests of generators of third parties, each in a process of the generator service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from importlib.metadata import EntryPoint

import psutil
import pytest

from hopyard._common import plugins
from hopyard._common.plugins import GENERATORS
from hopyard.errors import Exhausted, NotFound
from hopyard.spec import ExperimentSpec, parse_spec
from hopyard_hpgen import host as host_module
from hopyard_hpgen.call_log import CreateCall
from hopyard_hpgen.experiment_generator import GeneratorEnded, GeneratorFailed
from hopyard_hpgen.host import GeneratorHost
from tests.integration.children import running
from tests.timing import HANG_SECONDS


def spec(name: str, **more: object) -> ExperimentSpec:
    return parse_spec(
        {
            "name": "e",
            "command": ["true"],
            "metric": {"name": "loss", "mode": "min"},
            "space": {"x": {"uniform": [0.0, 1.0]}},
            "generator": {"name": name, **more},
            "stop": {"jobs": 10},
        }
    )


THEIRS = spec("tests.unit.hpgen.broken:Wrapped")


def processes() -> list[int]:
    return running("hopyard_hpgen.process")


@pytest.fixture
async def host() -> AsyncIterator[GeneratorHost]:
    made = GeneratorHost()
    yield made
    await made.close()
    assert processes() == []


async def gone() -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while processes():  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.02)


async def test_it_proposes_what_it_would_propose_inside_the_service(host: GeneratorHost) -> None:
    await host.open("theirs", THEIRS)
    await host.open("built in", spec("random"))
    assert len(processes()) == 1
    for job in "abc":
        assert await host.create_job("theirs", job) == await host.create_job("built in", job)


async def test_a_killed_process_is_reported_as_such_and_the_recorded_calls_restore_it(host: GeneratorHost) -> None:
    await host.open("e", THEIRS)
    first = await host.create_job("e", "a")
    (pid,) = processes()
    psutil.Process(pid).kill()
    with pytest.raises(GeneratorEnded, match=r"experiment e: generator .*Wrapped: its process was killed by signal 9"):
        await host.create_job("e", "b")
    await host.forget("e")
    with pytest.raises(NotFound):
        await host.create_job("e", "b")
    await host.open("e", THEIRS, [CreateCall("a", first)])
    assert await host.create_job("e", "b") not in (None, first)


async def test_a_failed_generator_has_no_process(host: GeneratorHost) -> None:
    await host.open("e", spec("tests.unit.hpgen.test_domain:Crashes"))
    await host.create_job("e", "a")
    with pytest.raises(
        GeneratorFailed, match=r"create\('b'\) raised RuntimeError: out of ideas \(test_domain.py:\d+\)"
    ):
        await host.create_job("e", "b")
    await gone()


async def test_their_number_is_limited_at_once_and_a_closed_one_does_not_count(
    host: GeneratorHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "MAX_PROCESSES", 2)
    opened = await asyncio.gather(*(host.open(str(one), THEIRS) for one in range(5)), return_exceptions=True)
    refused = [one for one in opened if isinstance(one, Exhausted)]
    assert len(refused) == 3
    assert "2 experiments have generators of third parties, which is the limit" in str(refused[0])
    await host.forget("0")
    await host.open("0", THEIRS)
    await host.open("built in", spec("random"))


async def test_a_trusted_one_runs_inside_the_service(
    host: GeneratorHost, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = plugins.entries
    theirs = EntryPoint("theirs", "tests.unit.hpgen.broken:Wrapped", GENERATORS)
    monkeypatch.setattr(plugins, "entries", lambda group: (*found(group), theirs))
    await host.open("e", spec("theirs", inline=True))
    assert processes() == []
    assert "experiment e: generator theirs runs inside this service (inline: true)" in caplog.text
    assert await host.create_job("e", "a") is not None


async def test_a_closed_host_ends_a_process_that_is_just_starting() -> None:
    made = GeneratorHost()
    opening = asyncio.ensure_future(made.open("e", THEIRS))
    await asyncio.sleep(0)
    async with asyncio.timeout(HANG_SECONDS):
        await made.close()
        await asyncio.gather(opening, return_exceptions=True)
    await gone()
