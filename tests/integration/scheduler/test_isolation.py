"""Tests that an error in one experiment does not affect others."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState
from hopyard_engine.core.handlers import commands
from tests.integration.scheduler.conftest import experiment
from tests.timing import HANG_SECONDS

WRONG = "policy: {{name: 'tests.integration.scheduler.policies:Wrong', what: {what}}}"


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("raise", "RuntimeError: this policy has had enough"),
        ("text", "found '5', needed is int"),
        ("fraction", "found 5.5, needed is int"),
        ("large", "64 bits"),
        ("set", "not JSON serializable"),
    ],
)
async def test_a_wrong_policy_pauses_its_experiment_and_no_other(
    client: AsyncClient, tmp_path: Path, what: str, says: str
) -> None:
    wrong = await client.create(experiment(tmp_path / "wrong", jobs=1, more=WRONG.format(what=what)))
    paused = await client.wait(wrong.id, timeout=HANG_SECONDS, until=[ExperimentState.PAUSED])
    assert "policy error: Wrong on up-call" in paused.reason
    assert says in paused.reason
    other = await client.create(experiment(tmp_path / "other"))
    assert (await client.wait(other.id, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
    await client.stop(wrong.id)
    assert (await client.wait(wrong.id, timeout=HANG_SECONDS)).state is ExperimentState.STOPPED


async def test_a_mistake_in_the_core_fails_one_experiment_and_no_other(
    client: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = commands.carry_out

    def broken(x: object, command: object, at: float) -> None:
        if getattr(x, "id", "").startswith("counting") and type(command).__name__ == "StartJob" and not struck:
            struck.append(x)
            raise KeyError("a mistake")
        real(x, command, at)  # type: ignore[arg-type]

    struck: list[object] = []
    monkeypatch.setattr(commands, "carry_out", broken)
    first = await client.create(experiment(tmp_path / "e"))
    failed = await client.wait(first.id, timeout=HANG_SECONDS)
    assert failed.state is ExperimentState.FAILED
    assert "error in Hopyard's engine on PolicyAnswered: KeyError" in failed.reason
    second = await client.create(experiment(tmp_path / "e"))
    assert (await client.wait(second.id, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
