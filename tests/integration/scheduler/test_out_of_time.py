"""Test of a search whose time limit was reached: after an extension its suspended jobs continue from their positions."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState, Job, JobState
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard_tools.commands.replay import replay
from tests.integration.scheduler.conftest import TRAINER, experiment, let_go
from tests.timing import HANG_SECONDS, scaled

ASHA = "policy: {name: asha, eta: 2, brackets: [0]}\ngenerator: {name: random, seed: 11}"


def _is_between_rungs(job: Job) -> bool:
    """Return whether the end of the time stopped a job that had left its rung, a multiple of 4."""
    return job.reason_code is ReasonCode.STOPPED_WITH_EXPERIMENT and job.position % 4 != 0


@pytest.mark.timeout(240)
async def test_an_extension_in_time_wakes_the_jobs_that_the_end_of_the_time_stopped(
    client: AsyncClient, address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seconds = scaled(1.5)
    # Jobs beyond the first rung, at 4, train slowly: when the time is over, some job is between two rungs.
    file = experiment(tmp_path / "e", jobs=8, length=64, more=ASHA, free=5)
    file.write_text(file.read_text().replace("stop: {", f"stop: {{max_time: {seconds:g}s, "))
    loaded = tmp_path / "loaded"
    (tmp_path / "e" / "train.py").write_text(
        TRAINER.replace('{"x": self.x}', '{"x": self.x, "position": self.position}').replace(
            'json.loads((folder / "state.json").read_text())',
            'state = json.loads((folder / "state.json").read_text())\n'
            f'        print(state["x"], state["position"], file=open({str(loaded)!r}, "a"))',
        )
    )
    created = await client.create(file)
    ended = await client.wait(created.id, timeout=HANG_SECONDS)
    while not any(_is_between_rungs(job) for job in await client.jobs(ended)):
        await client.extend(ended, seconds=seconds)  # No such job had time to train so far.
        ended = await client.wait(created.id, timeout=HANG_SECONDS)
        assert ended.reason.endswith("s is over")
    stopped = {job.id: job for job in await client.jobs(ended) if _is_between_rungs(job)}
    assert {job.state for job in await client.jobs(ended)} <= {JobState.TERMINATED, JobState.COMPLETED}

    let_go(file)
    await client.extend(ended, seconds=4 * HANG_SECONDS)
    ended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert (ended.state, ended.reason) == (ExperimentState.COMPLETED, "the policy has nothing left to do")
    everybody = await client.jobs(ended)
    assert len(everybody) == 8
    jobs = {job.id: job for job in everybody if job.hyperparameters}
    went_on = {tuple(line.split()) for line in loaded.read_text().splitlines()}
    for name, before in stopped.items():
        assert (str(before.hyperparameters["x"]), str(before.position)) in went_on
        assert jobs[name].position > before.position
    assert all(job.position in (4, 8, 16, 32, 64) for job in jobs.values()), "each stands at a rung"
    capfd.readouterr()
    assert await replay(created.id, None, address, None, False)
