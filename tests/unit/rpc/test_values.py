from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard._net.rpc import values
from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import Report
from hopyard.v1 import common_pb2

pytestmark = pytest.mark.quick

names = st.text(min_size=1, max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**63), max_value=2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=12)
)
nested: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)
doubles = st.floats(allow_nan=False)


def typed(value: Any) -> Any:
    """Return a value with the type of each part, because 1 == 1.0 == True."""
    if isinstance(value, list):
        return [typed(item) for item in value]
    if isinstance(value, dict):
        return {name: typed(item) for name, item in value.items()}
    return (type(value), value)


@pytest.mark.merge
@given(nested)
def test_a_value_comes_back_with_its_types(value: Any) -> None:
    wire = common_pb2.Value.FromString(values.value_to_proto(value).SerializeToString())
    assert typed(values.value_from_proto(wire)) == typed(value)


@pytest.mark.merge
@given(st.dictionaries(names, nested, max_size=5))
def test_hyperparameters_come_back(configuration: dict[str, Any]) -> None:
    wire = values.hyperparameters_to_proto(configuration)
    assert typed(values.hyperparameters_from_proto(wire)) == typed(configuration)


def test_not_finite_floats_are_legal() -> None:
    wire = values.hyperparameters_to_proto({"nan": math.nan, "inf": math.inf})
    back = values.hyperparameters_from_proto(wire)
    assert math.isnan(back["nan"])
    assert back["inf"] == math.inf


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"layers": [1, 2, {3}]}, r"value\.layers\[2\]: found set \{3\}"),
        ({"a": {1: 2}}, r"value\.a: found the key 1 of type int"),
        (2**63, r"value: found 9223372036854775808, allowed are integers of 64 bits"),
        ("\ud800", r"value: found text that is no Unicode"),
        (b"bytes", r"value: found bytes"),
    ],
)
def test_what_is_no_value_is_refused_by_its_path(value: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        values.value_to_proto(value)


def test_the_deepest_value_that_is_allowed_can_be_parsed() -> None:
    value: Any = 1
    for _ in range(values.MAX_DEPTH):
        value = {"a": value}
    wire = values.hyperparameters_to_proto({"deep": value})
    back = common_pb2.Hyperparameters.FromString(wire.SerializeToString())
    assert values.hyperparameters_from_proto(back) == {"deep": value}
    with pytest.raises(InvalidInput, match="nested deeper than the 24 levels"):
        values.value_to_proto({"a": value})


@pytest.mark.merge
@given(
    st.builds(
        Report,
        position=st.integers(0, 2**31 - 1),
        metrics=st.dictionaries(names, doubles, max_size=4),
        seconds=st.floats(0, 1e12),
        part=st.text(max_size=5),
        examples=st.integers(0, 2**46),
        at_until=st.booleans(),
        finished=st.booleans(),
    )
)
def test_a_report_comes_back(report: Report) -> None:
    wire = common_pb2.Report.FromString(values.report_to_proto(report).SerializeToString())
    assert values.report_from_proto(wire) == report


def test_a_report_carries_its_time_and_what_is_in_force() -> None:
    wire = values.report_to_proto(Report(3, {"loss": 1}), at=12.5, in_force={"lr": 0.1})
    assert wire.at == 12.5
    assert values.hyperparameters_from_proto(wire.in_force) == {"lr": 0.1}


@pytest.mark.parametrize(
    ("field", "found", "most"),
    [
        ("position", -1, 2**31 - 1),
        ("position", 2**31, 2**31 - 1),
        ("seconds", -1.0, 1e12),
        ("seconds", math.inf, 1e12),
        ("seconds", math.nan, 1e12),
        ("examples", -1, 2**46),
        ("examples", 2**46 + 1, 2**46),
    ],
)
def test_a_report_with_a_number_out_of_range_is_refused(field: str, found: float, most: float) -> None:
    with pytest.raises(InvalidInput, match=rf"report\.{field}: found {found}, allowed is 0 to {most}"):
        values.report_from_proto(common_pb2.Report(**{field: found}))  # type: ignore[arg-type]
