"""One small search for each policy, and for studies, gangs, stage trees and policies in a process of their own."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from disturbance import own_policy, program
from disturbance.program import METRIC
from disturbance.services import AGENTS
from hopyard.client import AsyncClient
from hopyard.client.datasets import DataPartition, DataReplica

PARTITIONS: Final = 4
DATA_SET: Final = "chaos"

_ORDER: Final = "its decisions depend on the order in which results arrive"
_ARRIVAL: Final = "its generator learns from results in the order in which they arrive"
_TIME: Final = "its decisions depend on times"
_PLACES: Final = "the order of the partitions depends on which slot is free"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search whose results are compared with those of the undisturbed search.

    Attributes:
        policy: The policy and its parameters.
        jobs: The number of jobs.
        length: The position at which a job is complete.
        varies: Why the final table may differ from that of the undisturbed search; empty: it must be equal.
        space: The space of the hyperparameters; "x" is needed.
        more: Further fields of the experiment file.
        hops: Whether each unit reads one partition of partitioned data.
        inherits: Whether a forked job continues a chain that was trained with other hyperparameters.
        study: Whether a client requests what is trained.
        processes: Whether the policy runs in a process of its own.
    """

    policy: Mapping[str, Any]
    jobs: int
    length: int
    varies: str = ""
    space: Mapping[str, Any] = field(default_factory=lambda: {"x": {"uniform": [0.0, 1.0]}})
    more: Mapping[str, Any] = field(default_factory=dict)
    hops: bool = False
    inherits: bool = False
    study: bool = False
    processes: bool = False

    def spec(self, name: str) -> dict[str, Any]:
        """Return the contents of the experiment file. Nothing in it makes a job FAILED unless the program itself fails."""
        return {
            "name": name,
            "trainer": "train.py:Chain",
            "metric": {"name": METRIC, "mode": "max", "min": 0.0, "max": 1.0},
            "space": dict(self.space),
            "policy": dict(self.policy),
            "stop": {"jobs": self.jobs, "max_iterations": self.length, "max_failures": 0},
            "snapshot": {"every": 10},
            **({"data": DATA_SET} if self.hops else {}),
            **({} if self.policy["name"] == "bohb" else {"generator": {"name": "random", "seed": 5}}),
            **self.more,
        }


def _steps(values: list[float], *milestones: int) -> Mapping[str, Any]:
    return {"multi_step": {"milestones": list(milestones), "values": values}}


BRANCHES: Final[Mapping[str, Any]] = {
    "x": {
        "sequence": [
            {"constant": 0.5},
            *(_steps([0.5, value], at) for at in (20, 40) for value in (0.3, 0.7)),
            _steps([0.5, 0.2, 0.9], 20, 60),
        ]
    },
    "y": {"sequence": [{"constant": 1.0}, *(_steps([1.0, 2.0], at) for at in (30, 50, 70))]},
}
"""A space whose trials have common beginnings: 24 trials of a tree."""

_LADDER: Final = {"eta": 2, "r": 5}

SEARCHES: Final[Mapping[str, Search]] = {
    "default": Search(policy={"name": "default"}, jobs=24, length=80),
    "barrier": Search(policy={"name": "default", "barrier": True, "epoch": 10}, jobs=16, length=80),
    "bandit": Search(
        policy={"name": "bandit", "evaluation_boundary": 10, "epsilon": 0.1}, jobs=48, length=80, varies=_ORDER
    ),
    "median": Search(
        policy={"name": "median", "evaluation_boundary": 10, "grace": 10}, jobs=40, length=80, varies=_ORDER
    ),
    "earlyterm": Search(policy={"name": "earlyterm", "evaluation_boundary": 20}, jobs=32, length=80, varies=_ORDER),
    "pop": Search(policy={"name": "pop", "evaluation_boundary": 10}, jobs=32, length=60, varies=_TIME),
    "pop_plus": Search(policy={"name": "pop_plus"}, jobs=24, length=60, varies=_TIME),
    "pbt": Search(
        policy={"name": "pbt", "population": 12, "interval": 10}, jobs=12, length=100, varies=_ORDER, inherits=True
    ),
    "asha": Search(policy={"name": "asha", **_LADDER}, jobs=96, length=80, varies=_ORDER),
    "async_hyperband": Search(policy={"name": "async_hyperband", **_LADDER}, jobs=72, length=80, varies=_ORDER),
    "sha": Search(policy={"name": "sha", **_LADDER, "width": 32}, jobs=64, length=80),
    "hyperband": Search(policy={"name": "hyperband", **_LADDER}, jobs=56, length=80),
    "bohb": Search(policy={"name": "bohb", **_LADDER}, jobs=48, length=80, varies=_ARRIVAL),
    "stage_tree": Search(
        policy={"name": "stage_tree"}, jobs=24, length=90, space=BRANCHES, more={"generator": {"name": "grid"}}
    ),
    "stage_tree_sha": Search(
        policy={"name": "stage_tree", "tuner": {"name": "sha", "eta": 2, "r": 20, "width": 24}},
        jobs=24,
        length=80,
        space=BRANCHES,
        more={"generator": {"name": "grid"}},
    ),
    "study": Search(policy={"name": "stage_tree"}, jobs=0, length=80, study=True),
    "mop": Search(policy={"name": "mop", "gang_below": 0}, jobs=8, length=12 * PARTITIONS, varies=_PLACES, hops=True),
    "gangs": Search(
        policy={"name": "default", "elastic": {"profile": {"1": 1.0, "2": 0.55, "4": 0.3}, "pause": 1}},
        jobs=6,
        length=150,
    ),
    "process": Search(policy={"name": "own:Halver", "every": 20}, jobs=40, length=80, varies=_ORDER, processes=True),
}


def write_code(folder: Path) -> Path:
    """Write the folder with the program and the policy of all searches, and return it."""
    folder.mkdir(parents=True)
    shutil.copy(program.__file__, folder / "train.py")
    shutil.copy(own_policy.__file__, folder / "own.py")
    return folder


def write_spec(search: Search, name: str, code: Path) -> Path:
    """Write the experiment file of a search next to its code, and return it."""
    file = code / f"{name}.yaml"
    file.write_text(yaml.safe_dump(search.spec(name)))
    return file


async def register_data(client: AsyncClient, folder: Path) -> None:
    """Register the partitions. Each is on one node only, so models hop; the content of its file is its number."""
    partitions = []
    for number in range(PARTITIONS):
        replica = DataReplica(AGENTS[number % len(AGENTS)], str(_write_partition(folder, number)))
        partitions.append(DataPartition(f"train/{number}", replicas=(replica,)))
    await client.register_data(DATA_SET, partitions)


def _write_partition(folder: Path, number: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"part-{number}"
    file.write_text(str(number))
    return file
