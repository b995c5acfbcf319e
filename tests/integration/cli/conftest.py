from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from tests.integration.cli.fake import FakeCluster
from tests.timing import HANG_SECONDS

SPEC = """
name: small
trainer: train.py:Small
metric: {name: accuracy, mode: max}
space:
  lr: {uniform: [0.0, 1.0]}
stop: {jobs: 3, max_iterations: 8}
"""


@pytest.fixture
def experiment_file(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("class Small: pass\n")
    file = folder / "experiment.yaml"
    file.write_text(SPEC)
    return file


@pytest.fixture
async def fake() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.fixture
async def client(fake: FakeCluster) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(fake.server.address, patience=HANG_SECONDS) as opened:
        yield opened
