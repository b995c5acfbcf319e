"""Tests of programs that save no state, suspended and resumed repeatedly on two agents: the curves are as without that."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from hopyard._runtime.criu import procfs
from hopyard._runtime.criu.process_group import MOUNT
from hopyard.client import AsyncClient
from hopyard.client.types import Change, ExperimentState, Job, JobState
from hopyard.spec import configuration_seed
from tests.conftest import require_criu
from tests.e2e.harness import cluster
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.timeout(600)

PATIENCE: Final = 500.0
SUSPENSIONS: Final = 5

SCRIPT: Final = """
import os, random, time, hopyard, torch

torch.manual_seed(hopyard.seed())
rate = hopyard.hyperparameters()["rate"]
data = torch.randn(64, 8)
goal = (data.sum(1, keepdim=True) > 0).float()
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=rate)
for epoch in range(int(os.environ["EPOCHS"])):
    if os.path.exists(os.environ["ENOUGH"]):
        break
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(data), goal)
        loss.backward()
        optimizer.step()
    time.sleep(float(os.environ["PACE"]) * random.random())
    accuracy = 1.0 / (1.0 + loss.item())
    print("trained", accuracy.hex(), flush=True)
    hopyard.report(accuracy=accuracy)
"""

PLAIN: Final = """
import json, os, random, time

rng = random.Random(int(os.environ["HOPYARD_SEED"]))
rate = json.loads(os.environ["HOPYARD_HYPERPARAMETERS"])["rate"]
x = 0.0
for epoch in range(int(os.environ["EPOCHS"])):
    if os.path.exists(os.environ["ENOUGH"]):
        break
    time.sleep(float(os.environ["PACE"]) * random.random())
    x += rate * rng.random()
    print("trained", x.hex(), flush=True)
    print("accuracy=%r" % x, flush=True)
"""

ALONE: Final = """
import json, os, runpy, sys

for variables in json.loads(sys.argv[1]):
    os.environ.update(variables)
    runpy.run_path("train.py", run_name="__main__")
    print("next", flush=True)
