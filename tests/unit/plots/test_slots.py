"""Tests of the plots of a policy's classes of jobs: curves by class, and the slots that promising jobs desire and deserve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.errors import InvalidInput, NotFound
from hopyard.plots import JobEnd, figure, gather, read
from hopyard.plots.data.slots import Slots, moment
from hopyard_policies.pop import divide
from hopyard_simulator import CurveWorkload, simulate
from tests.unit.plots.test_data import curve, search

CHANCES = st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.5, 1.0])), max_size=12)


@given(chances=CHANCES, slots=st.integers(0, 20), per_job=st.integers(1, 3))
def test_slots_are_divided_as_pop_divides_them(chances: list[float], slots: int, per_job: int) -> None:
    shown, divided = moment(0.0, slots, sorted(chances, reverse=True), per_job), divide(chances, slots, per_job)
    assert (shown.promising, shown.threshold, shown.effective) == (
        divided.promising,
        divided.threshold,
        divided.effective,
    )
    assert shown.desired == tuple((p, desired) for p, desired, _ in divided.curve)


def test_an_early_moment_and_a_late_one() -> None:
    known = tuple((10.0 * k, 4, (k / 10,)) for k in range(10))
    slots: Slots = gather([search(confidences=known)], "slots")
    assert [one.time for one in slots.moments] == [20.0, 80.0]
    alone: Slots = gather([search(confidences=known[:1])], "slots")
    assert [one.time for one in alone.moments] == [0.0]
    with pytest.raises(NotFound, match="pop does"):
        gather([search(confidences=())], "slots")
    with pytest.raises(InvalidInput, match='has no "confidences", which --kind slots shows'):
        gather([search()], "slots")


def test_slots_are_drawn_by_hand() -> None:
    """Check confidences 0.9, 0.5, 0.5, 0.1 on 4 slots: desired are 1, 3 and 4 slots, deserved 3.6, 2 and 0.4, effective 2 (at 0.5)."""
    axes = figure(gather([search(confidences=((0.0, 4, (0.9, 0.5, 0.5, 0.1)),))], "slots")).axes[0]
    lines: dict[str, Any] = {str(line.get_gid()): line for line in axes.lines}
    assert lines["effective"].get_xydata().tolist() == [[0.5, 2.0]]
    assert lines["deserved"].get_xydata().tolist() == [[0.0, 0.0], [1.0, 4.0]]
    steps = lines["desired"]
    assert steps.get_xydata().tolist() == [[0.0, 4.0], [0.1, 4.0], [0.5, 3.0], [0.9, 1.0], [1.0, 0.0]]
    assert steps.get_drawstyle() == "steps-pre"  # between 0.1 and 0.5, three jobs have more
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["desired", "deserved", "2 promising"]


def test_each_stretch_of_a_curve_is_of_the_class_that_the_job_had_then() -> None:
    curves = (curve("1", 0.1, 0.2, 0.3, 0.4, end=JobEnd.TERMINATED), curve("2", 0.5, 0.6), curve("3"))
    # Reports come at 10, 20, 30 and 40. A label set at the time of a report applies from the next part of the curve on.
    labels = {"1": ((10.0, 0.7), (35.0, 0.0)), "3": ((5.0, 0.0),)}
    data = gather([search(curves=curves, labels=labels)], "curves")
    assert data.promising is not None
    assert [how.tolist() for how in data.promising] == [[0, 1, 1, 0], [0, 0], []]
    axes = figure(data).axes[0]
    drawn: dict[str, Any] = {str(one.get_gid()): one for one in axes.get_children()}
    assert [piece.tolist() for piece in drawn["promising"].get_segments()] == [[[1, 0.1], [2, 0.2], [3, 0.3]]]
    assert [piece.tolist() for piece in drawn["opportunistic"].get_segments()] == [
        [[3, 0.3], [4, 0.4]],
        [[1, 0.5], [2, 0.6]],
    ]
    assert drawn["terminated ends"].get_xydata().tolist() == [[4.0, 0.4]]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["1 promising", "1 opportunistic only", "1 terminated"]


def test_without_a_promising_job_curves_are_shown_by_how_they_ended() -> None:
    data = gather([search(curves=(curve("1", 0.1),), labels={"1": ((1.0, 0.0),)})], "curves")
    assert data.promising is None


def test_over_time_a_wait_is_a_line_of_its_own() -> None:
    waited = curve("1", 0.1, 0.2, 0.3, 0.4)
    waited = type(waited)(waited.job, waited.end, waited.times, waited.positions, waited.values, (2,))
    axes = figure(gather([search(curves=(waited,), labels={"1": ((10.0, 0.7),)})], "curves", "time")).axes[0]
    drawn: dict[str, Any] = {str(one.get_gid()): one for one in axes.get_children()}
    assert [len(piece) for piece in drawn["promising"].get_segments()] == [2, 2]
    assert np.array(drawn["waits"].get_segments()).tolist() == [[[20, 0.2], [30, 0.3]]]


def test_a_simulation_with_details_tells_labels_and_confidences(tmp_path: Path) -> None:
    def score(job: Any, position: int) -> float:
        return float(job["x"] * (1 - 0.8**position))

    workload = CurveWorkload(score, [{"x": x} for x in (0.2, 0.9, 0.5, 0.95, 0.4, 0.8)], 20)
    given = {"policy": "pop", "slots": 4, "target": 0.93, "parameters": {"evaluation_boundary": 4, "slots_per_job": 2}}
    plain = simulate(workload, **given)  # type: ignore[arg-type]
    assert (plain.labels, plain.confidences) == (None, None)
    result = simulate(workload, **given, details=True)  # type: ignore[arg-type]
    assert result.time_to_target == plain.time_to_target
    (tmp_path / "r.json").write_text(json.dumps(result.plain()))
    (found,) = read(tmp_path / "r.json")
    assert found.slots_per_job == 2
    assert found.labels is not None
    assert any(label > 0 for given in found.labels.values() for _, label in given)
    assert found.confidences
    for _, slots, chances in found.confidences:
        assert 1 <= slots <= 4
        assert list(chances) == sorted(chances, reverse=True)
    assert gather([found], "curves").promising is not None


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("confidences", [[1.0, 2]], "a time, a number of slots, and a list of chances"),
        ("confidences", [[1.0, 2, [1.5]]], r"a chance lies in 0\.\.1"),
        ("labels", {"1": [[1.0]]}, "must be a list of 2 numbers"),
        ("labels", [1], "an object with a list for each job"),
        ("parameters", {"slots_per_job": "two"}, "a whole number"),
    ],
)
def test_what_is_wrong_in_a_result_is_said(tmp_path: Path, field: str, value: object, said: str) -> None:
    (tmp_path / "r.json").write_text(json.dumps({"policy": "pop", field: value}))
    with pytest.raises(InvalidInput, match=said):
        read(tmp_path / "r.json")
