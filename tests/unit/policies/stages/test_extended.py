"""Tests of completed searches that are extended and continue."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from hopyard.policy import JobState
from hopyard.policy.vocabulary import StreamId
from hopyard_engine.core.events import Updated
from hopyard_policies.stage_tree.policy import StageTreePolicy
from hopyard_simulator import World, simulate
from hopyard_simulator.world import NAME

from .searches import Coarse

pytestmark = pytest.mark.quick


def test_a_search_that_its_last_report_ended_goes_on_when_it_is_extended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check with a report at 8 that completes the only trial and reaches the target.

    The policy gets no up-call for the end of that run.
    """
    worlds: list[World] = []

    def world(*given: Any, **named: Any) -> World:
        worlds.append(World(*given, **named))
        return worlds[-1]

    monkeypatch.setattr(importlib.import_module("hopyard_simulator.simulate"), "World", world)
    workload = Coarse(lambda _given, position: position / 100, [{"lr": 0.1}], 8)
    workload.beyond = 4
    found = simulate(workload, StageTreePolicy, slots=1, target=0.08, details=True)
    assert found.states == {"1": "COMPLETED"}
    (over,) = worlds
    over.handle(Updated(over.timeline.now, StreamId(NAME), "more", max_position=12, target=0.5))
    for _ in over.run():
        pass
    job = over.experiment.jobs["1"]
    assert (job.state, job.position) == (JobState.COMPLETED, 12)
    assert [point.position for point in over.experiment.curve(job)] == list(range(1, 13))
