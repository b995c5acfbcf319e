"""Tests of the cases that `benchmarks/damage.py` draws, and of its verdicts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from damage_cases.cluster import Way
from damage_cases.plan import FILE_DAMAGES, FILES, FLIPS, ROW_DAMAGES, ROWS, flipped, plans
from damage_cases.verdict import Observation, Verdict, differing, judge, needs_mending

pytestmark = pytest.mark.quick

DONE = {"state": "COMPLETED", "reports": [1, 2]}
REFERENCE = {"chain": DONE, "tree": DONE}
PAUSED = {"state": "PAUSED", "reports": [1]}
SHORT = {"state": "COMPLETED", "reports": [1]}
FAILED = {"state": "FAILED", "reports": [1]}


def seen(chain: dict[str, Any] = DONE, tree: dict[str, Any] = DONE, **changes: Any) -> Observation:
    return Observation(tables={"chain": chain, "tree": tree}, **changes)


# ------------------------------------------------------------------------------------------------------------------ plan


def test_each_damage_meets_each_way_to_start() -> None:
    found = Counter((one.where, one.damage, one.way) for one in plans(0, 0, every_way=True))
    expected = [
        (where, damage, way)
        for kinds, damages in ((FILES, FILE_DAMAGES), (ROWS, ROW_DAMAGES))
        for where in kinds
        for damage in damages
        for way in Way
    ]
    assert found == Counter(expected)
    once = plans(0, 0)
    assert {(one.where, one.damage) for one in once} == {(where, damage) for where, damage, _ in expected}
    assert len(once) * len(Way) == len(expected)
    assert {(one.where, one.way) for one in once} == {(where, way) for where, _, way in expected}


def test_flips_meet_each_kind_in_each_way_and_moment() -> None:
    flips = [one for one in plans(0, 100) if one.damage == "flip"]
    assert len(flips) == 100
    assert {(one.where, one.way) for one in flips} == {(where, way) for where in FLIPS for way in Way}
    assert 5 < sum(one.running for one in flips) < 50


def test_equal_seeds_give_equal_cases_and_more_flips_are_further_ones() -> None:
    assert plans(3, 40) == plans(3, 40)
    assert plans(3, 40) != plans(4, 40)
    assert plans(3, 90)[: len(plans(3, 40))] == plans(3, 40)
    assert [one.number for one in plans(3, 40)] == list(range(1, len(plans(3, 40)) + 1))


@pytest.mark.parametrize(("chance", "changed"), [(0.0, b"\x01\x00"), (0.49, b"\x80\x00"), (0.99, b"\x00\x80")])
def test_one_bit_is_flipped(chance: float, changed: bytes) -> None:
    assert flipped(b"\x00\x00", chance) == changed
    assert flipped(changed, chance) == b"\x00\x00"


def test_empty_content_is_changed_too() -> None:
    assert flipped(b"", 0.5) == b"\x01"


# -------------------------------------------------------------------------------------------------------------- verdicts


def test_equal_results_are_not_used_or_healed() -> None:
    assert judge(seen(), None, REFERENCE) is Verdict.NOT_USED
    assert judge(seen(checked=["hopyard doctor: record 3"]), None, REFERENCE) is Verdict.NOT_USED
    assert judge(seen(warnings=["blob 12 is damaged"]), None, REFERENCE) is Verdict.HEALED


def test_a_pause_counts_only_if_the_others_completed_and_mending_helps() -> None:
    paused = seen(PAUSED, codes={"chain": "JOURNAL_UNREADABLE"})
    assert needs_mending(paused, REFERENCE)
    assert judge(paused, seen(), REFERENCE) is Verdict.PAUSED
    assert judge(paused, seen(SHORT), REFERENCE) is Verdict.WRONG_END
    assert judge(paused, None, REFERENCE) is Verdict.WRONG_END
    both = seen(PAUSED, SHORT, codes={"chain": "JOURNAL_UNREADABLE"})
    assert judge(both, seen(), REFERENCE) is Verdict.WRONG_END


def test_a_refusal_counts_if_mending_helps() -> None:
    refused = Observation(refused=["hopyard up: exit code 1"])
    assert needs_mending(refused, REFERENCE)
    assert judge(refused, seen(), REFERENCE) is Verdict.REFUSED
    assert judge(refused, seen(tree=SHORT), REFERENCE) is Verdict.WRONG_END
    interrupted = seen({"state": "INTERRUPTED", "reports": [1]}, refused=["hopyard up: exit code 1"])
    assert needs_mending(interrupted, REFERENCE)
    assert judge(interrupted, seen(), REFERENCE) is Verdict.REFUSED


def test_a_difference_without_a_report_is_silent() -> None:
    assert judge(seen(SHORT), None, REFERENCE) is Verdict.SILENT
    assert not needs_mending(seen(SHORT), REFERENCE)
    assert judge(seen(SHORT, warnings=["a node was lost"]), seen(), REFERENCE) is Verdict.SILENT
    checked = seen(SHORT, checked=["hopyard doctor: job 1"])
    assert needs_mending(checked, REFERENCE)
    assert judge(checked, seen(), REFERENCE) is Verdict.FOUND
    assert judge(checked, seen(SHORT), REFERENCE) is Verdict.WRONG_END
    missing = Observation(tables={"tree": DONE})
    assert judge(missing, seen(), REFERENCE) is Verdict.SILENT


def test_a_failed_experiment_is_a_wrong_end() -> None:
    assert judge(seen(FAILED), None, REFERENCE) is Verdict.WRONG_END
    assert not needs_mending(seen(FAILED), REFERENCE)


def test_crashes_and_hangs_are_findings_before_and_after_mending() -> None:
    crashed, hung = seen(crashes=["Traceback"]), seen(hung=True)
    paused = seen(PAUSED, codes={"chain": "JOURNAL_UNREADABLE"})
    assert judge(crashed, None, REFERENCE) is Verdict.CRASH
    assert judge(paused, crashed, REFERENCE) is Verdict.CRASH
    assert judge(hung, None, REFERENCE) is Verdict.HANG
    assert judge(paused, hung, REFERENCE) is Verdict.HANG
    assert not needs_mending(crashed, REFERENCE)
    assert {one for one in Verdict if one.finding} == {
        Verdict.SILENT,
        Verdict.WRONG_END,
        Verdict.CRASH,
        Verdict.HANG,
    }


def test_missing_and_further_experiments_differ() -> None:
    assert differing({"chain": DONE}, REFERENCE) == ["tree"]
    assert differing({**REFERENCE, "chain again": DONE}, REFERENCE) == ["chain again"]
