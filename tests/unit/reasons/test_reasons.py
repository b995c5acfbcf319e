"""Tests of reasons: codes, arguments and sentences."""

from __future__ import annotations

import enum

import pytest

from hopyard.policy.vocabulary import StreamId
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode, explain
from hopyard.policy.vocabulary.reasons.reason import MAX_CHARACTERS, SECTIONS, SENTENCES
from hopyard.policy.vocabulary.reasons.template import Sentence
from hopyard_engine.core.events import PolicyFailed
from hopyard_engine.journal.codec import decode, encode
from tests.reasons import example

pytestmark = pytest.mark.quick


def test_every_code_has_one_sentence() -> None:
    assert list(SENTENCES) == list(ReasonCode)
    assert sum(map(len, SECTIONS.values())) == len(ReasonCode)


def test_a_code_is_named_by_its_value() -> None:
    assert issubclass(ReasonCode, enum.Enum)
    assert [code.value for code in ReasonCode] == [code.name for code in ReasonCode]
    assert all(code.name == code.name.upper() for code in ReasonCode)


@pytest.mark.parametrize("code", list(ReasonCode))
def test_a_sentence_has_its_required_arguments_only_or_all_of_them(code: ReasonCode) -> None:
    whole = example(code)
    least = Reason(code, {name: whole.args[name] for name in SENTENCES[code].required})
    for reason in (whole, least):
        assert explain(reason)
        assert not set("{}[]") & set(explain(reason))


@pytest.mark.parametrize("code", list(ReasonCode))
def test_a_reason_comes_back_from_the_journal(code: ReasonCode) -> None:
    failed = PolicyFailed(1.0, StreamId("x"), 2, example(code))
    assert decode("PolicyFailed", encode(failed)) == failed


def test_a_record_with_an_unknown_code_or_a_wrong_argument_is_refused() -> None:
    for reason in ('{"code":"SOMETHING_NEW"}', '{"code":"NODE_LOST","args":{"node":3}}', '{"code":"NODE_LOST"}', "{}"):
        with pytest.raises(ValueError, match="journal record of kind PolicyFailed"):
            decode("PolicyFailed", f'{{"at":1.0,"stream":"x","number":2,"reason":{reason}}}'.encode())


def test_arguments_that_are_not_those_of_the_code_are_refused() -> None:
    with pytest.raises(TypeError, match="reason NODE_LOST: arguments node are missing"):
        Reason(ReasonCode.NODE_LOST)
    with pytest.raises(TypeError, match="reason NODE_LOST: found node=3, needed is str"):
        Reason.of(ReasonCode.NODE_LOST, node=3)
    with pytest.raises(TypeError, match="reason NODE_LOST: found argument job, allowed are node"):
        Reason.of(ReasonCode.NODE_LOST, node="n1", job="1")


def test_arguments_that_are_none_are_left_out() -> None:
    assert Reason.of(ReasonCode.WAITS_FOR_POLICY, seconds=None) == Reason(ReasonCode.WAITS_FOR_POLICY)
    assert Reason(ReasonCode.WAITS_FOR_POLICY).plus(seconds=3).args == {"seconds": 3}


def test_a_long_text_is_cut() -> None:
    reason = Reason.of(ReasonCode.RUN_MESSAGE, message="x" * (MAX_CHARACTERS + 1))
    assert reason.args["message"] == "x" * MAX_CHARACTERS


def test_what_no_message_can_hold_is_replaced() -> None:
    reason = Reason.of(ReasonCode.RUN_MESSAGE, message="no file named \udcff or ü")
    assert str(reason) == "no file named ? or ü"


def test_a_whole_number_is_a_number() -> None:
    reason = Reason.of(ReasonCode.TIME_OVER, seconds=100)
    assert (type(reason.args["seconds"]), str(reason)) == (float, "its time of 100 s is over")


def test_what_is_waited_for_and_what_was_before_follow_the_sentence() -> None:
    last = Reason.of(ReasonCode.RUN_LOST, cause=Reason.of(ReasonCode.NODE_LOST, node="n1"))
    waits = Reason.of(ReasonCode.WAITS_UNSTARTED, idle=1, last=last)
    assert str(waits) == "the policy has not started it (1 slot is idle); last: its run was lost: node n1 is lost"
    leaves = Reason.of(ReasonCode.STOPPED_BY_PERSON, waits=Reason.of(ReasonCode.LEAVING_RUNS, runs=2))
    assert str(leaves) == "stopped by a person; waits for 2 runs to reach a boundary and leave"


def test_equal_reasons_are_one_in_a_set() -> None:
    first, second = (Reason.of(ReasonCode.NODE_LOST, node=node) for node in ("n1", "n2"))
    assert {first, second, Reason.of(ReasonCode.NODE_LOST, node="n1")} == {first, second}


def test_no_reason_has_no_sentence() -> None:
    assert explain(None) == ""


@pytest.mark.parametrize(
    ("template", "args", "text"),
    [
        ("{a:one|many} {a:?is|are} there", {"a": 1}, "1 one is there"),
        ("{a:one|many} {a:?is|are} there", {"a": 2}, "2 many are there"),
        ("[of {a} |its ]share[, {b:d} left]", {}, "its share"),
        ("[of {a} |its ]share[, {b:d} left]", {"a": "x", "b": 3}, "of x share, 3 left"),
        ("{a!r} at {b:.3g}", {"a": "it's", "b": 0.12345}, '"it\'s" at 0.123'),
    ],
)
def test_templates(template: str, args: dict[str, object], text: str) -> None:
    assert Sentence(template, "").text(args) == text


def test_a_template_that_is_wrong_is_refused() -> None:
    with pytest.raises(ValueError, match=r"placeholder \{a b\}: allowed are"):
        Sentence("{a b}", "").text({})
    with pytest.raises(ValueError, match="a has two types, str and int"):
        _ = Sentence("{a} {a:d}", "").arguments
