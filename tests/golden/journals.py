"""Recorded journals: an experiment under each built-in policy, run once on a real cluster and stored as `hopyard export` writes it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.golden import cluster, product
from tests.golden.archive import RECORD

FOLDER: Final = RECORD / "journals"
SUFFIX: Final = ".hopyard"
PROGRAMS: Final = Path(__file__).with_name("programs")

AGENTS: Final = 2
DATA_SET: Final = "golden"

COMMON: Final[Mapping[str, Any]] = {
    "trainer": "train.py:Curve",
    "metric": {"name": "accuracy", "mode": "max", "min": 0, "max": 1},
    "space": {"lr": {"loguniform": [0.001, 1.0]}, "momentum": {"uniform": [0.0, 0.95]}},
    "generator": {"name": "random", "seed": 7},
    "stop": {"jobs": 6, "max_iterations": 9},
    "snapshot": {"every": 3},
}

_PREDICTED: Final[Mapping[str, Any]] = {
    "space": {**COMMON["space"], "pace": 0.4},
    "metric": {**COMMON["metric"], "target": 0.993, "kill_threshold": 0.1},
    "predictor": {"name": "grid"},
    "stop": {"jobs": 6, "max_iterations": 9, "max_time": "10m"},
}
"""Settings for policies that use a predictor: jobs train slowly enough to receive its answers."""

_STEPS: Final[Mapping[str, Any]] = {"sequence": {"multi_step": {"milestones": [3], "values": [0.1, 0.02]}}}
_LONGER: Final[Mapping[str, Any]] = {"sequence": {"multi_step": {"milestones": [6], "values": [0.1, 0.05]}}}

CHANGES: Final[Mapping[str, Mapping[str, Any]]] = {
    "asha": {"policy": {"name": "asha", "eta": 3, "r": 1}},
    "async_hyperband": {"policy": {"name": "async_hyperband", "eta": 3}},
    "bandit": {"policy": {"name": "bandit", "evaluation_boundary": 2, "epsilon": 0.1}},
    "bohb": {"policy": {"name": "bohb", "eta": 3}, "generator": {"seed": 7}},
    "default": {"policy": {"name": "default", "barrier": True, "epoch": 5}},
    "earlyterm": {"policy": {"name": "earlyterm", "evaluation_boundary": 3}, **_PREDICTED},
    "hyperband": {"policy": {"name": "hyperband", "eta": 3}},
    "median": {"policy": {"name": "median", "evaluation_boundary": 2, "least_jobs": 1}},
    "mop": {
        "trainer": "hopper.py:TRAINER",
        "metric": {"name": "accuracy", "mode": "max"},
        "space": {"lr": {"uniform": [0.01, 0.5]}},
        "policy": "mop",
        "data": DATA_SET,
        "unit": "units",
        "stop": {"jobs": 3, "max_iterations": 4},
    },
    "pbt": {"policy": {"name": "pbt", "population": 4, "interval": 2, "truncation": 0.5}},
    "pop": {"policy": {"name": "pop", "evaluation_boundary": 3}, **_PREDICTED},
    "pop_plus": {"policy": {"name": "pop_plus", "first_look": 3}, **_PREDICTED},
    "sha": {"policy": {"name": "sha", "eta": 3, "r": 1}},
    "stage_tree": {
        "policy": {"name": "stage_tree"},
        "space": {"lr": {"choice": [0.1, _STEPS, _LONGER]}, "momentum": {"choice": [0.5, 0.9]}},
        "generator": {"name": "grid"},
    },
}
"""The fields of each policy's experiment file that differ from the common ones."""


def recorded() -> dict[str, Path]:
    """Return the files of the recorded journals, by policy."""
    return {file.stem: file for file in sorted(FOLDER.glob(f"*{SUFFIX}"))}


def record(names: Sequence[str] = ()) -> Iterator[str]:
    """Run one experiment for each policy, store its journal, and yield the policy's name."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with cluster.up(folder / "cluster", AGENTS) as server:
            _register_data(folder, server)
            for name in names or product.policies():
                file = folder / f"{name}{SUFFIX}"
                cluster.call("run", str(_experiment(folder / name, name)), "--server", server)
                cluster.call("export", name, "-o", str(file), "--server", server)
                shutil.move(file, FOLDER / file.name)
                yield name


def _experiment(folder: Path, name: str) -> Path:
    folder.mkdir()
    terms = {"name": name, **COMMON, "policy": name, **CHANGES.get(name, {})}
    program = terms["trainer"].partition(":")[0]
    shutil.copy(PROGRAMS / program, folder / program)
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(terms, sort_keys=False), encoding="utf-8")
    return file


def _register_data(folder: Path, server: str) -> None:
    """Register a small data set: a partition on each node to train on, and one to evaluate on."""
    options = []
    for number in range(AGENTS):
        file = folder / f"train-{number}.json"
        file.write_text(json.dumps([number + 1.0, number + 2.0]), encoding="utf-8")
        options += ["--partition", f"{number}=node{number + 1}:{file}"]
    file = folder / "eval-0.json"
    file.write_text(json.dumps([4.0]), encoding="utf-8")
    arguments = ["data", "register", DATA_SET, *options, "--eval", f"0=node1:{file}", "--server", server]
    code, _, messages = product.command(*arguments)
    if code:
        raise cluster.ClusterError(messages)
