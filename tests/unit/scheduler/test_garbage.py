"""What is needed stays needed while others are looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hopyard.v1 import common_pb2, experiment_pb2
from hopyard_scheduler.core import Core
from hopyard_scheduler.core.events import ExperimentCreated
from hopyard_scheduler.garbage import Needs
from tests.unit.core.rig import settings


class Door:
    """Two finished experiments, each with a snapshot; x leaves the core while the rows of y are read."""

    def __init__(self, core: Core) -> None:
        self.core = core

    async def show_all(self) -> list[experiment_pb2.Experiment]:
        return [experiment_pb2.Experiment(id=name, group=name) for name in ("x", "y")]

    async def jobs(self, name: str) -> list[experiment_pb2.Job]:
        if name == "y":
            self.core.forget("x")
        return [experiment_pb2.Job(experiment=name, id="1", snapshots=[common_pb2.Snapshot(sha256=f"of {name}")])]


async def test_an_experiment_that_leaves_the_core_while_another_is_read_is_read_too() -> None:
    core = Core()
    core.handle(ExperimentCreated(1.0, "x", settings(), {"bundle": ""}))
    needs = Needs(cast("Any", SimpleNamespace(core=core)), cast("Any", Door(core)))
    await needs.look()
    await needs.read(["x", "y"])
    assert needs.has("x", "of x")
    assert needs.held("of x")
    assert needs.has("y", "of y")
    assert not needs.has("x", "of nobody")
