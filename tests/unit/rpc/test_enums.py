from __future__ import annotations

from typing import Any

import pytest

from hopyard._net.rpc import enums
from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import DecisionKind, JobState, RunEndReason, RunMode
from hopyard.v1 import common_pb2

pytestmark = pytest.mark.quick

MAPS: list[tuple[enums.EnumMap[Any, Any], list[Any]]] = [
    (enums.JOB_STATES, list(JobState)),
    (enums.RUN_MODES, list(RunMode)),
    (enums.RUN_END_REASONS, list(RunEndReason)),
    (enums.METRIC_MODES, ["max", "min"]),
    (enums.DECISIONS, list(DecisionKind)),
]


@pytest.mark.parametrize(("chart", "members"), MAPS)
def test_every_member_comes_back(chart: enums.EnumMap[Any, Any], members: list[Any]) -> None:
    assert [chart.from_proto(chart.to_proto(member)) for member in members] == members


def test_names_agree_on_both_sides() -> None:
    for state in JobState:
        assert common_pb2.JobState.Name(enums.JOB_STATES.to_proto(state)) == f"JOB_STATE_{state.value}"


def test_unspecified_is_refused_or_has_its_meaning() -> None:
    assert enums.RUN_MODES.from_proto(0) is RunMode.TRAIN
    with pytest.raises(InvalidInput, match=r"spec\.metric\.mode: found METRIC_MODE_UNSPECIFIED, allowed are METRIC_"):
        enums.METRIC_MODES.from_proto(0, field="spec.metric.mode")


def test_a_value_of_a_newer_version_is_refused_by_number() -> None:
    with pytest.raises(InvalidInput, match="Decision: found 77"):
        enums.DECISIONS.from_proto(77)


def test_an_incomplete_map_is_refused() -> None:
    with pytest.raises(ValueError, match=r"map of RunMode: not one to one, or without \[2, 3\]"):
        enums.EnumMap(common_pb2.RunMode, {RunMode.TRAIN: common_pb2.RUN_MODE_TRAIN})
