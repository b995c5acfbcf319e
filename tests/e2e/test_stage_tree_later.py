"""Test of a search after another one of the same program: its trials continue from snapshots of the earlier one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from hopyard.client import Client
from hopyard.client.queries import ENDED
from hopyard.client.types import Experiment, ExperimentState
from hopyard.torch.state_io import read_state
from tests.e2e import kills
from tests.e2e.branches import LENGTH, branching_file, trained, whole_curves
from tests.e2e.harness import all_trained_alone
from tests.e2e.test_stage_tree import differing

pytestmark = pytest.mark.nightly


def rates(*steps: tuple[int, float]) -> Mapping[str, Any]:
    """Return a space of trials that begin with the rate 0.02 and have another rate from a given position on."""
    values = [{"multi_step": {"milestones": [at], "values": [0.02, then]}} for at, then in steps]
    return {"optimizer": "adam", "lr": {"sequence": values}, "momentum": 0.9, "batch_size": 32}


def run(client: Client, file: Path) -> Experiment:
    """Run a search to its end."""
    ended = client.wait(client.create(file), timeout=200, until={*ENDED, ExperimentState.PAUSED})
    assert ended.state is ExperimentState.COMPLETED, ended.reason
    return ended


@pytest.mark.timeout(300)
async def test_a_trial_that_parts_from_an_earlier_one_half_way_goes_on_from_its_snapshot(tmp_path: Path) -> None:
    """Show this after a restart on the same data directory and garbage collection of the first search."""
    data, log = tmp_path / "data", tmp_path / "log"
    file = branching_file(tmp_path / "code", log, space=rates((18, 0.004), (26, 0.004)), snapshot={"every": 100})
    with Client.local(data, slots=2) as client:
        one = run(client, file)
        # The state from which the second trial branched off, which the first one passed.
        passed = next(job for job in client.jobs(one) if not job.parent)
        times = [s.report.seconds for s in client.statistics(one, passed.id) if s.report.position <= 18]
        assert len(times) == 18
    first = trained(log)
    assert sorted(run.positions for run in first) == [tuple(range(1, 37)), tuple(range(19, 37))]
    got = json.loads(kills.command("gc", "--older-than", "1s", "--data", str(data), "--json"))
    assert [(each["experiment"], each["count"], each["given_up"]) for each in got["kept"]] == [(one.id, 1, False)]
    assert got["seconds_again"] == pytest.approx(sum(times))
    assert (got["kept_bytes"] > 0, got["given_up_seconds"]) == (True, 0)
    spec = yaml.safe_load(file.read_text())
    second = file.with_name("second.yaml")
    second.write_text(yaml.safe_dump({**spec, "space": rates((18, 0.001), (22, 0.001), (26, 0.004))}))
    with Client.local(data, slots=2) as client:
        later = run(client, second)
        jobs, curves = client.jobs(later), whole_curves(client, later)
        saved = {job.id: client.download(later, job.id, to=tmp_path / job.id, which="newest").folder for job in jobs}
    # At 22 there is no snapshot of the second one, so 19 to 22 are trained again; the third one is answered.
    runs = [run for run in trained(log) if run not in first]
    assert sorted((run.job, run.positions) for run in runs) == [(job, tuple(range(19, 37))) for job in ("1", "2")]
    alone = all_trained_alone(
        file.parent, [job.hyperparameters for job in jobs], LENGTH, "Branching", tmp_path / "alone"
    )
    for index, (job, curve) in enumerate(zip(jobs, alone, strict=True)):
        assert curves[job.id] == curve, job.id
        (expected,) = (tmp_path / "alone" / str(index)).glob("position-*/**/torch.pt")
        (found,) = saved[job.id].glob("**/torch.pt")
        assert differing(read_state(found), read_state(expected)) == [], job.id
    assert json.loads(kills.command("replay", later.id, "--data", str(data), "--json"))["decisions_equal"] is True
    # A snapshot that only a third search could use can be replaced by training again.
    got = json.loads(kills.command("gc", "--for-later", "--older-than", "0.01", "--data", str(data), "--json"))
    assert [(each["experiment"], each["count"], each["given_up"]) for each in got["kept"]] == [(one.id, 1, True)]
    assert got["given_up_seconds"] == got["seconds_again"] == pytest.approx(sum(times))
    (freed,) = (each for each in got["found"] if "kept for later" in each["kind"])
    assert 0 < freed["size_bytes"] <= got["kept_bytes"]
    got = json.loads(
        kills.command("gc", "--for-later", "--dry-run", "--older-than", "0.01", "--data", str(data), "--json")
    )
    assert (got["kept"], got["found"]) == ([], [])
