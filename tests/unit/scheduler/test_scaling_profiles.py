"""Tests of the scaling profiles that a new experiment receives, and of those that are written to AppStat."""

from __future__ import annotations

import asyncio
import logging

import pytest

from hopyard.errors import Unavailable
from hopyard.policy.vocabulary import ExperimentId
from hopyard.v1 import appstat_pb2 as pb
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Profiled
from hopyard_engine.core.types import Measured
from hopyard_scheduler.experiments.scaling_profiles import measured
from hopyard_scheduler.runtime.projections import Changes
from hopyard_scheduler.search_plan.projection import PlanRows

pytestmark = pytest.mark.quick

ROWS = [pb.Scaling(training="t", hardware="EPYC", slots=n, seconds=8.0 / n) for n in (1, 2, 4)]


class Kept:
    """Simulates an AppStat that returns one profile a page. `fails`: it raises Unavailable; `hangs`: it does not answer."""

    def __init__(self, fails: bool = False, hangs: bool = False) -> None:
        self._fails, self._hangs = fails, hangs

    async def QueryScaling(self, request: pb.QueryScalingRequest) -> pb.QueryScalingResponse:
        if self._fails:
            raise Unavailable("away")
        if self._hangs:
            await asyncio.Event().wait()
        page = int(request.page_token or "0")
        following = str(page + 1) if page + 1 < len(ROWS) else ""
        rows = ROWS[page : page + 1] if request.training == "t" else []
        return pb.QueryScalingResponse(scaling=rows, next_page_token=following if rows else "")


async def test_all_pages_are_read() -> None:
    found = await measured(Kept(), "t")  # type: ignore[arg-type]
    assert found == (Measured("EPYC", 1, 8.0), Measured("EPYC", 2, 4.0), Measured("EPYC", 4, 2.0))
    assert await measured(Kept(), "another") == ()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (Kept(fails=True), "scaling profiles cannot be read, so they are measured again: away"),
        (Kept(hangs=True), "scaling profiles could not be read within 0.01 s, so they are measured again"),
    ],
)
async def test_an_experiment_begins_without_what_cannot_be_read(
    kept: Kept, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert await measured(kept, "t", 0.01) == ()  # type: ignore[arg-type]
    assert said in caplog.text


def test_what_was_measured_is_written_with_the_journal() -> None:
    changes = Changes()
    changes.note(Profiled(ExperimentId("e1"), "3", "t", Measured("EPYC", 2, 4.0)))
    (row,) = changes.rows(Core(), 7.5, PlanRows())
    assert row.scaling == pb.Scaling(
        training="t", hardware="EPYC", slots=2, seconds=4.0, experiment="e1", job="3", at=7.5
    )
