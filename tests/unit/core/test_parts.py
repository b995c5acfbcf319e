"""Tests of evaluations by parts: their combined metrics count once, when all parts have reported."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import ExperimentState, Report, RunEndReason, RunMode, StartJob
from hopyard_engine.core.effects import ReportAccepted
from hopyard_engine.core.events import Reports, Started
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def trained(**terms: object) -> Rig:
    """Return a core with a job that has a snapshot at 1 and no score yet."""
    rig = Rig(capacity=2, metric_every=9, **terms)  # Evaluations report the score, training does not.
    rig.create()
    rig.start("1", "n1/0", until=1)
    rig.say(rig.key(), Reports((Report(1, {"loss": 2.0}, at_until=True),)))
    rig.ended(RunEndReason.UNTIL, 1, snapshot(1))
    return rig


def evaluate(rig: Rig, part: str, score: float, examples: int, parts: int = 2) -> list[ReportAccepted]:
    rig.command(StartJob("1", ("n1/0",), inputs={"n1/0": part}, mode=RunMode.EVALUATE, parts=parts))
    rig.say(rig.key(), Started(1))
    rig.say(rig.key(), Reports((Report(1, {"score": score}, part=part, examples=examples, at_until=True),)))
    accepted = rig.of(ReportAccepted)
    rig.ended(RunEndReason.UNTIL, 1)
    return accepted


def shown(rig: Rig) -> dict[str, float]:
    return dict(rig.stream.curve(rig.job())[-1].metrics)


def test_the_metric_counts_when_all_parts_are_there() -> None:
    rig = trained()
    first = evaluate(rig, "eval/0", 0.9, 300)
    assert shown(rig) == {"loss": 2.0}
    assert (rig.job().best, rig.stream.best, rig.job().last) == (None, None, None)
    assert [one.combined for one in first] == [None]
    last = evaluate(rig, "eval/1", 0.5, 100)
    assert shown(rig) == {"loss": 2.0, "score": 0.8}
    assert (rig.job().best, rig.stream.best, rig.job().last) == ((0.8, 1), ("1", 1, 0.8), 0.8)
    assert [one.combined for one in last] == [Report(1, {"loss": 2.0, "score": 0.8})]


def test_one_part_above_the_target_ends_nothing() -> None:
    rig = trained(target=0.85)
    evaluate(rig, "eval/0", 0.99, 100)
    assert rig.stream.state is ExperimentState.RUNNING
    evaluate(rig, "eval/1", 0.6, 100)
    assert rig.stream.state is ExperimentState.RUNNING


def test_all_parts_together_reach_the_target() -> None:
    rig = trained(target=0.85)
    evaluate(rig, "eval/0", 0.99, 100)
    evaluate(rig, "eval/1", 0.8, 100)
    assert rig.stream.founder.final is not None


def test_a_part_that_is_evaluated_again_counts_once() -> None:
    rig = trained()
    evaluate(rig, "eval/0", 0.9, 300)
    assert evaluate(rig, "eval/0", 0.9, 300) == []
    assert "score" not in shown(rig)


def thrown_back(rig: Rig) -> None:
    """Lose the only snapshot of the job and let it train again to the same position."""
    rig.expire("n1")
    rig.join("n1", 2, life="b")
    rig.start("1", "n1/0", until=1)
    rig.say(rig.key(), Reports((Report(1, {"loss": 1.5}, at_until=True),)))
    rig.ended(RunEndReason.UNTIL, 1, snapshot(1, "other"))


def test_parts_of_a_model_that_is_no_more_are_no_beginning_of_another_one_s() -> None:
    rig = trained()
    evaluate(rig, "eval/0", 0.9, 300)
    thrown_back(rig)
    evaluate(rig, "eval/1", 0.5, 100)
    assert "score" not in shown(rig)
    last = evaluate(rig, "eval/0", 0.7, 300)
    assert shown(rig) == {"loss": 2.0, "score": 0.65}
    assert [one.combined for one in last] == [Report(1, {"loss": 2.0, "score": 0.65})]


def test_an_evaluation_that_is_complete_counts_for_good() -> None:
    """Check that a repeated evaluation is not recorded."""
    rig = trained()
    evaluate(rig, "eval/0", 0.9, 300)
    evaluate(rig, "eval/1", 0.5, 100)
    thrown_back(rig)
    assert evaluate(rig, "eval/0", 0.7, 300) == []
    assert evaluate(rig, "eval/1", 0.7, 100) == []
    assert (shown(rig), rig.job().best) == ({"loss": 2.0, "score": 0.8}, (0.8, 1))


def test_without_a_number_of_parts_each_counts_at_once() -> None:
    rig = trained()
    accepted = evaluate(rig, "eval/0", 0.9, 300, parts=0)
    assert shown(rig)["score"] == 0.9
    assert [one.combined for one in accepted] == [None]


def test_a_generator_that_reads_reports_is_told_the_whole_once() -> None:
    rig = trained(generator_reads="reports")
    rig.job().generated = True
    evaluate(rig, "eval/0", 0.9, 300)
    evaluate(rig, "eval/1", 0.5, 100)
    told = [(call.position, dict(call.metrics)) for call in rig.stream.founder.generator_calls if call.kind == "report"]
    assert told == [(1, {"loss": 2.0, "score": 0.8})]


def test_the_newest_value_stays_while_later_units_do_not_measure_it() -> None:
    rig = trained()
    evaluate(rig, "eval/0", 0.9, 1, parts=1)
    rig.start("1", "n1/0", until=2)
    rig.say(rig.key(), Reports((Report(2, {"loss": 1.0}, at_until=True),)))
    assert rig.job().last == 0.9


def test_parts_without_an_evaluation_or_an_input_are_refused() -> None:
    rig = trained()
    rig.command(StartJob("1", ("n1/0",), parts=2))
    assert rig.job().run is None
    rig.command(StartJob("1", ("n1/0",), mode=RunMode.EVALUATE, parts=2))
    assert rig.job().run is None
