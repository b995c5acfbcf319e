"""Test the live view of `run`, `resume` and `jobs --watch` on a terminal, with real clusters."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hopyard.client import Client
from hopyard.client.types import ExperimentState
from tests.e2e.harness import softmax_file
from tests.e2e.up import Up
from tests.pty_session import PtySession
from tests.timing import HANG_SECONDS

HOPYARD = [sys.executable, "-m", "hopyard.cli.main"]

LONG = 300
"""Iterations of a job: with a pause in each of them, it does not end while the view is used."""

TALKING = """

class Talking(Softmax):
    def train(self):
        print(f"iteration {self.position + 1} begins", flush=True)
        return super().train()
"""


def talking_file(folder: Path, jobs: int) -> Path:
    """Write an experiment whose jobs print a line in each iteration."""
    stop = {"jobs": jobs, "max_iterations": LONG}
    file = softmax_file(folder, trainer="train.py:Talking", policy={"name": "default"}, stop=stop)
    with (folder / "train.py").open("a") as code:
        code.write(TALKING)
    return file


def slow(enough: Path) -> dict[str, str]:
    """Return variables with which iterations are slow until the file `enough` exists."""
    return {"SOFTMAX_PACE": "0.5", "SOFTMAX_ENOUGH": str(enough)}


@pytest.mark.timeout(600)
def test_a_run_is_looked_into_left_and_resumed(tmp_path: Path) -> None:
    file, enough, data = talking_file(tmp_path / "e", 3), tmp_path / "enough", str(tmp_path / "data")
    with PtySession([*HOPYARD, "run", str(file), "--data", data, "--slots", "2"], slow(enough)) as view:
        view.wait_for(r"softmax  RUNNING   0 of 3 jobs   2 of 2 slots")
        heading = view.wait_for(r"(?m)^ job .*")[0].split()
        assert heading[:5] == ["job", "lr", "momentum", "state", "position"]
        view.wait_for(r"(?m)^ \d .* ▶ running .* [2-9]/300 ")
        view.type("s" * 3 + "j")  # in order of creation
        view.wait_for(r"(?m)^>1 .*(\n.*)*sort: job")
        view.type("l")
        view.wait_for(r"(?m)^log of job 1  ▶ running(.*\n)*iteration \d+ begins")
        view.type("q")
        view.wait_for(r"(?m)^>1 ")
        # The cluster ends with this command: q asks before it suspends.
        view.type("q")
        view.wait_for("leave and suspend the experiment")
        view.type("n")
        view.wait_for(r"(?m)^\? keys")
        view.type("qy")
        assert view.wait() == 130
        assert view.restored
        assert "suspended; resume it with: hopyard resume softmax-" in view.output
        text = view.screen.text()
        assert text.index(" job ") < text.index("softmax  PAUSED") < text.index("suspended; resume it")
    enough.touch()
    resumed = subprocess.run(
        [*HOPYARD, "resume", "--data", data, "--slots", "2", "--json"],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert resumed.returncode == 0, resumed.stderr
    result: dict[str, Any] = json.loads(resumed.stdout)
    assert [job["position"] for job in result["jobs"]] == [LONG] * 3
    assert all(job["attempt"] > 1 for job in result["jobs"][:2])


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path / "data", SOFTMAX_PACE="0.5", SOFTMAX_ENOUGH=str(tmp_path / "enough"))
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()


@pytest.mark.timeout(600)
def test_an_experiment_of_another_cluster_continues_after_q(up: Up, tmp_path: Path) -> None:
    up.wait_for("the cluster is up")
    server = up.server
    file = talking_file(tmp_path / "e", 4)
    with PtySession([*HOPYARD, "run", str(file), "--server", server]) as view:
        view.wait_for(r"▶ running .* [2-9]/300 ")
        view.type("q")
        assert view.wait() == 0
        assert view.restored
        assert "continues; watch it with: hopyard jobs softmax-" in view.output
    with Client(server=server, patience=HANG_SECONDS) as client:
        (experiment,) = client.experiments()
        assert experiment.state is ExperimentState.RUNNING
        with PtySession([*HOPYARD, "jobs", "softmax", "--watch", "--server", server], size=(120, 40)) as view:
            view.wait_for(r"softmax  softmax-\w+  RUNNING   0 of 4 jobs")
            view.wait_for(r"(?m)^ \d .* ▶ running")
            # A job is paused and resumed, and so is the experiment.
            view.type("jp")
            view.wait_for(r"pause job \d, which trains now")
            view.type("y")
            view.wait_for("◫ 1 held")
            view.type("p")
            view.wait_for("may start again")
            view.type("P")
            view.wait_for("pause the experiment")
            view.type("y")
            view.wait_for(r"softmax-\w+  PAUSED")
            view.type("P")
            view.wait_for(r"softmax-\w+  RUNNING")
            (tmp_path / "enough").touch()
            assert view.wait() == 0
            assert view.restored
        assert client.wait(experiment.id, timeout=HANG_SECONDS).state is ExperimentState.COMPLETED
