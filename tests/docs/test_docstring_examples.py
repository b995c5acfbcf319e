"""The example in the docstring of each public name of `hopyard` and `hopyard.client`, executed."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import hopyard
from hopyard import client, local
from hopyard.client.types import JobState
from hopyard.policy.testing import VirtualCluster, VirtualStep
from hopyard.space import Space, Uniform
from tests.timing import HANG_SECONDS

NAMES = sorted({*hopyard.__all__, *client.__all__} - {"__version__"})
_EXAMPLE = re.compile(r"^Example:\n((?:(?: {4}.*)?\n?)*)", re.MULTILINE)

HEAD = """
import asyncio
import random

import hopyard
from hopyard import *
from hopyard.policy import Cluster
from hopyard.space import Configuration
"""

TRAIN = """
from hopyard.trainer import Trainer


class Net(Trainer):
    def setup(self, hyperparameters, changed):
        self.x, self.lr = 5.0, hyperparameters["lr"]

    def train(self):
        self.x -= self.lr * 2 * self.x
        return {"loss": self.x**2}

    def save(self, directory):
        (directory / "x").write_text(repr(self.x))

    def load(self, directory):
        self.x = float((directory / "x").read_text())
"""

EXPERIMENT = """
name: small
trainer: train.py:Net
metric: {name: loss, mode: min}
space: {lr: {uniform: [0.01, 0.9]}}
stop: {jobs: 2, max_iterations: 2}
"""


def example(value: object) -> str:
    """The example in a docstring; empty: it has none."""
    found = _EXAMPLE.search(inspect.getdoc(value) or "")
    return dedent(found[1]).strip() + "\n" if found else ""


def executed(text: str) -> dict[str, Any]:
    """Execute an example in this process, and return its names."""
    space: dict[str, Any] = {}
    exec(HEAD + text, space)  # noqa: S102 - an example of the product
    return space


@pytest.mark.quick
@pytest.mark.parametrize("name", NAMES)
def test_each_public_name_has_an_example(name: str) -> None:
    ast.parse(
        f"async def main():\n    {example(getattr(hopyard, name)).replace(chr(10), chr(10) + '    ')}\n    pass\n"
    )
    assert example(getattr(hopyard, name))


@pytest.mark.quick
def test_a_missing_example_is_found() -> None:
    assert example(HEAD.strip) == ""


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (hopyard.AsyncClient, "<Job "),
        (hopyard.Client, "<Job "),
        (hopyard.Client.search, "{'lr': "),
        (hopyard.AsyncStudy, r"\d"),
        (hopyard.Study, r"\d"),
    ],
    ids=["AsyncClient", "Client", "search", "AsyncStudy", "Study"],
)
def test_examples_with_a_cluster(value: Callable[..., Any], printed: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    text = example(value)
    if "await" in text:
        text = "async def main():\n" + "".join(f"    {line}\n" for line in text.splitlines()) + "asyncio.run(main())\n"
    (tmp_path / "run.py").write_text(HEAD + text)
    done = subprocess.run(
        [sys.executable, "run.py"], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(printed, done.stdout), done.stdout


@pytest.mark.parametrize("name", ["report", "checkpoint", "hyperparameters", "seed", "Trial"])
def test_examples_of_scripts(name: str, tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(HEAD + example(getattr(hopyard, name)))
    command = [sys.executable, "run.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_SECONDS, check=True)
    reports = {"report": 3, "checkpoint": 3, "Trial": 10}.get(name, 0)
    assert done.stdout.count("position ") == reports


@pytest.mark.quick
def test_the_trainer_trains() -> None:
    trainer = executed(example(hopyard.Trainer))["Parabola"]
    reports = local.fit(trainer, {"lr": 0.25}, until=2)
    assert [report.metrics["loss"] for report in reports] == [6.25, 1.5625]


@pytest.mark.quick
def test_the_generator_proposes() -> None:
    generator = executed(example(hopyard.Generator))["Middle"](Space({"lr": Uniform(0.0, 1.0)}), 1)
    assert generator.create("1", 0) == {"lr": 0.5}


@pytest.mark.quick
def test_the_policy_trains_all_jobs() -> None:
    policy = executed(example(hopyard.Policy))["Shortest"]()
    curve: Any = lambda hyperparameters, position: VirtualStep({"accuracy": 0.5})  # noqa: E731 - one line
    cluster = VirtualCluster(policy, slots=2, jobs=3, max_position=2, curve=curve)
    cluster.run()
    assert {job.state for job in cluster.jobs.values()} == {JobState.COMPLETED}
    assert len(cluster.jobs) == 3
