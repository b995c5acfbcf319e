"""Failed jobs are retried through the scheduler and by the command."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState, JobState
from hopyard.errors import Conflict, InvalidInput
from tests.timing import HANG_SECONDS

TRAINER = """
import os
from hopyard.trainer import Trainer


class Breaks(Trainer):
    def setup(self, hp, changed):
        self.gate = hp["gate"]

    def train(self):
        if self.position == 2 and not os.path.exists(self.gate):
            raise RuntimeError("the disk with the data is away")
        print("trains", self.position + 1, flush=True)
        return {"accuracy": float(self.position)}

    def save(self, folder):
        (folder / "state").write_text("")

    def load(self, folder):
        pass
"""

EXPERIMENT = """
name: breaks
trainer: train.py:Breaks
metric: {{name: accuracy, mode: max}}
space: {{x: {{uniform: [0.0, 1.0]}}, gate: {{constant: {gate}}}}}
stop: {{jobs: 2, max_iterations: 4, max_failures: 0}}
"""


def broken(folder: Path) -> Path:
    """An experiment whose jobs fail at position 2 until the file `gate` exists."""
    (folder / "train.py").write_text(TRAINER)
    (file := folder / "experiment.yaml").write_text(EXPERIMENT.format(gate=folder / "gate"))
    return file


async def test_failed_jobs_continue_from_their_snapshots_when_the_cause_is_gone(
    client: AsyncClient, address: str, tmp_path: Path
) -> None:
    (folder := tmp_path / "experiment").mkdir()
    made = await client.create(broken(folder))
    failed = await client.wait(made, HANG_SECONDS)
    assert failed.state is ExperimentState.FAILED
    with pytest.raises(Conflict, match="there is no job '9'"):
        await client.retry(made, ["1", "9"])
    assert (await client.get(made)).state is ExperimentState.FAILED
    (folder / "gate").touch()
    (folder / "train.py").write_text(TRAINER.replace("is away", "is gone"))
    shown, note = await command(folder, address, made.id, "1")
    assert note.startswith(
        "note: train.py has changed since the experiment was created; its jobs keep the code of then."
    )
    assert [job["id"] for job in shown["jobs"]] == ["1"]
    done = await client.wait(made, HANG_SECONDS)
    assert done.state is ExperimentState.COMPLETED
    jobs = {job.id: job for job in await client.jobs(made)}
    assert (jobs["1"].state, jobs["1"].position, jobs["2"].state) == (JobState.COMPLETED, 4, JobState.FAILED)
    with pytest.raises(Conflict, match="job '1' is COMPLETED; only failed jobs are retried"):
        await client.retry(made, ["1"])
    with pytest.raises(InvalidInput, match="max_iterations: found 3, allowed are the present 4 or more"):
        await client.extend(made, max_iterations=3)
    _, again = await client.retry(made)
    assert [job.id for job in again] == ["2"]
    await client.wait(made, HANG_SECONDS)
    assert (await client.job(made, "2")).state is JobState.COMPLETED
    with pytest.raises(Conflict, match=f"experiment {made.id} has no failed job"):
        await client.retry(made)
    # Both continued at 2: no position was trained twice.
    log = (tmp_path / "agent" / "logs" / "jobs" / made.id / "1.log").read_text()
    assert [line for line in log.splitlines() if line.startswith("trains")] == [f"trains {n}" for n in (1, 2, 3, 4)]


async def command(folder: Path, address: str, *names: str) -> tuple[dict[str, list[dict[str, object]]], str]:
    """Run `hopyard retry` in a folder, and return its JSON and its messages."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hopyard.cli.main", "retry", "--server", address, "--json", *names),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
    )
    said, notes = await process.communicate()
    assert process.returncode == 0
    found: dict[str, list[dict[str, object]]] = json.loads(said)
    return found, notes.decode()
