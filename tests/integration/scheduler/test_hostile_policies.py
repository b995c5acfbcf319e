"""Tests of policies that exit, crash, loop, and take memory, processes or the scheduler's time: only their experiment is paused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState
from tests.integration.scheduler.conftest import experiment
from tests.integration.scheduler.test_policy_limits import Cluster, paused
from tests.timing import HANG_SECONDS, scaled

HOSTILE = (
    "policy: {{name: 'tests.integration.scheduler.hostile_policies:Hostile', how: {how}}}\nresources: {{slots: 1}}"
)
OTHER = "resources: {slots: 1}"
MEMORY = 400 << 20
NAME = "policy tests.integration.scheduler.hostile_policies:Hostile"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster.on(tmp_path, slots=2) as found:
        yield found


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("exit", "its process ended 3 times during up-call"),
        ("crash", "its process ended 3 times during up-call"),
        ("loop", "took longer than"),
        ("memory", "its last output: out of memory: it used"),
        ("forks", "it has started more than 255 processes"),
        ("flood", "commands"),
        ("garbage", "its process ended 3 times during up-call"),
    ],
)
async def test_what_a_policy_does_to_its_process_pauses_its_experiment_and_no_other(
    cluster: Cluster, tmp_path: Path, how: str, told: str
) -> None:
    limit = scaled(3.0) if how == "loop" else 2 * HANG_SECONDS
    await cluster.start(
        lease_seconds=scaled(3.0), heartbeat_seconds=scaled(0.3), policy_seconds=limit, policy_memory=MEMORY
    )
    async with AsyncClient(server=cluster.address, patience=HANG_SECONDS) as client:
        other = await client.create(experiment(tmp_path / "other", jobs=1, length=30, pace=0.02, more=OTHER))
        hostile = await client.create(experiment(tmp_path / "hostile", jobs=1, more=HOSTILE.format(how=how)))
        shown = await paused(client, hostile.id)
        assert told in (shown.reason or "")
        assert (await client.wait(other.id, HANG_SECONDS)).state is ExperimentState.COMPLETED
        assert (await client.get(hostile.id)).state is ExperimentState.PAUSED
        if how != "flood":  # Its process has answered, although with too many commands.
            assert _processes() == []


def _processes() -> list[psutil.Process]:
    """Return the processes of the hostile policy, with all that they have forked."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if "tests.integration.scheduler.hostile_policies:Hostile" in process.cmdline():
                found.append(process)
    return found
