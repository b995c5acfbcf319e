"""Tests of experiments that name a metric which no report contains, in a real cluster: they pause, and continue with the right name."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState
from hopyard.errors import Conflict, InvalidInput
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard_tools.commands.replay import replay
from tests.integration.scheduler.conftest import experiment
from tests.timing import HANG_SECONDS

HALVING = "policy: {name: sha, eta: 2, r: 1, width: 8}\ngenerator: {name: random, seed: 4}"
LEARNING = "generator: {name: tpe, seed: 4, n_startup_trials: 2}\nresources: {slots: 1}"


def blind(file: Path, metric: str = "acc") -> Path:
    """Rename the metric in an experiment file, so that the program does not report it."""
    file.write_text(file.read_text().replace("name: accuracy", f"name: {metric}"))
    return file


async def paused(client: AsyncClient, created: Experiment) -> Experiment:
    """Wait until an experiment is paused for its missing metric."""
    with pytest.raises(Conflict, match=f"experiment {created.id} is PAUSED: no report contains the metric"):
        await client.wait(created, HANG_SECONDS)
    found = await client.get(created)
    assert found.reason_code is ReasonCode.METRIC_MISSING
    return found


async def trained(client: AsyncClient, created: Experiment) -> dict[str, tuple[str, int, float | None]]:
    return {job.id: (job.state.value, job.position, job.best_value) for job in await client.jobs(created)}


async def test_halving_decides_as_if_the_name_had_been_right_from_the_start(
    client: AsyncClient, address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    right = await client.create(experiment(tmp_path / "right", jobs=8, length=8, more=HALVING))
    await client.wait(right, HANG_SECONDS)
    created = await client.create(blind(experiment(tmp_path / "wrong", jobs=8, length=8, more=HALVING)))
    found = await paused(client, created)
    assert found.reason_args["reported"] == "accuracy"
    assert f"hopyard set {created.id} --metric accuracy" in found.reason
    assert 1 <= len(await client.statistics(created.id)) <= 2  # At most one report of each slot.
    with pytest.raises(Conflict, match="no report contains acuracy; reported are accuracy"):
        await client.update(created, metric="acuracy")
    changed = await client.update(created, metric="accuracy")
    assert (changed.metric.name, changed.spec["metric"]["name"]) == ("accuracy", "accuracy")
    assert changed.state is ExperimentState.PAUSED
    assert changed.best_value is not None
    await client.resume(created)
    ended = await client.wait(created, HANG_SECONDS)
    assert ended.state is ExperimentState.COMPLETED
    assert await trained(client, created) == await trained(client, right)
    with pytest.raises(Conflict, match="has reported accuracy"):
        await client.update(created, metric="acc")
    capfd.readouterr()
    assert await replay(created.id, None, address, None, False)


async def test_a_generator_learns_from_the_new_metric(client: AsyncClient, tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed")
    right = await client.create(experiment(tmp_path / "right", jobs=6, length=1, more=LEARNING))
    await client.wait(right, HANG_SECONDS)
    created = await client.create(blind(experiment(tmp_path / "wrong", jobs=6, length=1, more=LEARNING)))
    await paused(client, created)
    await client.update(created, metric="accuracy")
    await client.resume(created)
    await client.wait(created, HANG_SECONDS)
    assert await trained(client, created) == await trained(client, right)


async def test_a_person_may_continue_without_the_metric(client: AsyncClient, tmp_path: Path) -> None:
    created = await client.create(blind(experiment(tmp_path / "e")))
    await paused(client, created)
    await client.resume(created)
    ended = await client.wait(created, HANG_SECONDS)
    assert (ended.state, ended.best_value) == (ExperimentState.COMPLETED, None)
    changed = await client.update(created, metric="accuracy")
    assert changed.best_value is not None


async def test_a_metric_of_each_third_report_is_awaited(client: AsyncClient, tmp_path: Path) -> None:
    file = experiment(tmp_path / "e", length=6)
    file.write_text(file.read_text().replace("name: accuracy,", "name: rare, every: 3,"))
    train = file.with_name("train.py")
    train.write_text(
        train.read_text().replace(
            'return {"accuracy": self.x * (self.position + 1)}',
            'return {"loss": 1.0, **({"rare": self.x} if self.position % 3 == 2 else {})}',
        )
    )
    ended = await client.wait(await client.create(file), HANG_SECONDS)
    assert (ended.state, ended.best_position) == (ExperimentState.COMPLETED, 3)


async def test_a_metric_of_a_log_program_needs_a_pattern(client: AsyncClient, tmp_path: Path) -> None:
    (tmp_path / "print.sh").write_text("echo loss 1\n")
    file = tmp_path / "experiment.yaml"
    file.write_text(
        "name: log\nlog: {command: [sh, print.sh], metrics: {acc: 'acc (\\S+)', loss: 'loss (\\S+)'}}\n"
        "metric: {name: acc, mode: max}\nspace: {x: {uniform: [0.0, 1.0]}}\nstop: {jobs: 1, max_iterations: 1, max_failures: 0}\n"
    )
    created = await client.create(file)
    await client.wait(created, HANG_SECONDS)
    with pytest.raises(
        InvalidInput, match=r"metric: found .accuracy., allowed are the names in log\.metrics: acc, loss"
    ):
        await client.update(created, metric="accuracy")
