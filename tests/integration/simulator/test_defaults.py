"""Tests that a simulated search has the same defaults as a live one: each setting of the engine, under each built-in policy."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from hopyard.client import AsyncClient
from hopyard.space import Space
from hopyard.spec import ExperimentSpec, load_spec
from hopyard_appstat.service import AppStatService
from hopyard_engine.core.events import StreamCreated
from hopyard_engine.core.types import Settings
from hopyard_hpgen.service import HpgenService
from hopyard_scheduler.service import SchedulerService
from hopyard_simulator import CurveWorkload, simulate
from hopyard_tools.commands.journal_source import reading
from hopyard_tools.commands.simulate import command
from tests.timing import HANG_SECONDS

POLICIES = (
    "default", "bandit", "earlyterm", "median", "pbt", "pop", "pop_plus", "stage_tree", "sha", "asha", "hyperband", "async_hyperband",
)  # fmt: skip

FILE = """
name: defaults
trainer: train.py:Trainer
metric: {{name: accuracy, mode: max}}
space: {{x: {{uniform: [0.0, 1.0]}}}}
policy: {policy}
stop: {{jobs: 300, max_iterations: 256}}
"""

OF_THE_CLUSTER = ("plan", "training")
"""The settings that identify the code of a live experiment in the database."""


class Created(Exception):
    """Ends a simulation before its first event."""


def simulated(policy: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Settings:
    """Return the settings with which `simulate` begins."""
    found: list[Settings] = []

    def world(workload: object, policy: object, settings: Settings, *_: object, **named: object) -> None:
        found.append(settings)
        raise Created

    monkeypatch.setattr(importlib.import_module("hopyard_simulator.simulate"), "World", world)
    workload = CurveWorkload(lambda _, position: position, [{"x": n / 300} for n in range(300)], 256, metric="accuracy")
    with pytest.raises(Created):
        simulate(workload, policy, slots=2, space=Space.from_dict({"x": {"uniform": [0.0, 1.0]}}), **more)
    return found[0]


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    """A client of a cluster without nodes."""
    appstat = AppStatService(data=tmp_path / "appstat")
    hpgen = HpgenService()
    scheduler = SchedulerService(appstat=await appstat.start(), hpgen=await hpgen.start())
    async with AsyncClient(server=await scheduler.start(), patience=HANG_SECONDS) as client:
        yield client
    await scheduler.stop(1)
    await hpgen.stop(1)
    await appstat.stop(1)


def written(folder: Path, policy: str) -> Path:
    """Write an experiment file and its code to a new folder, and return the file."""
    folder.mkdir()
    (folder / "train.py").write_text("from hopyard.trainer import Trainer\n")
    file = folder / "experiment.yaml"
    file.write_text(FILE.format(policy=policy))
    return file


async def recorded(client: AsyncClient, file: Path) -> Settings:
    """Create a live experiment, and return the settings that its journal begins with."""
    experiment = await client.create(file)
    async with reading(client, experiment) as source:
        event = await anext(event async for _, event in source.read())
    assert isinstance(event, StreamCreated)
    return event.settings


async def test_a_simulated_search_has_the_settings_of_a_live_one(
    live: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    differ: dict[str, tuple[object, object]] = {}
    for policy in POLICIES:
        settings, found = await recorded(live, written(tmp_path / policy, policy)), simulated(policy, monkeypatch)
        pairs = {one.name: (getattr(settings, one.name), getattr(found, one.name)) for one in fields(Settings)}
        differ |= {
            f"{policy}: {name}": pair
            for name, pair in pairs.items()
            if pair[0] != pair[1] and name not in OF_THE_CLUSTER
        }
    assert differ == {}


def test_the_options_of_the_command_have_the_defaults_of_an_experiment_file() -> None:
    spec: ExperimentSpec = load_spec(FILE.format(policy="default").replace("policy: default\n", ""))
    given = inspect.signature(command).parameters
    assert {name: given[name].default for name in ("policy", "predictor", "seed")} == {
        "policy": spec.policy.name, "predictor": spec.predictor.name, "seed": spec.generator.seed,
    }  # fmt: skip


def test_the_defaults_are_those_that_the_page_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the values of docs/simulation.md, so that they change together with the experiment file's."""
    settings = simulated("default", monkeypatch)
    page = (Path(__file__).parents[3] / "docs" / "simulation.md").read_text()
    for name in ("snapshot_every", "ship_every", "keep_latest", "keep_best", "max_failures", "max_losses"):
        assert f"`{name}` {getattr(settings, name)}" in page
