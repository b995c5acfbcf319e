"""Test of two concurrent experiments that share a stage tree, while the scheduler is killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from hopyard.client import Client
from hopyard.client.queries import ENDED
from hopyard.client.types import Experiment, ExperimentState, JobState
from hopyard_engine.core import Core
from hopyard_tools.commands.journal_source import opened
from tests.e2e import kills
from tests.e2e.branches import LENGTH, States, branching_file, trained, whole_curves
from tests.e2e.harness import all_trained_alone
from tests.e2e.test_stage_tree_kills import cluster, kill_scheduler, when_trained
from tests.e2e.test_stage_tree_later import rates
from tests.timing import HANG_SECONDS

FIRST = rates((18, 0.004), (30, 0.004))
SECOND = rates((18, 0.004), (24, 0.004))
PACE = 0.15
UNIQUE = 36 + 18 + 12
"""Units of all trials together: one trial is in both spaces, and the three paths differ from position 18, 24 and 30 on.

Each experiment needs 12 units for itself alone, and 42 units are for both.
"""


async def billed(server: str, experiment: Experiment) -> Mapping[str, float]:
    """Return the slot seconds that each experiment of the group pays for, as derived from the journal."""
    core = Core()
    async with opened(server, None, experiment.id, "a test") as source:
        async for _, event in source.read():
            core.restore(event)  # type: ignore[arg-type]
    return {m.id: m.slot_seconds for x in core.streams.values() for m in x.experiments.values()}


@pytest.mark.timeout(240)
async def test_two_searches_at_once_train_nothing_twice_and_each_has_the_results_of_its_lone_run(
    tmp_path: Path,
) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    terms: dict[str, Any] = {"share": "both", "snapshot": {"every": 100}}
    held = tmp_path / "held"
    held.touch()
    file = branching_file(tmp_path / "e", log, pace=PACE, light=True, held=held, space=FIRST, **terms)
    other = file.with_name("second.yaml")
    other.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "space": SECOND}))
    with cluster(data) as (up, server), Client(server=server, patience=HANG_SECONDS) as client:
        both = [client.create(file), client.create(other)]
        assert both[1].group == both[0].id
        held.unlink()
        when_trained(log, UNIQUE // 2)
        kill_scheduler(up, log)
        both = [client.wait(one.id, timeout=HANG_SECONDS, until={*ENDED, ExperimentState.PAUSED}) for one in both]
        assert [one.state for one in both] == [ExperimentState.COMPLETED] * 2, [one.reason for one in both]
        jobs = [client.jobs(one.id) for one in both]
        curves = {job: curve for one in both for job, curve in whole_curves(client, one).items()}
        saved = client.download(both[1], jobs[1][0].id, to=tmp_path / "saved", which="newest")
        tree = json.loads(kills.command("tree", both[1].id, "--server", server, "--json"))
        bills = await billed(server, both[0])
    everybody = [job for own in jobs for job in own]
    assert [(job.state, job.position) for job in everybody] == [(JobState.COMPLETED, LENGTH)] * 4
    assert saved.position == LENGTH
    states = States(everybody)
    executed = states.executed(trained(log))
    assert len(states.all()) == UNIQUE
    assert executed == Counter(states.all())
    alone = all_trained_alone(file.parent, [job.hyperparameters for job in everybody], LENGTH, "Branching")
    for job, curve in zip(everybody, alone, strict=True):
        assert curves[job.id] == curve, job.id
    assert tree["decisions_equal"] is True
    assert (tree["totals"]["trials"], tree["totals"]["done"], tree["totals"]["unique"]) == (2, 54, 54)
    assert bills == {one.id: one.slot_seconds for one in both}
    assert tree["slot_seconds"] == both[1].slot_seconds
    # Each pays for half of the common training and for its own, whichever experiment waited for the other.
    assert min(bills.values()) > 0.9 * PACE * UNIQUE / 2
