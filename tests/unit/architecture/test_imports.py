"""Tests that import-linter enforces the one-way dependencies, and that each of its contracts catches a violation."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.architecture.tree import CONTRACTS, PACKAGES, ROOT, copy_tree, lint_imports

# (id of the contract, module that receives the import, the import). Several lines show the sides of one contract.
VIOLATIONS = [
    ("layers", "hopyard_curves.seeded", "import hopyard_policies"),
    ("layers", "hopyard.seeded", "import hopyard_curves"),
    ("engine-layers", "hopyard_engine.seeded", "import hopyard_scheduler"),
    ("engine-layers", "hopyard_engine.seeded", "import hopyard_simulator"),
    ("engine-layers", "hopyard_scheduler.seeded", "import hopyard_simulator"),
    ("engine-layers", "hopyard_simulator.seeded", "import hopyard_scheduler"),
    ("engine-layers", "hopyard_scheduler.seeded", "import hopyard_tools"),
    ("engine-rooms", "hopyard_engine.core.seeded", "import hopyard_engine.journal"),
    ("engine-rooms", "hopyard_engine.journal.seeded", "import hopyard_engine.policy_host"),
    ("engine-rooms", "hopyard_engine.policy_host.seeded", "import hopyard_engine.replay"),
    ("engine-rooms", "hopyard_engine.replay", "import hopyard_engine.explain"),
    ("engine-offline", "hopyard_engine.explain.seeded", "import grpc"),
    ("engine-offline", "hopyard_engine.policy_host.seeded", "import asyncio"),
    ("daemons-without-cli", "hopyard_scheduler.seeded", "import hopyard.cli.output"),
    ("daemons-without-cli", "hopyard_engine.explain.seeded", "import hopyard.cli"),
    ("sdk-alone", "hopyard.seeded", "import hopyard_engine.core"),
    ("sdk-alone", "hopyard.trainer.seeded", "def late():\n    import hopyard_appstat"),
    ("sdk-alone", "hopyard.policy.seeded", "from hopyard_policies import default"),
    ("sdk-alone", "hopyard.cli.seeded", "import hopyard_tools.commands.replay"),
    ("services-independent", "hopyard_scheduler.seeded", "import hopyard_appstat"),
    ("services-independent", "hopyard_nodeagent.seeded", "import hopyard_scheduler.agents.sessions"),
    ("services-independent", "hopyard_hpgen.seeded", "import hopyard_nodeagent"),
    ("services-independent", "hopyard_appstat.seeded", "import hopyard_hpgen"),
    ("engine-in-the-scheduler", "hopyard_nodeagent.seeded", "import hopyard_engine.core"),
    ("engine-in-the-scheduler", "hopyard_appstat.seeded", "import hopyard_simulator"),
    ("services-without-policies", "hopyard_scheduler.seeded", "import hopyard_policies"),
    ("services-without-policies", "hopyard_simulator.seeded", "import hopyard_policies"),
    ("services-without-policies", "hopyard_nodeagent.seeded", "import hopyard_curves"),
    ("policies-without-services", "hopyard_policies.seeded", "import hopyard_engine.core"),
    ("policies-without-services", "hopyard_curves.seeded", "import hopyard_nodeagent"),
    ("database-in-appstat", "hopyard_scheduler.seeded", "import sqlalchemy"),
    ("database-in-appstat", "hopyard_nodeagent.seeded", "import obstore"),
    ("policies-without-threads", "hopyard_scheduler.seeded", "import hopyard_hpgen.killable_threads"),
    ("policies-without-threads", "hopyard_engine.seeded", "from hopyard_hpgen.killable_threads import Threads"),
    ("policies-without-threads", "hopyard.policy.seeded", "from hopyard_hpgen import killable_threads"),
    ("batch-on-the-loop", "hopyard_scheduler.runtime.seeded", "import threading"),
    ("batch-on-the-loop", "hopyard_engine.policy_host.seeded", "from concurrent import futures"),
    ("core-alone", "hopyard_engine.core.seeded", "import hopyard.trainer"),
    ("core-alone", "hopyard_engine.core.seeded", "import hopyard_engine.journal"),
    ("vocabulary-alone", "hopyard.policy.vocabulary", "import hopyard.trainer"),
    ("core-deterministic", "hopyard_engine.core.seeded", "import time"),
    ("core-deterministic", "hopyard_engine.core.seeded", "from random import Random"),
    ("core-deterministic", "hopyard_engine.core.seeded", "import os.path"),
    ("core-deterministic", "hopyard.policy.vocabulary", "from datetime import datetime"),
    ("core-standard-library", "hopyard_engine.core.seeded", "import numpy as np"),
    ("core-standard-library", "hopyard_engine.core.seeded", "from google.protobuf import message"),
    ("wire-types-at-the-edge", "hopyard_engine.core.seeded", "from hopyard.v1 import policy_pb2"),
    ("wire-types-at-the-edge", "hopyard.policy.seeded", "from hopyard.v1 import policy_pb2"),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree, in which tests create violations."""
    root = tmp_path_factory.mktemp("tree")
    copy_tree(root)
    return root


