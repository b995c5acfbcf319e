"""Some cases of `benchmarks/damage.py`: damaged data of a killed cluster are found, and the results are right in the end."""

from __future__ import annotations

import json
from hashlib import shake_128
from pathlib import Path

import pytest
from damage import report, table
from damage_cases.case import CaseRunner
from damage_cases.cluster import Way
from damage_cases.plan import End, Plan
from damage_cases.specs import CHAIN, CHAIN_LENGTH, CODE
from damage_cases.verdict import Verdict

from tests.timing import HANG_SECONDS


def plan(number: int, where: str, damage: str) -> Plan:
    return Plan(number, where, damage, Way.LOCAL, End.KILLED, running=False, chance=(0.5, 0.5, 0.5))


def test_damage_is_found_and_healed_or_paused(tmp_path: Path) -> None:
    runner = CaseRunner(tmp_path, HANG_SECONDS, keep=True)
    plans = [plan(1, "snapshot", "truncated"), plan(2, "journal", "changed")]
    results = [runner.run(one) for one in plans]
    found = [(one.verdict, one.damage, one.seen) for one in results]
    assert [verdict for verdict, *_ in found] == [Verdict.HEALED, Verdict.PAUSED], found
    assert results[1].seen.codes == {CHAIN: "JOURNAL_UNREADABLE"}

    # The reports of the undisturbed run follow from the code and the configuration.
    reports = runner.control(plans[0]).tables[CHAIN]["reports"]
    curve = {position: dict(metrics)["score"] for job, position, metrics, _ in reports if job == "1"}
    assert curve == {position: value.hex() for position, value in enumerate(scores(0, CHAIN_LENGTH), 1)}

    counts = report(results, 0, 1.0)["counts"]
    assert counts == {"found and healed": 1, "found and paused": 1}
    assert "2 cases: 1 found and healed, 1 found and paused" in table(results)


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", [Way.RUN, Way.UP])
def test_a_case_damages_a_cluster_while_it_runs(tmp_path: Path, way: Way) -> None:
    """Check that the damage happens between two reports, which the case needs, and that it is no defect."""
    case = Plan(1, "snapshot", "flip", way, End.KILLED, running=True, chance=(0.5, 0.5, 0.5))
    result = CaseRunner(tmp_path, HANG_SECONDS, keep=True).run(case)
    assert not result.verdict.finding, result
    assert result.damage.startswith("flip: agent")


def scores(x: int, until: int) -> list[float]:
    """Return the metric of each position of the training code."""
    code = b"".join((CODE / name).read_bytes() for name in ("train.py", "constants.json"))
    state, found = bytes(512), []
    for _ in range(until):
        state = shake_128(state + json.dumps({"x": x}).encode() + code).digest(512)
        found.append(int.from_bytes(state[:6], "big") / 2**48)
    return found