"""
"""Trains one job after another; torch is imported once."""

JOBS: Final = 3
EPOCHS: Final = 5_000
"""Never reached: the programs end once the test has observed enough."""

# The policy, and the most seconds of an epoch. With the barrier the last job of a round stays in memory, and all others are suspended.
# With POP no job is promising and none is terminated: the jobs take turns after each prediction.
SCHEDULES: Final[Mapping[str, tuple[dict[str, Any], float]]] = {
    "barrier": ({"name": "default", "barrier": True}, 0.05),
    "pop": ({"name": "pop", "evaluation_boundary": 1, "least_confidence": 0.0}, 0.2),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", [pytest.param("script", marks=pytest.mark.nightly), "log"])
async def test_programs_that_save_nothing_train_the_same_however_often_they_are_suspended(
    tmp_path: Path, kind: str, schedule: str
) -> None:
    require_criu()
    async with cluster(tmp_path / "data", {"a": 1, "b": 1}) as (_, client):
        homes = [(tmp_path / "data" / node / "agent.id").read_text().strip() for node in ("a", "b")]
        namespaces = await trained(client, tmp_path, kind, schedule, homes)
        async with asyncio.timeout(HANG_SECONDS):  # A process that has just ended is reaped a moment later.
            while left(homes, namespaces):  # noqa: ASYNC110 (no event to wait for)
                await asyncio.sleep(0.05)
    assert not [name for name in os.listdir("/dev/shm") if any(home in name for home in homes)]


async def trained(client: AsyncClient, folder: Path, kind: str, name: str, homes: list[str]) -> set[str]:
    """Train an experiment and compare it with its program alone; return the PID namespaces of its processes."""
    policy, pace = SCHEDULES[name]
    code, enough = folder / name, folder / f"{name}.enough"
    code.mkdir()
    (code / "train.py").write_text(textwrap.dedent(SCRIPT if kind == "script" else PLAIN))
    command = ["python", "train.py"]
    spec = {
        "name": f"{kind}-{name}",
        "metric": {"name": "accuracy", "mode": "max", "target": 1e6},
        "space": {"rate": {"uniform": [0.001, 0.2]}},
        # The programs end before that by themselves, with exit code 0.
        "stop": {"jobs": JOBS, "max_iterations": EPOCHS + 1, "max_failures": 0},
        "policy": policy,
        "environment": {"EPOCHS": str(EPOCHS), "PACE": str(pace), "ENOUGH": str(enough)},
        **({"command": command} if kind == "script" else {"log": {"command": command, "metrics": r"accuracy=(\S+)"}}),
    }
    file = code / "experiment.yaml"
    file.write_text(yaml.safe_dump(spec))
    experiment = await client.create(file)
    nodes: dict[str, list[str]] = {}
    namespaces: set[str] = set()
    change: Change
    async for change in client.watch(experiment.id):
        if isinstance(change, Job) and change.slots:
            where = nodes.setdefault(change.id, [])
            if len(where) < change.attempt:
                where.append(change.slots[0].split("/")[0])
                # Processes that still run after all were found ran at the same moment as the others.
                found = [pid for home in homes for pid in procfs.mounted(MOUNT, home)]
                present = namespaces_of(filter(procfs.running, found))
                assert len(present) <= 2, "more programs run than there are slots: one of them is a second copy"
                namespaces |= present
            # The same job was suspended that often, and ran on both nodes.
            if len(where) > SUSPENSIONS and len(set(where)) > 1:
                enough.touch()
    ended = await client.wait(experiment.id, timeout=PATIENCE)
    assert ended.state is ExperimentState.COMPLETED, ended.reason
    ends = await client.jobs(experiment.id)
    assert {job.state for job in ends} == {JobState.COMPLETED}
    assert enough.exists(), nodes
    for job in ends:
        restored = restored_at(folder / "data", job)
        assert len(set(restored)) == len(restored) == job.attempt - 1, "a run was lost"
    assert namespaces
    curves = {}
    for job in ends:
        statistics = await client.statistics(experiment.id, job.id)
        curves[job.id] = [one.report.metrics["accuracy"].hex() for one in statistics]
    longest = max(job.position for job in ends)
    whole = alone(code, ends, longest)
    assert curves == {job.id: whole[job.id][: job.position] for job in ends}
    return namespaces


def alone(code: Path, jobs: list[Job], epochs: int) -> dict[str, list[str]]:
    """Return what the program prints for each job without a cluster and without interruption."""
    variables = [
        {
            "HOPYARD_HYPERPARAMETERS": json.dumps(job.hyperparameters),
            "HOPYARD_SEED": str(configuration_seed(0, job.hyperparameters)),
        }
        for job in jobs
    ]
    fixed = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-c", ALONE, json.dumps(variables)],
        cwd=code,
        env={**os.environ, **fixed, "EPOCHS": str(epochs), "PACE": "0", "ENOUGH": "/never"},
        capture_output=True,
        text=True,
        check=True,
    )
    curves = [re.findall(r"trained (\S+)", said) for said in done.stdout.split("next\n")]
    return {job.id: curve for job, curve in zip(jobs, curves, strict=False)}


def restored_at(data: Path, job: Job) -> list[int]:
    """Return the positions at which a job's dumped processes were restored, as its logs on both nodes say."""
    logs = [log.read_text() for log in data.glob(f"*/logs/jobs/{job.experiment}/{job.id}.log")]
    missing = {int(found) for log in logs for found in re.findall(r"no snapshot at position (\d+)", log)}
    assert missing <= {job.position}  # After its last position the program may end by itself during the dump.
    return [int(found) for log in logs for found in re.findall(r"restored at position (\d+)", log)]


def left(homes: list[str], namespaces: set[str]) -> list[str]:
    """Return the processes, namespaces and zombies that are left of ended jobs."""
    processes = [procfs.name(pid) for home in homes for pid in procfs.mounted(MOUNT, home)]
    still = namespaces & namespaces_of(map(int, filter(str.isdigit, os.listdir("/proc"))))
    return [*processes, *still, *zombies()]


def namespaces_of(pids: Iterable[int]) -> set[str]:
    """Return the PID namespaces of processes, except that of this process."""
    found = set()
    for pid in pids:
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/pid"))
        except OSError:  # The process has ended.
            continue
    return found - {os.readlink("/proc/self/ns/pid")}


def zombies() -> list[str]:
    """Return the descendants of this process that have ended and were not reaped."""
    return [procfs.name(pid) for pid in procfs.tree(os.getpid())[1:] if not procfs.running(pid)]
