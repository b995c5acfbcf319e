"""Tests of shell completion: what bash receives for a word, time limits, and errors."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from hopyard.cli import completion
from hopyard.cli.completion import complete_experiment, complete_experiment_or_job, complete_job, complete_policy
from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState, Job, JobState, Metric
from hopyard.errors import NotFound
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.quick

TOKEN = "hop_user_00000000_" + 43 * "a"
EXPERIMENTS = [
    Experiment("digits-bb", "digits", ExperimentState.RUNNING, Metric("accuracy")),
    Experiment("digits-aa", "digits", ExperimentState.COMPLETED, Metric("accuracy")),
]


def bash(line: str, folder: Path, **environment: str) -> list[str]:
    """Return what bash receives as completions of the last word of a line, from the real command."""
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv = ['hopyard']; from hopyard.cli.main import main; main()"],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("HOPYARD")},
            "_HOPYARD_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
            **environment,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.merge
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("hopyard pl", ["plan", "plot", "plugins"]),
        ("hopyard set --conc", ["--concurrency"]),
        ("hopyard plugins ra", ["random"]),
        ("hopyard replay --un", ["--until"]),
        ("hopyard jobs ", []),
        ("hopyard logs --job ", []),
    ],
)
def test_bash_is_offered(line: str, offered: list[str], tmp_path: Path) -> None:
    assert bash(line, tmp_path) == offered


@pytest.mark.merge
def test_a_server_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPYARD_USER_TOKEN", TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert bash(f"hopyard jobs --server {address} ", tmp_path, HOPYARD_USER_TOKEN=TOKEN) == []
        assert complete_experiment(_context(server=address), "") == []


def test_asking_ends_after_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "SECONDS", 0.01)
    monkeypatch.setenv("HOPYARD_USER_TOKEN", TOKEN)

    async def endless(client: AsyncClient) -> completion.Offers:
        await asyncio.Event().wait()
        return [("never", "offered")]

    with pytest.raises(TimeoutError):
        asyncio.run(completion._within("127.0.0.1:1", None, endless))
    assert completion._ask(_context(server="127.0.0.1:1"), endless) == []


@pytest.mark.merge
@pytest.mark.parametrize("server", ["nonsense", "127.0.0.1:1"])
@pytest.mark.parametrize("token", [TOKEN, "nonsense", ""])
def test_nothing_is_offered_whatever_goes_wrong(server: str, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPYARD_USER_TOKEN", token)
    assert complete_job(_context(server=server), "") == []


def _context(**params: Any) -> typer.Context:
    from typer.main import get_command

    def command() -> None: ...

    app = typer.Typer()
    app.command()(command)
    context = typer.Context(get_command(app))
    context.params.update(params)
    return context


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Provides a cluster with two experiments; its answers have no short time limit, so that slow hosts pass."""
    monkeypatch.setattr(completion, "SECONDS", HANG_SECONDS)
    monkeypatch.setenv("HOPYARD_USER_TOKEN", TOKEN)

    async def experiments(self: AsyncClient) -> list[Experiment]:
        return EXPERIMENTS

    async def get(self: AsyncClient, name: str) -> Experiment:
        found = next((one for one in EXPERIMENTS if one.id == name), None)
        if found is None:
            raise NotFound(name)
        return found

    async def jobs(self: AsyncClient, experiment: Experiment) -> list[Job]:
        number = {"digits-bb": "12", "digits-aa": "7"}[experiment.id]
        return [Job(experiment.id, number, JobState.HELD, position=3, hyperparameters={"lr": 0.1})]

    for name, method in (("experiments", experiments), ("get", get), ("jobs", jobs)):
        monkeypatch.setattr(AsyncClient, name, method)


@pytest.mark.usefixtures("cluster")
def test_experiments_by_id_and_name_and_jobs_of_the_one_that_was_named() -> None:
    context = _context(server="127.0.0.1:1")
    assert complete_experiment(context, "") == [
        ("digits-bb", "digits, RUNNING"),
        ("digits-aa", "digits, COMPLETED"),
        ("digits", "the newest is digits-bb"),
    ]
    assert complete_experiment(context, "digits-a") == [("digits-aa", "digits, COMPLETED")]
    assert complete_job(context, "") == [("12", "held at 3, lr=0.1")]
    assert complete_job(_context(server="127.0.0.1:1", experiment="digits-aa"), "") == [("7", "held at 3, lr=0.1")]
    assert complete_experiment_or_job(context, "1") == [("12", "held at 3, lr=0.1")]
    assert complete_experiment_or_job(_context(server="127.0.0.1:1", names=["digits-aa"]), "")[0][0] == "7"


def test_policies() -> None:
    assert ("default", "policy") in complete_policy("")
    assert complete_policy("no such") == []
