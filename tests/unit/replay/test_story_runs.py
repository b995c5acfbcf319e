"""Tests of the story's sentences about runs: their start, their reports and their end."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import (
    AmendRun,
    Decision,
    DecisionKind,
    IterationFinish,
    Report,
    RunEndReason,
    RunMode,
    StartJob,
)
from hopyard_engine.core.events import Amended, Ended, Reports, Started
from tests.reasons import said
from tests.unit.core.rig import Rig, snapshot
from tests.unit.replay.story import last, told

pytestmark = pytest.mark.quick


def test_a_start_says_where_which_attempt_and_from_what(rig: Rig) -> None:
    rig.create()
    rig.start("1", "n1/0", until=5, allowed=3)
    start, up = told(rig)[-2:]
    assert start.text.endswith(
        "the policy starts job 1 on n1/0 up to 5 without a decision before 3 (attempt 1, from the start)"
    )
    assert up.text == "run 1 of job 1 is up from the start"


def test_reports_and_decisions(rig: Rig) -> None:
    rig.create()
    rig.start()
    rig.script = lambda call: (Decision(DecisionKind.CONTINUE, 8) if isinstance(call, IterationFinish) else None, [])
    rig.report(6, 0.91)
    texts = [line.text for line in told(rig)[-3:]]
    assert texts == [
        "run 1 of job 1 reported 6: score 0.91",
        "the policy was informed about job 1 at 6",
        "the policy was asked about job 1 at 6 and decided CONTINUE up to 8",
    ]


def test_a_late_message_of_an_old_attempt_is_told_as_refused(rig: Rig) -> None:
    rig.create()
    rig.start(until=9)
    rig.report(5)
    old = rig.key()
    rig.expire("n1")
    rig.join("n2")
    rig.start("1", "n2/0")
    rig.say(old, Reports((Report(6, {"score": 0.1}),)))
    assert last(rig) == "a late message of run 1 of job 1 was refused (reported 6: score 0.1); the job is at attempt 2"


def test_what_is_trained_again_and_differs_is_told(rig: Rig) -> None:
    rig.create()
    rig.start(until=9)
    rig.report(5, 0.5)
    rig.expire("n1")
    rig.join("n2")
    rig.start("1", "n2/0")
    rig.report(5, 0.6)
    assert last(rig).startswith(
        "run 2 of job 1 reported 5: score 0.6 (again) (position 5 was trained again and differs"
    )


def test_an_end_says_where_the_job_stands(rig: Rig) -> None:
    rig.create()
    rig.start(until=4)
    rig.report(4, at_until=True)
    before = len(rig.journal)
    rig.ended(RunEndReason.UNTIL, 4, snapshot(4))
    assert told(rig)[before].text == (
        "run 1 of job 1 left its slot at 4 (UNTIL, its state saved): told; "
        "job 1 is SUSPENDED and continues from the snapshot at 4: reached position 4"
    )


def test_a_job_that_is_trained_to_its_end_leaves_and_is_not_suspended() -> None:
    rig = Rig(max_position=4)
    rig.create()
    rig.start(until=4)
    rig.report(4, at_until=True)
    told_ = "; ".join(line.text for line in told(rig))
    assert "job 1 leaves its slot: trained to its end, saving" in told_
    assert "SUSPEND" not in told_


def test_bodies_that_a_rig_does_not_say() -> None:
    rig = Rig(capacity=2)
    rig.create()
    rig.command(StartJob("1", ("n1/0", "n1/1"), mode=RunMode.TRAIN))
    rig.say(rig.key(rank=1), Started(0))
    assert last(rig) == "run 1 of job 1 (rank 1) is up from the start"
    rig.command(AmendRun("1", "t", until=9))
    rig.say(rig.key(), Amended("t", False, 9))
    assert "run 1 of job 1 was already at 9: amendment t came too late" in [line.text for line in told(rig)]
    before = len(rig.journal)
    rig.say(
        rig.key(), Ended(RunEndReason.FAILED, 3, None, True, said("train at position 3: ValueError: no\n  File ..."))
    )
    assert told(rig)[before].text == (
        "run 1 of job 1 failed at 3: train at position 3: ValueError: no; "
        "job 1 leaves its slot: its run is over, and its other processes leave"
    )
