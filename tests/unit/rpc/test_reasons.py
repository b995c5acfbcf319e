"""Tests of reasons on the wire: every code and every argument is preserved."""

from __future__ import annotations

import pytest

from hopyard._net.rpc.reasons import REASON_CODES, reason_from_proto, set_reason
from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard.v1 import common_pb2, experiment_pb2
from tests.reasons import example

pytestmark = pytest.mark.quick


def back(reason: Reason | None) -> Reason | None:
    message = experiment_pb2.Job()
    set_reason(message, reason)
    came = experiment_pb2.Job.FromString(message.SerializeToString())
    return reason_from_proto(came.reason_code, came.reason_args)


def test_every_reason_comes_back() -> None:
    reasons = [example(code) for code in ReasonCode]
    assert [back(reason) for reason in reasons] == reasons


def test_the_names_of_codes_agree_on_both_sides() -> None:
    for code in ReasonCode:
        assert common_pb2.ReasonCode.Name(REASON_CODES.to_proto(code)) == f"REASON_CODE_{code.name}"


def test_a_message_has_the_sentence_and_no_arguments_of_an_earlier_reason() -> None:
    message = experiment_pb2.Job()
    set_reason(message, Reason.of(ReasonCode.NODE_LOST, node="n1"))
    assert (message.reason, message.reason_args["node"].text) == ("node n1 is lost", "n1")
    set_reason(message, Reason(ReasonCode.PREEMPTED))
    assert (message.reason, dict(message.reason_args)) == ("preempted", {})
    set_reason(message, None)
    assert message == experiment_pb2.Job()


def test_unspecified_means_that_there_is_no_reason() -> None:
    assert back(None) is None
    with pytest.raises(InvalidInput, match="reason_code: found REASON_CODE_UNSPECIFIED, allowed are REASON_CODE_"):
        reason_from_proto(0, {"node": common_pb2.ReasonArgument(text="n1")})


@pytest.mark.parametrize(
    ("code", "args", "error"),
    [
        (9999, {}, "reason_code: found 9999, allowed are REASON_CODE_"),
        (common_pb2.REASON_CODE_NODE_LOST, {}, "reason NODE_LOST: arguments node are missing"),
        (
            common_pb2.REASON_CODE_NODE_LOST,
            {"node": common_pb2.ReasonArgument(whole=1)},
            "reason NODE_LOST: found node=1, needed is str",
        ),
        (
            common_pb2.REASON_CODE_NODE_LOST,
            {"node": common_pb2.ReasonArgument()},
            r"reason_args\.node: found no value, needed is text, whole, number or reason",
        ),
        (
            common_pb2.REASON_CODE_PREEMPTED,
            {"node": common_pb2.ReasonArgument(text="n1")},
            "reason PREEMPTED: found argument node, allowed are none",
        ),
    ],
)
def test_what_is_no_reason_is_refused(code: int, args: dict[str, common_pb2.ReasonArgument], error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        reason_from_proto(code, args)


def test_reasons_within_each_other_have_a_bound() -> None:
    reason = Reason(ReasonCode.PREEMPTED)
    for _ in range(20):
        reason = Reason.of(ReasonCode.POLICY_ERROR, cause=reason)
    with pytest.raises(InvalidInput, match="found more than 16 reasons within each other"):
        back(reason)


@pytest.mark.parametrize(("found", "sent"), [(2**70, 2**63 - 1), (-(2**70), -(2**63)), (2**63 - 1, 2**63 - 1)])
def test_an_integer_beyond_the_range_of_a_message_is_sent_as_the_nearest_one(found: int, sent: int) -> None:
    reason = Reason.of(ReasonCode.POLICY_UNDECIDED, job="1", position=found)
    assert back(reason) == Reason.of(ReasonCode.POLICY_UNDECIDED, job="1", position=sent)
