"""Tests with up to twenty SIGKILLs in one experiment at random moments: nothing is lost or duplicated, and results are equal."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hopyard.client import Client
from hopyard.client.types import Experiment, ExperimentState
from tests.e2e import kills
from tests.e2e.harness import all_trained_alone, cluster, softmax_file
from tests.e2e.kills import EACH, KILLS, Disturbed
from tests.timing import HANG_SECONDS

SEED = int(os.environ.get("KILLS_SEED", "1"))
"""Seed of the moments and victims; a failure report names it."""

LENGTH = 20
GREEDY: dict[str, Any] = {"name": "default"}
BARRIER: dict[str, Any] = {"name": "default", "barrier": True, "epoch": 4}
HALVING: dict[str, Any] = {"name": "tests.e2e.policies:Halving", "rungs": [2, 4, 8]}


@contextmanager
def disturbed(data: Path, seed: int, pace: float, victims: Counter[str], held: str) -> Iterator[Disturbed]:
    """Context manager of a cluster whose processes are killed; a failure report contains the seed and the kills."""
    made = Disturbed(data, seed, pace, victims, held)
    try:
        made.wait_up()
        yield made
    except BaseException as error:
        error.add_note(made.story())
        raise
    finally:
        made.stop()


def run(made: Disturbed, client: Client, file: Path, until: int) -> Experiment:
    """Run an experiment during all kills, up to its end."""
    experiment = client.create(file)
    made.disturb(kills.progress_of(client, experiment), until)
    assert not client.get(experiment.id).state.ended, "it was over before the last kill"
    made.let_go()
    return client.wait(experiment.id, timeout=2 * HANG_SECONDS)


async def commands_and_decisions_hold(made: Disturbed, experiment: Experiment) -> None:
    """Check that agents carried out only commands of the journal, once each, and that a replay makes the same decisions."""
    done = [command for node in ("node1", "node2") for command in kills.carried_out(made.data, node)]
    assert [command for command, times in Counter(done).items() if times > 1] == []
    assert set(done) - await kills.sent(made.server, experiment) == set()
    assert {kind for kind, *_ in done} >= {"start"}
    assert kills.replayed(made.server, experiment)["decisions_equal"] is True


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("policy", "jobs", "victims"),
    [
        pytest.param(GREEDY, 20, KILLS, id="greedy"),
        pytest.param(BARRIER, 12, EACH, id="barrier", marks=pytest.mark.nightly),
    ],
)
async def test_the_final_table_and_every_curve_are_those_of_the_undisturbed_run(
    tmp_path: Path, policy: dict[str, Any], jobs: int, victims: Counter[str]
) -> None:
    stop = {"jobs": jobs, "max_iterations": LENGTH}
    file = softmax_file(tmp_path / "e", policy=policy, stop=stop)
    async with cluster(tmp_path / "undisturbed", {"a": 2, "b": 2}) as (processes, _):
        with Client(server=processes.scheduler) as client:
            experiment = client.wait(client.create(file).id, timeout=HANG_SECONDS)
            expected = kills.table(client, experiment), kills.curves(client, experiment)
    assert len(expected[0]) == jobs
    with (
        # The last four jobs wait for the last kill, however long the others need.
        disturbed(tmp_path / "disturbed", SEED, 0.3, victims, held=f"{jobs - 3}:15") as made,
        Client(server=made.server, patience=HANG_SECONDS) as client,
    ):
        experiment = run(made, client, file, until=jobs * LENGTH // 4)
        assert (experiment.state, len(made.killed)) == (ExperimentState.COMPLETED, victims.total())
        assert (kills.table(client, experiment), kills.curves(client, experiment)) == expected
        await commands_and_decisions_hold(made, experiment)


@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_whatever_the_order_of_arrival_decides_every_curve_is_that_of_the_job_alone(tmp_path: Path) -> None:
    file = softmax_file(tmp_path / "e", policy=HALVING, stop={"jobs": 40, "max_iterations": 12})
    with (
        disturbed(tmp_path / "data", SEED, 0.5, EACH, held="37:1") as made,
        Client(server=made.server, patience=HANG_SECONDS) as client,
    ):
        experiment = run(made, client, file, until=40 * 2)
        assert (experiment.state, len(made.killed)) == (ExperimentState.COMPLETED, EACH.total())
        jobs = client.jobs(experiment.id)
        recorded = kills.curves(client, experiment)
        await commands_and_decisions_hold(made, experiment)
    alone = all_trained_alone(file.parent, [job.hyperparameters for job in jobs], 12, "Softmax")
    for job, curve in zip(jobs, alone, strict=True):
        assert recorded[job.id] == {p: curve[p] for p in recorded[job.id]}
    lengths = Counter(len(curve) for curve in recorded.values())
    assert set(lengths) <= {2, 4, 8, 12}
    assert lengths[12] >= 1
    assert lengths[2] >= 1
