"""Test of partitioned data on the command line with real processes: split, register, train, lose a node, and remove."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hopyard.client import AsyncClient
from tests.e2e.harness import cluster
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.timeout(300)

TRAINER = '''
import numpy as np
from hopyard.trainer import Trainer


class Sum(Trainer):
    """Adds up what it sees; after all partitions the sum is known whatever their order."""

    def build(self, hp):
        self.total = 0.0

    def setup(self, hp, changed):
        self.y = np.load(self.context.inputs)["y"]

    def train(self):
        self.total += float(self.y.sum())
        return {"total": self.total}

    def evaluate(self):
        if self.context.mode != "evaluate":
            return {}
        self.examples = len(self.y)
        return {"mean": float(self.y.mean())}

    def save(self, folder):
        (folder / "total").write_text(self.total.hex())

    def load(self, folder):
        self.total = float.fromhex((folder / "total").read_text())
'''

SPEC = """
name: summing
trainer: train.py:Sum
metric: {name: total, mode: max}
space: {x: {uniform: [0.0, 1.0]}}
policy: tests.integration.scheduler.visit_policy:Visitor
data: numbers
stop: {jobs: 2, max_iterations: 9}
unit: units
"""


def hopyard(*words: str, code: int = 0) -> str:
    """Run the command, which must exit with `code`; return its standard output, or its standard error if `code` is not 0."""
    done = subprocess.run(
        [sys.executable, "-m", "hopyard.cli.main", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


async def command(*words: str, code: int = 0) -> str:
    return await asyncio.to_thread(hopyard, *words, code=code)


async def states(server: str) -> dict[str, str]:
    """Return the states of the replicas by "partition@node"."""
    shown: Any = json.loads(await command("data", "show", "numbers", "--json", "--server", server))
    return {f"{one['name']}@{two['node']}": two["state"] for one in shown["partitions"] for two in one["replicas"]}


async def waits(client: AsyncClient, words: str) -> None:
    """Wait until the experiment's reason contains `words`."""
    async with asyncio.timeout(HANG_SECONDS):
        while words not in (await client.experiments())[0].reason:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)


async def test_data_is_cut_registered_trained_on_and_dropped(tmp_path: Path) -> None:
    np.savez(tmp_path / "numbers.npz", y=np.arange(100.0))
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(TRAINER)
    (folder / "experiment.yaml").write_text(SPEC)
    async with cluster(tmp_path / "cluster", {"g1": 1, "g2": 1, "g3": 1}) as (processes, client):
        at = ("--server", processes.scheduler)
        nodes = ("--nodes", "g1,g2,g3", "--eval-fraction", "0.2", "--shuffle-seed", "5")
        cut = await command(
            "data", "split", str(tmp_path / "numbers.npz"), "--into", "3", "-o", str(tmp_path / "parts"), *nodes
        )
        register = shlex.split(cut)
        assert register[0] == "hopyard"
        refused = await command(*(word.replace("train-2", "gone") for word in register[1:]), *at, code=2)
        assert refused.strip() == f"error: train/2: on g3: {tmp_path}/parts/gone.npz: there is no such file or folder"
        assert "SHA-256" in await command(*register[1:], *at)
        assert await states(processes.scheduler) == dict.fromkeys(
            ("train/0@g1", "train/1@g2", "train/2@g3", "eval/0@g1"), "PRESENT"
        )

        os.kill(processes.running["g3"].pid or 0, signal.SIGKILL)
        found = await client.create(folder / "experiment.yaml")
        await waits(client, "it waits for partition train/2 of data set numbers: node g3 is away")
        why = json.loads(await command("jobs", "--json", *at))
        assert all("waits for partition train/2 of data set numbers" in job["reason"] for job in why), why
        await processes.running["g3"].stop(HANG_SECONDS)
        await processes.start_agent("g3")
        ended = await client.wait(found.id, timeout=HANG_SECONDS)
        assert ended.jobs == {"COMPLETED": 2}

        trained = sum(np.load(tmp_path / "parts" / f"train-{number}.npz")["y"].sum() for number in range(3))
        evaluated = np.load(tmp_path / "parts" / "eval-0.npz")["y"]
        for job in ("1", "2"):
            reports = [one.report for one in await client.statistics(found.id, job)]
            totals = {one.position: one.metrics["total"] for one in reports if not one.part}
            assert (sorted(totals), totals[3], totals[9]) == (list(range(1, 10)), trained, 3 * trained)
            parts = [(one.position, one.part, one.examples, one.metrics["mean"]) for one in reports if one.part]
            assert parts == [(position, "eval/0", 20, evaluated.mean()) for position in (3, 6)]
        events = await command("events", found.id, *at)
        assert "no live node holds partition train/2" in events
        assert "partition train/2 is on g3" in events
        assert "starts job 1 on g2/0 up to 2 without a decision before 2 with train/1" in events
        assert str(tmp_path) not in "\n".join(line for line in events.splitlines() if "starts job" in line)
        await command("data", "drop", "numbers", *at)
        assert json.loads(await command("data", "list", "--json", *at)) == []
