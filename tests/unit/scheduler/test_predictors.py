"""Tests of the cache of predictors, and of predictors that cannot be created."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hopyard.errors import InvalidInput, NotFound
from hopyard.spec import PredictorSpec
from hopyard_scheduler.external_requests.predictions.probe import Predictors

pytestmark = pytest.mark.quick

ONE, OTHER = PredictorSpec(name="m:One"), PredictorSpec(name="m:Other")


class Probe:
    """Simulates the creation of predictors: those in `broken` fail, after `held` is set. `asked` records all calls."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[str] = []
        self.code: list[Path | None] = []
        self.broken = {"m:One"}
        self.held: asyncio.Event | None = None
        self.predictors = Predictors(self.unpacked, 7.0, self.make, lambda: self.now)

    @asynccontextmanager
    async def unpacked(self, bundle: str) -> AsyncIterator[Path]:
        if bundle == "gone":
            raise NotFound("no blob")
        yield Path(bundle)

    async def make(self, name: str, parameters: Mapping[str, Any], seconds: float, code: Path | None) -> str:
        assert seconds == 7.0
        self.code.append(code)
        self.asked.append(name)
        if self.held is not None and name in self.broken:
            await self.held.wait()
        if name in self.broken:
            raise InvalidInput(f"{name} is broken")
        return "curves"

    async def fails(self) -> bool:
        """Return whether a request fails as expected; `asked` shows whether it tried to create the predictor."""
        try:
            return await self.predictors.reads(ONE, "") != "curves"
        except InvalidInput as error:
            return str(error) == "m:One is broken"


async def test_a_predictor_is_made_once() -> None:
    probe = Probe()
    assert [await probe.predictors.reads(OTHER, "") for _ in range(3)] == ["curves"] * 3
    assert probe.asked == ["m:Other"]
    assert await probe.predictors.reads(PredictorSpec(name="m:Other", fade=0.5), "") == "curves"  # type: ignore[call-arg]
    assert probe.asked == ["m:Other"] * 2


async def test_a_failure_is_remembered_told_once_and_tried_again_ever_later(caplog: pytest.LogCaptureFixture) -> None:
    probe = Probe()
    tries = []
    for second in range(0, 2000, 5):
        probe.now = float(second)
        before = len(probe.asked)
        assert await probe.fails()
        if len(probe.asked) > before:
            tries.append(second)
    assert tries == [0, 30, 90, 210, 450, 930, 1530]
    assert [record.message for record in caplog.records] == [
        "m:One is broken; it is tried again after 30 s at the earliest"
    ]
    probe.broken.clear()
    probe.now = 2130.0
    assert await probe.predictors.reads(ONE, "") == "curves"


async def test_a_new_experiment_looks_again() -> None:
    probe = Probe()
    assert await probe.fails()
    with pytest.raises(InvalidInput, match="m:One is broken"):
        await probe.predictors.check(ONE, "")
    probe.broken.clear()
    assert await probe.fails()
    await probe.predictors.check(ONE, "")
    assert await probe.predictors.reads(ONE, "") == "curves"
    assert len(probe.asked) == 3


async def test_one_that_takes_long_holds_up_no_other_and_is_made_once_for_all_that_wait() -> None:
    probe = Probe()
    probe.held = asyncio.Event()
    waiting = [asyncio.create_task(probe.fails()) for _ in range(5)]
    assert await probe.predictors.reads(OTHER, "") == "curves"
    probe.held.set()
    assert await asyncio.gather(*waiting) == [True] * 5
    assert probe.asked.count("m:One") == 1


async def test_a_predictor_is_made_with_the_code_of_its_experiment() -> None:
    probe = Probe()
    for bundle in ("a", "a", "b", ""):
        await probe.predictors.reads(OTHER, bundle)
    assert probe.code == [Path("a"), Path("b"), None]
    await probe.predictors.reads(PredictorSpec(name="pooled"), "a")
    assert probe.code[3:] == [None]
    with pytest.raises(NotFound):
        await probe.predictors.reads(OTHER, "gone")


async def test_a_name_that_nobody_has_needs_no_process() -> None:
    probe = Probe()
    with pytest.raises(InvalidInput, match="no plugin is called 'nobody'"):
        await probe.predictors.reads(PredictorSpec(name="nobody"), "")
    assert probe.asked == []
