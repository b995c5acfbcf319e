"""Tests of the comparison of a policy's answers in fresh processes, which the conformance suite uses."""

from __future__ import annotations

import pytest

from hopyard.policy.testing.determinism import first_difference, may_terminate, terminations
from tests.unit.policies.broken import Greedy, JudgesTooLate, SharedDict, SharedDictSuite


@pytest.mark.quick
def test_the_first_difference_names_the_up_call_and_both_answers() -> None:
    one = [("up-call 1", "a"), ("up-call 2", "b"), ("up-call 3", "c")]
    assert first_difference(one, one) == ""
    assert first_difference(one, [*one[:1], ("up-call 2", "d"), *one[2:]]) == "up-call 2: first b, then d"
    assert first_difference(one, one[:2]) == "first 3 up-calls, then 2"


@pytest.mark.quick
def test_policies_that_terminate_jobs_are_known_by_their_source() -> None:
    assert [may_terminate(policy) for policy in (Greedy, SharedDict, JudgesTooLate)] == [False, True, True]


@pytest.mark.quick
def test_commands_that_terminate_jobs_are_counted() -> None:
    class Fresh(SharedDict):
        def __init__(self) -> None:
            self.judged = {}

    history = SharedDictSuite().cluster(Fresh(), slots=1, jobs=5).run()
    told = [command for entry in history for command in entry.commands if "TerminateJob" in str(command)]
    assert terminations(history) == len(told) > 0


def test_memory_that_experiments_share_is_found() -> None:
    with pytest.raises(AssertionError, match=r"answered differently: up-call .*TerminateJob.*, then \("):
        SharedDictSuite().test_same_up_calls_same_answers()
