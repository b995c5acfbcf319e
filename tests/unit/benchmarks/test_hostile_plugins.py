"""Tests of the evaluation of `benchmarks/hostile_plugins.py`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import hostile_plugins
import pytest
from hostile.cases import CASES
from hostile.evaluation import Call, Noticed, Outcome, noticed, problems

pytestmark = pytest.mark.quick

CALM = Noticed(calls=3, failed=0, error="", longest_call=0.5, median_call=0.1, gaps=3, longest_gap=0.2, median_gap=0.1)
PAUSED = Outcome("policy exit", pauses=True, state="PAUSED", code="POLICY_ERROR", reason="it ended", seconds=2.0)
ANSWERED = Outcome("solver loop", pauses=False, state="COMPLETED", code="", reason="too slow", seconds=2.0)


def calls(*spans: tuple[float, float]) -> list[Call]:
    return [Call("get", at, seconds) for at, seconds in spans]


# --- what was noticed


def test_only_calls_and_gaps_of_the_period_count_also_those_that_are_partly_in_it() -> None:
    told = calls((0.0, 5.0), (9.0, 2.0), (12.0, 0.5), (19.5, 3.0), (21.0, 7.0))
    seen = noticed(10.0, 20.0, told, [1.0, 6.0, 10.5, 11.5, 13.5, 21.5, 31.5])
    assert (seen.calls, seen.longest_call, seen.median_call) == (3, 3.0, 2.0)
    assert (seen.gaps, seen.longest_gap, seen.median_gap) == (4, 8.0, 3.25)


def test_training_that_never_continues_is_a_gap_until_the_end_of_the_period() -> None:
    seen = noticed(10.0, 20.0, calls((10.0, 1.0)), [9.0, 10.0, 11.0])
    assert (seen.gaps, seen.longest_gap) == (3, 9.0)


def test_a_call_that_lasts_longer_than_the_period_is_noticed() -> None:
    assert noticed(10.0, 20.0, calls((5.0, 30.0)), [9.0, 21.0]).longest_call == 30.0


def test_the_first_error_is_told_and_all_failed_calls_are_counted() -> None:
    told = [Call("get", 1.0, 0.1), Call("jobs", 2.0, 0.1, "away"), Call("get", 3.0, 0.1, "still away")]
    seen = noticed(0.0, 4.0, told, [0.0, 5.0])
    assert (seen.failed, seen.error) == (2, "away")


@pytest.mark.parametrize(
    ("told", "iterations"), [([], [9.0, 11.0]), (calls((1.0, 2.0)), [9.0, 11.0]), (calls((12.0, 1.0)), [])]
)
def test_a_period_without_calls_or_iterations_has_no_figures(told: list[Call], iterations: list[float]) -> None:
    with pytest.raises(ValueError, match="both are needed"):
        noticed(10.0, 20.0, told, iterations)


# --- what is allowed


def test_a_calm_period_and_expected_outcomes_are_allowed() -> None:
    assert problems("baseline", CALM) == []
    assert problems(PAUSED.name, CALM, PAUSED) == []
    assert problems(ANSWERED.name, CALM, ANSWERED) == []


def test_calls_may_take_1_6_seconds_and_no_longer() -> None:
    assert problems("p", replace(CALM, longest_call=1.6)) == []
    assert problems("p", replace(CALM, longest_call=1.61)) == ["p: a call took 1.61 s, allowed are 1.6 s"]


def test_failed_calls_are_a_problem() -> None:
    assert problems("p", replace(CALM, failed=2, error="away")) == ["p: 2 calls failed: away"]


def test_an_experiment_that_is_not_paused_is_a_problem() -> None:
    (told,) = problems("p", CALM, replace(PAUSED, state="RUNNING", reason=""))
    assert told == "p: the experiment is RUNNING and not PAUSED: no reason"


def test_a_question_without_an_error_as_its_answer_is_a_problem() -> None:
    (told,) = problems("p", CALM, replace(ANSWERED, reason=""))
    assert told == "p: the policy did not get an error as its answer; the experiment is COMPLETED"


@pytest.mark.parametrize("outcome", [PAUSED, ANSWERED])
def test_a_plugin_that_does_no_harm_is_a_problem(outcome: Outcome) -> None:
    assert problems("p", CALM, replace(outcome, seconds=None)) == ["p: the plugin did no harm, or nothing answered it"]


# --- cases and memory


def test_each_kind_of_plugin_loops_and_takes_memory() -> None:
    for kind in ("policy", "generator", "solver", "predictor"):
        assert {f"{kind} loop", f"{kind} memory"} <= CASES.keys()
    assert [case.pauses for case in CASES.values()] == [case.kind in ("policy", "generator") for case in CASES.values()]


def test_the_memory_of_processes_is_summed_up_by_kind(tmp_path: Path) -> None:
    for case, kind, pid, resident in (("a", "policy", 1, 1024), ("b", "policy", 2, 3072), ("b", "solver", 3, 512)):
        (tmp_path / case).mkdir(exist_ok=True)
        note = {"resident": resident, "unique": resident // 2}
        (tmp_path / case / f"{kind}-{pid}.memory").write_text(json.dumps(note))
    assert hostile_plugins.memory(tmp_path) == {
        "policy": {"processes": 2, "resident": 2.0, "unique": 1.0},
        "solver": {"processes": 1, "resident": 0.5, "unique": 0.25},
    }
