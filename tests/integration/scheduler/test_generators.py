"""Tests of a generator that learns, through all services."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState, JobState
from hopyard.errors import InvalidInput
from hopyard.generator import Generator, ObjectiveMetric, Result
from hopyard.space import Configuration
from hopyard.spec import load_spec
from hopyard_appstat.service import AppStatService
from hopyard_hpgen.experiment_generator import make_generator
from hopyard_hpgen.generators.random import RandomGenerator
from hopyard_hpgen.service import HpgenService
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.settings import AgentSettings, SlotSettings
from hopyard_scheduler.service import SchedulerService
from tests.timing import HANG_SECONDS

pytest.importorskip("optuna", reason="the extra optuna is not installed: pip install './hopyard[optuna]'")

JOBS = 30
TRAINER = '''
import json
from hopyard.trainer import Trainer


class Bowl(Trainer):
    """A quadratic that gets less with every step."""

    def setup(self, hp, changed):
        model = hp["model"]
        self.loss = (model["x"] - 2) ** 2 + (model["y"] + 1) ** 2 + hp.get("momentum", 0.5)

    def train(self):
        return {"loss": self.loss / (self.position + 1)}

    def save(self, folder):
        (folder / "state.json").write_text(json.dumps({}))

    def load(self, folder):
        pass
'''
EXPERIMENT = f"""
name: bowl
trainer: train.py:Bowl
metric: {{name: loss, mode: min}}
space:
  optimizer: {{choice: [sgd, adam]}}
  momentum: {{uniform: [0, 1], when: {{optimizer: sgd}}}}
  model: {{space: {{x: {{uniform: [-5, 5]}}, y: {{uniform: [-5, 5]}}}}}}
constraints: model.x + model.y < 6
generator: {{name: tpe, seed: 3, n_startup_trials: 5}}
policy: {{name: default, ahead: 0}}
stop: {{jobs: {JOBS}, max_iterations: 2}}
"""


def _loss(configuration: Mapping[str, Any]) -> float:
    model = configuration["model"]
    loss: float = (model["x"] - 2) ** 2 + (model["y"] + 1) ** 2 + configuration.get("momentum", 0.5)
    return loss


def _one_after_another(generator: Generator) -> list[Configuration]:
    """Return the proposals of a generator if each job ends before the next configuration is requested."""
    generator.metric = ObjectiveMetric("loss", "min")
    found = list[Configuration]()
    for ordinal in range(JOBS):
        configuration = generator.create(str(ordinal), ordinal)
        assert configuration is not None
        found.append(configuration)
        for position in (1, 2):
            generator.report(str(ordinal), position, {"loss": _loss(configuration) / position})
        generator.report_final(str(ordinal), Result({"loss": _loss(configuration) / 2}, position=2))
    return found


async def _completed(client: AsyncClient, experiment: str, wanted: int) -> None:
    async for _ in client.watch(experiment):
        if len(await client.jobs(experiment, JobState.COMPLETED)) >= wanted:
            return


async def test_tpe_finds_the_minimum_of_a_bowl_though_services_die(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    folder.mkdir()
    (folder / "train.py").write_text(TRAINER)
    (folder / "experiment.yaml").write_text(EXPERIMENT)
    appstat, hpgen = AppStatService(data=tmp_path / "appstat"), HpgenService(data=tmp_path / "hpgen")
    scheduler = SchedulerService(appstat=await appstat.start(), hpgen=await hpgen.start(), data=tmp_path)
    address = await scheduler.start()
    slots = (SlotSettings(id="n/0", cpus=1),)
    agent = NodeAgent(AgentSettings(node="n", scheduler=address, data=tmp_path / "agent", slots=slots))
    await agent.start()
    try:
        async with AsyncClient(server=address, patience=HANG_SECONDS) as client:
            (folder / "none.yaml").write_text(EXPERIMENT.replace("model.x + model.y < 6", "model.x > 9"))
            with pytest.raises(InvalidInput, match=r"constraints: 0 of 1000 configurations fitted \(model.x > 9 let 0"):
                await client.create(folder / "none.yaml")
            created = await client.create(folder / "experiment.yaml")
            await _completed(client, created.id, 8)
            await hpgen.stop(0)
            hpgen = HpgenService(data=tmp_path / "hpgen")
            await hpgen.start()
            await _completed(client, created.id, 16)
            await scheduler.stop(0)
            scheduler = SchedulerService(appstat=appstat.address, hpgen=hpgen.address, data=tmp_path)
            await scheduler.start()
            ended = await client.wait(created.id, timeout=HANG_SECONDS)
            assert (ended.state, ended.reason) == (ExperimentState.COMPLETED, "all jobs ended")
            proposed = [job.hyperparameters for job in await client.jobs(created.id)]
    finally:
        await agent.stop()
        await scheduler.stop(1)
        await hpgen.stop(1)
        await appstat.stop(1)
    spec = load_spec(EXPERIMENT)
    assert proposed == _one_after_another(make_generator(spec))
    drawn = _one_after_another(RandomGenerator(spec.search_space, 3))
    assert min(map(_loss, proposed)) < 0.5 * min(map(_loss, drawn))
