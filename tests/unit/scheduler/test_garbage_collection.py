"""Tests of the snapshots that are needed, while experiments are read and change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from hopyard.policy.vocabulary import StreamId
from hopyard.v1 import common_pb2, experiment_pb2
from hopyard_engine.core import Core
from hopyard_engine.core.events import StreamCreated
from hopyard_scheduler.storage.garbage_collection import SnapshotNeeds
from tests.unit.core.rig import settings

pytestmark = pytest.mark.quick


class Door:
    """Two finished experiments with one snapshot each; x leaves the core while the jobs of y are read."""

    def __init__(self, core: Core) -> None:
        self.core = core

    async def show_all(self) -> list[experiment_pb2.Experiment]:
        return [experiment_pb2.Experiment(id=name, group=name) for name in ("x", "y")]

    async def jobs(self, name: str) -> list[experiment_pb2.Job]:
        if name == "y":
            self.core.forget(StreamId("x"))
        return [experiment_pb2.Job(experiment=name, id="1", snapshots=[common_pb2.Snapshot(sha256=f"of {name}")])]


async def test_an_experiment_that_leaves_the_core_while_another_is_read_is_read_too() -> None:
    core = Core()
    core.handle(StreamCreated(1.0, StreamId("x"), settings(), {"bundle": ""}))
    needs = SnapshotNeeds(cast("Any", SimpleNamespace(core=core)), cast("Any", Door(core)))
    await needs.list_experiments()
    await needs.read(["x", "y"])
    assert needs.has("x", "of x")
    assert needs.held("of x")
    assert needs.has("y", "of y")
    assert not needs.has("x", "of nobody")


class Keeping:
    """A finished experiment with two jobs. Two snapshots serve only other experiments (`for_others`); `both` and `end` are results."""

    async def show_all(self) -> list[experiment_pb2.Experiment]:
        return [experiment_pb2.Experiment(id="x", group="x")]

    async def jobs(self, name: str) -> list[experiment_pb2.Job]:
        def saved(sha256: str, seconds: float | None = None) -> common_pb2.Snapshot:
            return common_pb2.Snapshot(sha256=sha256, for_others=seconds is not None, seconds_again=seconds or 0.0)

        one = [saved("branch", 4.0), saved("same", 9.0), saved("both", 2.0), saved("end")]
        return [
            experiment_pb2.Job(experiment=name, id="1", snapshots=one),
            experiment_pb2.Job(experiment=name, id="2", snapshots=[saved("same", 5.0), saved("both")]),
        ]


async def test_what_is_kept_for_others_alone_has_a_price_and_is_needed_only_while_it_is_wanted() -> None:
    commands, live = cast("Any", Keeping()), cast("Any", SimpleNamespace(core=Core()))
    for wanted in (True, False):
        needs = SnapshotNeeds(live, commands, for_others=wanted)
        await needs.list_experiments()
        await needs.read(["x"])
        assert await needs.price("x") == {"branch": 4.0, "same": 5.0}
        assert await needs.price("nobody") == {}
        assert {s for s in ("branch", "same") if needs.has("x", s)} == ({"branch", "same"} if wanted else set())
        assert needs.has("x", "both")
        assert needs.has("x", "end")
        assert needs.releases_reusable("x") is not wanted
