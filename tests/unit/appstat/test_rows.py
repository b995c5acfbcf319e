from __future__ import annotations

import json
import math
import struct

from hypothesis import given
from hypothesis import strategies as st

from hopyard.policy.vocabulary import Report
from hopyard_appstat.domain import Statistic
from hopyard_appstat.rows import metrics_from_json, metrics_to_json, statistic_from_row, statistic_to_row


def bits(value: float) -> bytes:
    return b"nan" if math.isnan(value) else struct.pack("<d", value)


@given(st.dictionaries(st.text(max_size=8), st.floats(), max_size=5))
def test_metrics_come_back_bit_for_bit(metrics: dict[str, float]) -> None:
    text = metrics_to_json(metrics)
    back = metrics_from_json(text)
    assert {name: bits(value) for name, value in back.items()} == {name: bits(value) for name, value in metrics.items()}


def test_not_finite_metrics_are_strict_json() -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    text = metrics_to_json({"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.0})
    assert json.loads(text, parse_constant=refuse) == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 1.0}


def test_a_statistic_comes_back() -> None:
    report = Report(7, {"loss": 0.5}, 1.25, part="p0", examples=32, at_until=True, finished=True)
    for in_force in (None, {}, {"lr": 0.1, "layers": [1, 2.0, None, "x"], "deep": {"a": True}}):
        statistic = Statistic("e1", "j1", 3, report, 12.5, in_force)
        assert statistic_from_row(statistic_to_row(statistic)) == statistic