@contextmanager
def seeded(root: Path, module: str, statement: str) -> Iterator[None]:
    """Add an import to a module of the copy within the context; a module that does not exist is created, and removed afterwards."""
    package, *rest = module.split(".")
    path = (root / PACKAGES[package]).joinpath(*rest).with_suffix(".py")
    before = path.read_text() if path.exists() else None
    path.write_text(f"{before or ''}\n{statement}\n")
    try:
        yield
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_text(before)


def test_the_tree_keeps_every_contract() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(CONTRACTS)} kept, 0 broken" in done.stdout


def test_every_contract_has_a_seeded_violation() -> None:
    assert {contract for contract, _, _ in VIOLATIONS} == set(CONTRACTS)


@pytest.mark.parametrize(("contract", "module", "statement"), VIOLATIONS)
def test_a_seeded_violation_is_caught(copy: Path, contract: str, module: str, statement: str) -> None:
    with seeded(copy, module, statement):
        done = lint_imports(copy, [contract])
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{CONTRACTS[contract]} BROKEN" in done.stdout
    sys.stdout.write(f"\n{CONTRACTS[contract]!r} forbids, in {module}: {' '.join(statement.split())}\n")


def test_the_copy_keeps_every_contract_without_a_seed(copy: Path) -> None:
    done = lint_imports(copy)
    assert done.returncode == 0, done.stdout + done.stderr


SDK = ("hopyard", "hopyard.client", "hopyard.generator", "hopyard.policy", "hopyard.space", "hopyard.trainer")
CLI = ("hopyard.cli", "hopyard.cli.main")
TRAINING = ("hopyard_nodeagent.command", "hopyard._runtime.runner.process")
HEAVY = ("torch", "sklearn", "sqlalchemy", "alembic", "obstore", "psutil")


@pytest.mark.parametrize(
    ("imports", "absent"),
    [
        (("hopyard",), (*HEAVY, "typer", "rich", "grpc", "google.protobuf", "pydantic", "numpy")),
        (SDK, (*HEAVY, "typer", "rich")),
        (CLI, HEAVY),
        (TRAINING, ("torch", "sqlalchemy", "pydantic", "numpy", "hopyard.policy.base", "hopyard.space")),
    ],
    ids=["hopyard", "sdk", "cli", "agent and training process"],
)
def test_imports_stay_light(imports: tuple[str, ...], absent: tuple[str, ...]) -> None:
    """Check what a training script, the command line, and the processes on nodes load at import time."""
    script = f"import sys, {', '.join(imports)}; print(*(name for name in {absent!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [], f"loaded by importing {', '.join(imports)}"
