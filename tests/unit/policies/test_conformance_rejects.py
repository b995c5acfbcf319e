"""Tests of the policy conformance suite: it accepts a correct policy, and a named test rejects each defective one."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hopyard.policy.conformance import PolicyConformance
from tests.unit.policies import broken

pytestmark = pytest.mark.nightly

# The tests of the suite, each with arguments of its parametrization.
SUITE: dict[str, tuple[Any, ...]] = {
    "test_experiment_drains": (2, 6),
    "test_no_slot_idles_forever_while_a_job_waits": (),
    "test_slow_services": (),
    "test_survives_late_answers": (),
    "test_survives_an_early_end_of_training": (),
    "test_survives_lost_runs": (1,),
    "test_survives_a_save_that_is_lost": (),
    "test_survives_failing_jobs": (2,),
    "test_survives_metrics_that_are_not_finite": (math.nan,),
    "test_stops_when_the_generator_is_exhausted": (1,),
    "test_survives_slots_that_come_and_go": (),
    "test_survives_a_share_that_shrinks_and_grows": (),
    "test_survives_a_pause": (),
    "test_survives_refused_commands": (),
    "test_goes_on_when_the_experiment_is_extended": (),
    "test_random_schedules": (3,),
    "test_commands_are_legal": (),
    "test_demand_is_a_count_or_none": (),
    "test_metric_modes": (),
    "test_metric_scales": (),
    "test_determinism_cases_terminate_jobs": (),
    "test_same_up_calls_same_answers": (),
    "test_answers_do_not_depend_on_hash_order": (),
    "test_reads_no_clock_no_global_chance_and_no_file": (),
    "test_changes_nothing_that_it_was_given": (),
    "test_rebuilt_policy_goes_on_the_same": (),
}

# A defective policy's suite, a test that rejects it, and that test's message.
BROKEN = [
    (
        broken.GlobalChanceSuite,
        "test_reads_no_clock_no_global_chance_and_no_file",
        r"it called random\.shuffle in order",
    ),
    (broken.GlobalChanceSuite, "test_same_up_calls_same_answers", r"up-call \d+ .*: first \(None.*, then \(None"),
    (broken.ReadsTheClockSuite, "test_reads_no_clock_no_global_chance_and_no_file", r"time\.time in application_stat"),
    (
        broken.SetOrderSuite,
        "test_answers_do_not_depend_on_hash_order",
        r"answers: up-call \d+ .*: first \(None, .*, then \(None, ",
    ),
    (broken.SharedMemorySuite, "test_same_up_calls_same_answers", "were answered differently"),
    (
        broken.JudgesTooLateSuite,
        "test_determinism_cases_terminate_jobs",
        r"seeds \[10, 14, 19\]: override `curve` or `respond`",
    ),
    (broken.SharedMemorySuite, "test_rebuilt_policy_goes_on_the_same", "the rebuilt policy went another way: up-call"),
    (broken.BusySlotSuite, "test_commands_are_legal", r"JobCreated at .* slot 'm\d+' is busy with job '\d+'"),
    (broken.StartsTwiceSuite, "test_commands_are_legal", r"job '\d+' is STARTING; it must be idle"),
    (broken.ParksAnywhereSuite, "test_commands_are_legal", "PARK for job '1' at 1, where its run is not at `until`"),
    (broken.ForgetsLostJobsSuite, "test_survives_lost_runs", r"job \d+ is left \w+ at position \d after .* was LOST"),
    (
        broken.LeaksASlotSuite,
        "test_no_slot_idles_forever_while_a_job_waits",
        r"4 slots were demanded, but only \['m02', 'm03', 'm04'\] ever ran a job",
    ),
    (broken.CrashesOnNaNSuite, "test_survives_metrics_that_are_not_finite", "cannot convert float NaN to integer"),
    (
        broken.IgnoresExhaustionSuite,
        "test_stops_when_the_generator_is_exhausted",
        r"GeneratorExhausted at .* no more jobs may be created",
    ),
    (broken.ParksForEverSuite, "test_experiment_drains", r"stalled at .* RUNNING at 4 parked"),
    (broken.MaximisesAlwaysSuite, "test_metric_modes", "max and min differ at up-call"),
    (broken.MaximisesAlwaysSuite, "test_metric_scales", r"0\.\.1 and the same in -384\.\.128 differ at up-call"),
    (broken.ComparesRawValuesSuite, "test_metric_scales", r"0\.\.1 and the same in -384\.\.128 differ at up-call"),
    (
        broken.ChangesHyperparametersSuite,
        "test_changes_nothing_that_it_was_given",
        "the policy changed what it was given",
    ),
    (broken.WantsForEverSuite, "test_demand_is_a_count_or_none", r"demand was \d+ at the end"),
]

# Defects that only the test made for them can find.
ALONE = [
    broken.ReadsTheClockSuite,
    broken.SetOrderSuite,
    broken.WantsForEverSuite,
    broken.MaximisesAlwaysSuite,
    broken.ComparesRawValuesSuite,
    broken.JudgesTooLateSuite,
]


def check(suite: type[PolicyConformance], test: str) -> None:
    getattr(suite(), test)(*SUITE[test])


def test_the_whole_suite_is_looked_at_here() -> None:
    assert set(SUITE) == {name for name in dir(PolicyConformance) if name.startswith("test_")}


@pytest.mark.parametrize("test", SUITE)
def test_a_sound_policy_passes(test: str) -> None:
    check(broken.GreedySuite, test)


@pytest.mark.parametrize(
    ("suite", "test", "message"),
    BROKEN,
    ids=[f"{suite.__name__.removesuffix('Suite')}-{test}" for suite, test, _ in BROKEN],
)
def test_a_broken_policy_is_rejected(suite: type[PolicyConformance], test: str, message: str) -> None:
    with pytest.raises((AssertionError, ValueError), match=message):
        check(suite, test)


@pytest.mark.parametrize("suite", ALONE, ids=lambda suite: suite.__name__.removesuffix("Suite"))
def test_other_tests_do_not_blame_it(suite: type[PolicyConformance]) -> None:
    named = {test for broken_suite, test, _ in BROKEN if broken_suite is suite}
    rejected = set()
    for test in SUITE:
        try:
            check(suite, test)
        except (AssertionError, ValueError):
            rejected.add(test)
    assert rejected == named
