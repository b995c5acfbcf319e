"""Tests of programs that are no trainers, through all services: scripts that call Hopyard, and programs in log mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hopyard.client import Client
from hopyard.client.types import Experiment, ExperimentState, Job, JobState
from hopyard.spec import configuration_seed
from tests.conftest import require_criu
from tests.e2e.harness import REPOSITORY
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.timeout(240)

PATIENCE = HANG_SECONDS

PLAIN = """
import sys
import hopyard

rate = float(sys.argv[sys.argv.index("--rate") + 1])
x = 0.0
for epoch in range(5):
    x += rate
    hopyard.report(accuracy=x)
"""

WALK = """
import json, random, sys
from pathlib import Path

import hopyard

rate = hopyard.hyperparameters()["rate"]
rng = random.Random(hopyard.seed())
x, epoch = 0.0, 0
if "--checkpoint" in sys.argv and (given := hopyard.checkpoint()):
    x, epoch, (version, internal, gauss) = json.loads(given.read_text())
    rng.setstate((version, tuple(internal), gauss))
while epoch < 6:
    epoch += 1
    x += rate * rng.gauss(0.0, 1.0)
    state = None
    if "--checkpoint" in sys.argv:
        state = Path("state.json")
        state.write_text(json.dumps([x, epoch, rng.getstate()]))
    print("trained", epoch, x.hex(), flush=True)
    hopyard.report(accuracy=x, checkpoint=state)
"""

AWK = r"""
BEGIN {
    for (epoch = 1; epoch <= 5; epoch++) {
        printf "epoch %d:  50%% accuracy=0\repoch %d: 100%% accuracy=%.3f loss=%g\n", epoch, epoch, epoch * rate, 1 / epoch
        fflush()
    }
}
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a cluster that all cases share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(REPOSITORY))
        with Client.local(tmp_path_factory.mktemp("cluster") / "data", slots=2) as made:
            yield made


def train(client: Client, folder: Path, code: str, **spec: Any) -> tuple[Experiment, list[Job]]:
    """Run an experiment with `code` as its train.py to its end; return it and its jobs."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(textwrap.dedent(code))
    fields: dict[str, Any] = {
        "name": "commands",
        "metric": {"name": "accuracy", "mode": "max"},
        "space": {"rate": {"uniform": [0.01, 0.2]}},
        "stop": {"jobs": 2, "max_failures": 0},
    }
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(fields | spec))
    ended = client.wait(client.create(file), timeout=PATIENCE)
    return ended, client.jobs(ended.id)


def curve(client: Client, job: Job, metric: str = "accuracy") -> list[str]:
    """Return the metric of a job by position, as hexadecimal floats."""
    reports = [statistic.report for statistic in client.statistics(job.experiment, job.id)]
    assert [report.position for report in reports] == list(range(1, len(reports) + 1))
    return [report.metrics[metric].hex() for report in reports]


def test_a_script_with_one_line_is_tuned_and_ends_by_itself(client: Client, tmp_path: Path) -> None:
    ended, jobs = train(client, tmp_path / "code", PLAIN, command=["python", "train.py", "--rate", "{rate}"])
    assert ended.state is ExperimentState.COMPLETED
    assert [(job.state, job.position, job.attempt) for job in jobs] == [(JobState.COMPLETED, 5, 1)] * 2
    for job in jobs:
        expected, x = [], 0.0
        for _ in range(5):
            x += job.hyperparameters["rate"]
            expected.append(x.hex())
        assert curve(client, job) == expected


def alone(folder: Path, job: Job) -> list[str]:
    """Return what the script trains without a cluster and without interruption."""
    seed = configuration_seed(0, job.hyperparameters)
    variables = {"HOPYARD_HYPERPARAMETERS": json.dumps(job.hyperparameters), "HOPYARD_SEED": str(seed)}
    command = [sys.executable, "train.py", "--checkpoint"]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    assert "position 6: accuracy=" in done.stdout
    return [line.split()[2] for line in done.stdout.splitlines() if line.startswith("trained")]


# `Client.wait` warns of a program that begins again because it saves no checkpoint.
@pytest.mark.filterwarnings("ignore:its program saves no checkpoint:UserWarning")
@pytest.mark.parametrize(("provider", "checkpoint"), [("auto", True), ("framework", False), ("auto", False)])
def test_a_script_that_is_suspended_and_resumed_trains_the_same_bits(
    client: Client, tmp_path: Path, provider: str, checkpoint: bool
) -> None:
    if provider == "auto" and not checkpoint:
        require_criu()
    command = ["python", "train.py", *(["--checkpoint"] if checkpoint else [])]
    policy = {"name": "tests.e2e.policies:Interrupter", "at": [2, 4]}
    stop = {"jobs": 2, "max_iterations": 6, "max_failures": 0}
    snapshot = {"provider": provider}
    ended, jobs = train(client, tmp_path / "code", WALK, command=command, policy=policy, stop=stop, snapshot=snapshot)
    assert ended.state is ExperimentState.COMPLETED, ended.reason
    assert [(job.state, job.position, job.attempt, job.suspends) for job in jobs] == [(JobState.COMPLETED, 6, 3, 2)] * 2
    for job in jobs:
        assert curve(client, job) == alone(tmp_path / "code", job)
        log = b"".join(chunk.data for chunk in client.logs(job.experiment, job.id)).decode()
        trained = [int(line.split()[1]) for line in log.splitlines() if line.startswith("trained")]
        # Without a checkpoint its processes continue from a process snapshot, or it begins again each time.
        assert trained == ([1, 2, 3, 4, 5, 6] if provider == "auto" else [1, 2, 1, 2, 3, 4, 1, 2, 3, 4, 5, 6])
        assert log.count("hopyard: restored at") == (0 if checkpoint or provider != "auto" else 2)


def test_a_program_in_another_language_is_tuned_by_what_it_prints(client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.awk").write_text(AWK)
    log = {
        "command": ["awk", "-v", "rate={rate}", "-f", "../train.awk"],
        "metrics": {"accuracy": "accuracy=([0-9.]+)", "loss": r"loss=(\S+)"},
    }
    (folder / "inner").mkdir()
    (folder / "inner" / "keep").touch()
    ended, jobs = train(client, folder, "", log=log, working_directory="inner", environment={"LC_ALL": "C"})
    assert ended.state is ExperimentState.COMPLETED, ended.reason
    assert [(job.state, job.position) for job in jobs] == [(JobState.COMPLETED, 5)] * 2
    for job in jobs:
        assert curve(client, job) == [float(f"{e * job.hyperparameters['rate']:.3f}").hex() for e in range(1, 6)]
        assert curve(client, job, "loss") == [float(f"{1 / e:g}").hex() for e in range(1, 6)]


def test_a_metric_that_never_shows_up_is_told_with_the_last_lines(client: Client, tmp_path: Path) -> None:
    log = {"command": ["sh", "-c", "echo warming up; echo acc 0.5"], "metrics": "accuracy=([0-9.]+)"}
    ended, jobs = train(client, tmp_path / "code", "", log=log)
    assert ended.state is ExperimentState.FAILED
    assert [job.state for job in jobs] == [JobState.FAILED] * 2
    for found in ("the pattern of accuracy ('accuracy=([0-9.]+)')", "the last lines read:\nwarming up\nacc 0.5"):
        assert found in jobs[0].reason
