"""Tests of the conversion between wire messages and the generators' types."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.errors import InvalidInput
from hopyard.generator import Result
from hopyard.policy.vocabulary import JobState
from hopyard.v1 import common_pb2, hpgen_pb2
from hopyard_hpgen.call_log import CreateCall, ReportCall, ReportFinalCall
from hopyard_hpgen.converters import calls_from_proto, calls_to_proto, create_response, result_from_proto
from tests.unit.space.strategies import VALUES

pytestmark = pytest.mark.quick

IDS = st.text(max_size=4)
METRICS = st.dictionaries(IDS, st.floats(allow_nan=False), max_size=2)
OUTCOMES = st.sampled_from([state for state in JobState if state.ended])
RESULTS = st.builds(
    Result, METRICS, OUTCOMES, st.integers(0, 2**40), st.none() | st.dictionaries(IDS, VALUES, max_size=3)
)
CALLS = st.one_of(
    st.builds(CreateCall, IDS, st.none() | st.dictionaries(IDS, VALUES, max_size=3)),
    st.builds(ReportCall, IDS, st.integers(0, 2**40), METRICS),
    st.builds(ReportFinalCall, IDS, RESULTS),
)


@pytest.mark.merge
@given(st.lists(CALLS, max_size=5))
def test_calls_come_back_as_they_went(calls: list[CreateCall | ReportCall | ReportFinalCall]) -> None:
    sent = [hpgen_pb2.GeneratorCall.FromString(message.SerializeToString()) for message in calls_to_proto(calls)]
    assert calls_from_proto(sent) == calls


def test_an_empty_call_is_refused_with_its_place() -> None:
    good = calls_to_proto([CreateCall("a", None)])
    with pytest.raises(InvalidInput, match=r"calls\[1\]: needs one of create, report, report_final; found none"):
        calls_from_proto([*good, hpgen_pb2.GeneratorCall()])


@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=["nan", "inf"])
def test_a_recorded_configuration_with_a_number_that_is_not_finite_is_refused(value: float) -> None:
    create = CreateCall("a", {"x": {"y": value}})
    for call in (create, ReportFinalCall("a", Result({}, JobState.COMPLETED, 1, {"x": {"y": value}}))):
        with pytest.raises(InvalidInput, match=r"job a: hyperparameters: needs JSON values, but .* is not finite"):
            calls_from_proto(calls_to_proto([ReportCall("a", 1, {}), call]))


def test_a_job_ends_in_one_of_three_ways() -> None:
    told = hpgen_pb2.ReportFinalPerformanceRequest(job="a", outcome=common_pb2.JOB_STATE_RUNNING)
    with pytest.raises(InvalidInput, match="job a: outcome: needs COMPLETED, TERMINATED or FAILED, found RUNNING"):
        result_from_proto(told)
    told.outcome = common_pb2.JOB_STATE_UNSPECIFIED
    assert result_from_proto(told) == Result({})  # an older scheduler sends no outcome


def test_exhaustion_is_told_from_an_empty_configuration() -> None:
    assert create_response("a", None).exhausted
    assert not create_response("a", None).HasField("hyperparameters")
    assert not create_response("a", {}).exhausted
    assert create_response("a", {}).HasField("hyperparameters")
