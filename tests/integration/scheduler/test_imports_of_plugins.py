"""Tests that no service imports the code of an experiment: policies, generators, predictors and solvers run in separate processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState
from hopyard_scheduler.external_requests.solver_dispatcher import solve_aside
from tests.integration.restartable import Restartable
from tests.integration.scheduler.conftest import experiment, let_go
from tests.timing import HANG_SECONDS, scaled

MODULE = "tests.integration.scheduler.recorded_imports"
PLUGINS = f"""
policy: '{MODULE}:RecordedPolicy'
generator: '{MODULE}:RecordedGenerator'
predictor: '{MODULE}:RecordedPredictor'
"""


async def test_the_services_import_no_code_of_an_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imports = tmp_path / "imports"
    imports.mkdir()
    monkeypatch.setenv("RECORDED_IMPORTS", str(imports))
    # All services of this cluster run in the process of the test.
    async with Restartable.on(tmp_path) as cluster:
        await cluster.start(lease_seconds=scaled(3.0), heartbeat_seconds=scaled(0.3))
        async with AsyncClient(server=cluster.address, patience=HANG_SECONDS) as client:
            file = experiment(tmp_path / "e", jobs=3, length=4, more=PLUGINS, free=2)
            made = await client.create(file)
            await cluster.halt()
            await cluster.start(lease_seconds=scaled(3.0), heartbeat_seconds=scaled(0.3))
            let_go(file)
            assert (await client.wait(made.id, HANG_SECONDS)).state is ExperimentState.COMPLETED
        found = {int(name) for name in os.listdir(imports)}
        solver = await solve_aside(f"{MODULE}:RecordedSolver", None, HANG_SECONDS)
    assert len(found) >= 4  # The predictor when it was checked, the generator, and the policy of both schedulers.
    assert solver not in found
    assert os.getpid() not in {int(name) for name in os.listdir(imports)}
