"""Tests of predictions in a whole cluster: a policy requests one, and the node that trains the job answers."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from hopyard._common.plugins import entries
from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState
from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import Predict
from hopyard_engine.core.events import Answered, Event, PolicyAnswered
from hopyard_tools.commands.journal_source import opened
from tests.integration.scheduler.conftest import experiment
from tests.timing import HANG_SECONDS, scaled

MORE = """
policy: "tests.integration.scheduler.prediction_policies:{policy}"
predictor: {{name: "tests.integration.predictors:{name}", {parameters}}}
metric: {{name: accuracy, mode: max, target: 100, min: 0, max: 200}}
"""


def file(folder: Path, name: str, parameters: str = "", *, policy: str = "Patient", **changes: object) -> Path:
    more = MORE.format(policy=policy, name=name, parameters=parameters)
    found = experiment(folder, more=more, **changes)  # type: ignore[arg-type]
    text = found.read_text().replace("metric: {name: accuracy, mode: max}\n", "", 1)
    found.write_text(text)
    return found


async def journal(address: str, found: Experiment) -> list[Event]:
    async with opened(address, None, found.id, "a test") as source:
        return [event async for _, event in source.read()]


def asked(events: list[Event]) -> list[str]:
    answers = [event.answer for event in events if isinstance(event, PolicyAnswered)]
    return ["policy/" + c.ticket for answer in answers for c in answer.commands if isinstance(c, Predict)]


def answered(events: list[Event]) -> list[Answered]:
    return [event for event in events if isinstance(event, Answered) and event.ticket.startswith("policy/")]


async def test_a_policy_gets_predictions(client: AsyncClient, address: str, tmp_path: Path) -> None:
    created = await client.create(file(tmp_path / "e", "Toy", "spread: 0.25", jobs=2, length=6))
    ended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert ended.state is ExperimentState.COMPLETED
    events = await journal(address, created)
    answers = answered(events)
    assert sorted(answer.ticket for answer in answers) == sorted(asked(events))
    assert len(answers) == 10
    assert {answer.error for answer in answers} == {""}
    assert all(answer.result["deviation"][-1] == 0.25 for answer in answers)
    assert all(answer.result["reaches"][-1] == 0.0 for answer in answers)


async def test_a_predictor_that_reads_curves_gets_those_of_the_other_jobs(
    client: AsyncClient, address: str, tmp_path: Path
) -> None:
    created = await client.create(file(tmp_path / "e", "Social", jobs=2, length=4))
    await client.wait(created.id, timeout=HANG_SECONDS)
    expected = [answer.result["mean"][-1] for answer in answered(await journal(address, created)) if answer.result]
    assert any(value > 0 for value in expected), expected


async def test_failures_are_told_and_cost_nothing_else(client: AsyncClient, address: str, tmp_path: Path) -> None:
    limit = scaled(0.2)
    created = await client.create(file(tmp_path / "e", "Bad", f"how: sleep, time_limit: {limit}", jobs=1, length=4))
    ended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert ended.state is ExperimentState.COMPLETED
    answers = answered(await journal(address, created))
    said = f"predictor tests.integration.predictors:Bad took longer than {limit:g} s over one prediction"
    assert [answer.error for answer in answers] == [said] * 3


async def test_the_end_of_a_job_ends_its_predictions(client: AsyncClient, address: str, tmp_path: Path) -> None:
    created = await client.create(
        file(tmp_path / "e", "Bad", "how: sleep, time_limit: 600", policy="Forecast", jobs=2, length=4)
    )
    ended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert ended.state is ExperimentState.COMPLETED
    events = await journal(address, created)
    assert len(asked(events)) == 6
    assert answered(events) == []


@pytest.mark.parametrize(
    ("predictor", "said"),
    [
        ("nobody", "no plugin is called 'nobody'"),
        (
            "{name: 'tests.integration.predictors:Toy', spred: 1}",
            "Toy has no parameter spred; it takes: seconds, spread",
        ),
        ("'tests.integration.predictors:Nobody'", "no Nobody there"),
    ],
)
async def test_a_predictor_that_cannot_be_had_is_refused(
    client: AsyncClient, tmp_path: Path, predictor: str, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        await client.create(experiment(tmp_path / "e", more=f"predictor: {predictor}"))


async def test_without_an_installed_default_a_policy_hears_what_there_is(
    client: AsyncClient, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def others(group: str) -> list[EntryPoint]:
        return [entry for entry in entries(group) if entry.name != "pooled"]

    monkeypatch.setattr("hopyard._common.plugins.entries", others)
    found = experiment(tmp_path / "e", jobs=1, length=2)
    found.write_text(found.read_text() + 'policy: "tests.integration.scheduler.prediction_policies:Patient"\n')
    created = await client.create(found)
    await client.wait(created.id, timeout=HANG_SECONDS)
    (answer,) = answered(await journal(address, created))
    assert "no plugin is called 'pooled'" in answer.error
