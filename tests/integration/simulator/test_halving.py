"""Tests of successive halving on large simulated clusters, with the real engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hopyard.policy import RunEndReason
from hopyard_policies.halving import AshaPolicy, AsyncHyperbandPolicy, HyperbandPolicy, ShaPolicy
from hopyard_simulator import CurveWorkload, Faults, Result, simulate

R = 16


def searched(policy: type, *, slots: int, jobs: int, length: int = R, **more: Any) -> Result:
    """Return the result of a simulated search; the rank of the configurations is the same at all positions."""

    def curve(job: Mapping[str, Any], position: int) -> float:
        return float(job["x"]) * position / (position + 2)

    workload = CurveWorkload(curve, [{"x": (number * 7919 % 10007) / 10007} for number in range(jobs)], length)
    return simulate(workload, policy, slots=slots, details=True, **more)


def busy_while_n_lasts(result: Result) -> tuple[float, float]:
    """Return when the last configuration started, and the fraction of the slots' time until then that had a run."""
    began: dict[str, float] = {}
    assert result.runs is not None
    for run in sorted(result.runs, key=lambda run: run.start):
        began.setdefault(run.job, run.start)
    last = max(began.values())
    used = sum(min(run.end, last) - run.start for run in result.runs if run.start < last)
    return last, used / (last * result.slots)


@pytest.mark.nightly
def test_500_slots_are_busy_and_the_first_is_at_R_after_its_own_training_time() -> None:
    """Show this with the defaults of the paper: three brackets, of which the first has five rungs below 256."""
    result = searched(AshaPolicy, slots=500, jobs=2500, length=256)
    assert result.jobs_started == 2500
    assert result.first_at_R == 256
    last, share = busy_while_n_lasts(result)
    assert last > 16
    assert share >= 0.99


@pytest.mark.parametrize("policy", [AshaPolicy, AsyncHyperbandPolicy, ShaPolicy, HyperbandPolicy])
def test_stragglers_and_drops_leave_no_slot_idle(policy: type) -> None:
    """Show that lost runs are queued again: every configuration reports, and enough configurations complete."""
    result = searched(policy, slots=60, jobs=500, faults=Faults(straggling=1.0, drop=0.01))
    assert result.jobs_started == 500
    assert busy_while_n_lasts(result)[1] >= 0.99
    assert result.jobs_at_R[-1][1] >= 500 // R


def test_resumed_jobs_train_nothing_twice() -> None:
    """Show that each configuration is trained once up to its last position."""
    result = searched(AshaPolicy, slots=7, jobs=100)
    assert result.curves is not None
    assert result.iterations == sum(len(curve) for curve in result.curves.values())
    assert all(len(curve) == curve[-1][1] for curve in result.curves.values())
    assert {len(curve) for curve in result.curves.values()} <= {1, 4, 16}


@pytest.mark.quick
@pytest.mark.parametrize("faults", [Faults(), Faults(straggling=1.0, drop=0.01)])
def test_sha_trains_one_bracket_of_all_configurations(faults: Faults) -> None:
    """Show that of 100 configurations with eta 4 the best 25 train to 4 and the best 6 to 16, whatever is late or lost."""
    result = searched(ShaPolicy, slots=7, jobs=100, faults=faults)
    assert result.curves is not None
    reached = {int(job): int(curve[-1][1] or 0) for job, curve in result.curves.items()}
    assert sorted(reached.values()) == [1] * 75 + [4] * 19 + [16] * 6
    best = sorted(range(1, 101), key=lambda job: (job - 1) * 7919 % 10007)[-6:]
    assert {job for job, position in reached.items() if position == 16} == set(best)


@pytest.mark.parametrize("policy", [AshaPolicy, ShaPolicy])
def test_a_dropped_job_goes_back_one_rung(policy: type) -> None:
    """Show that each run begins at the highest rung that the job has reached, whether it was suspended there or promoted in memory."""
    given = {"brackets": [0], "snapshot_every": 0, "max_losses": 100}
    result = searched(policy, slots=5, jobs=256, length=64, faults=Faults(drop=0.05), parameters=given)
    assert result.runs is not None
    lost_above_a_rung = 0
    begins = dict.fromkeys((run.job for run in result.runs), 0)
    for run in sorted(result.runs, key=lambda run: (run.job, run.attempt)):
        reached = begins[run.job] + run.trained
        begins[run.job] = max((rung for rung in (1, 4, 16, 64) if rung <= reached), default=0)
        if run.reason == RunEndReason.LOST.value:
            lost_above_a_rung += reached > begins[run.job] > 0
        else:
            assert reached == begins[run.job], run
    assert lost_above_a_rung > 10
