"""Tests of sequences: their values, conventions, equality up to a position, and errors."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard.sequences import (
    Chain,
    ConstantSequence,
    Cosine,
    CosineWarmRestarts,
    Cyclic,
    Exponential,
    Linear,
    MultiStep,
    Paced,
    Piecewise,
    Polynomial,
    Schedule,
    Sequence,
    SequenceError,
    Step,
    Warmup,
    common_prefix,
    read,
)
from hopyard.sequences.functions import Function
from tests.unit.sequences.strategies import sequences

pytestmark = pytest.mark.quick

UNTIL = 40


def test_a_warm_up_reaches_its_target_at_its_last_unit() -> None:
    assert [Warmup(5, 0.1).value(at) for at in range(7)] == [0.02, 0.04, 0.06, 0.08, 0.1, 0.1, 0.1]


def test_milestones_count_from_the_start_and_other_clocks_from_the_end_of_the_warm_up() -> None:
    steps = Warmup(5, 0.1, then=MultiStep(milestones=(90,), gamma=0.1))
    assert [steps.value(at) for at in (89, 90)] == [0.1, 0.01]
    exponential = Warmup(5, 0.1, then=Exponential(gamma=0.95))
    assert [exponential.value(at) for at in (4, 5, 6)] == [0.1, 0.1, 0.095]
    restarts = Warmup(10, 0.1, then=CosineWarmRestarts(t_0=20))
    assert [restarts.value(at) for at in (10, 20, 30)] == [0.1, 0.05, 0.1]


def test_values_are_computed_from_the_written_decimals_and_rounded_once() -> None:
    assert [Step(0.1, 1, 0.1).value(at) for at in range(4)] == [0.1, 0.01, 0.001, 0.0001]
    assert Exponential(0.1, 0.1).value(300) == 1e-301
    assert Linear(0.3, 0.0, 3).value(1) == 0.2


def test_whole_values_are_ints_and_anything_json_may_be_a_value() -> None:
    batch = MultiStep(128, (40,), 2)
    assert [(batch.value(at), type(batch.value(at))) for at in (39, 40)] == [(128, int), (256, int)]
    optimizer = MultiStep(milestones=(3,), values=("adam", "sgd"))
    assert [optimizer.value(at) for at in (2, 3)] == ["adam", "sgd"]


def test_a_slower_clock_ticks_once_in_per_units() -> None:
    slow = Paced(Exponential(1.0, 0.5), 100)
    assert [slow.value(at) for at in (0, 99, 100, 250)] == [1, 1, 0.5, 0.25]
    assert slow.next_change(0, 1000) == 100


def test_piecewise_is_linear_between_its_points() -> None:
    line = Piecewise(((2, 1.0), (4, 2.0), (8, 0.0)))
    assert [line.value(at) for at in range(10)] == [1, 1, 1, 1.5, 2, 1.5, 1, 0.5, 0, 0]


SAME = [
    (Step(0.1, 10, 0.1), MultiStep(milestones=(10, 20, 30), values=(0.1, 0.01, 0.001, 0.0001))),
    (MultiStep(0.1, (10, 20), 0.1), MultiStep(milestones=(10, 20), values=(0.1, 0.01, 0.001))),
    (Step(0.1, 1, 0.9), Exponential(0.1, 0.9)),
    (Exponential(0.1, 1), ConstantSequence(0.1)),
    (Polynomial(0.1, 40, 1), Linear(0.1, 0, 40)),
    (Polynomial(0.1, 40, 1), Piecewise(((0, 0.1), (40, 0)))),
    (Cosine(0.1, 20), CosineWarmRestarts(0.1, 20)),
    (Cosine(0.1, 20, 0.1), ConstantSequence(0.1)),
    (Cyclic(0, 1, 20), Piecewise(((0, 0), (20, 1), (40, 0)))),
    (Chain((Exponential(0.1, 0.9), Exponential(0.0729, 0.9)), (3,)), Exponential(0.1, 0.9)),
    (MultiStep(milestones=(5, 9), values=(1, 1, 1)), ConstantSequence(1.0)),
    (Warmup(10, 1.0), Linear(0.1, 1.1, 10)),
    (Paced(MultiStep(1, (3,), 2), 10), MultiStep(1, (30,), 2)),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=str)
def test_what_is_written_differently_is_equal_as_far_as_it_is(one: Sequence, other: Sequence) -> None:
    upto = 20 if isinstance(one, Cosine) and one.eta_min == 0 else 10 if isinstance(one, Warmup) else UNTIL
    assert common_prefix(one, other, upto) == upto
    assert one.prefix_key(upto) == other.prefix_key(upto)


def test_what_agrees_at_some_positions_is_not_equal() -> None:
    # Both have 0.1 at position 0 and 0.05 at position 10.
    assert common_prefix(Linear(0.1, 0, 20), Cosine(0.1, 20), 20) == 1
    assert Linear(0.1, 0, 20).prefix_key(20) != Cosine(0.1, 20).prefix_key(20)
    assert common_prefix(ConstantSequence(1), ConstantSequence(True), 5) == 0


def test_long_sequences_are_compared_by_their_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Warmup(3000, 5e-5, then=Exponential(gamma=0.99999))
    other = Chain((Piecewise(((2999, 5e-5),)), Exponential(1, 0.5)), (10**6,))
    assert (
        common_prefix(
            one, Warmup(3000, 5e-5, then=Chain((Exponential(5e-5, 0.99999), ConstantSequence(1)), (10**9,))), 10**9
        )
        == 10**9
    )
    assert common_prefix(one, other, 10**9) == 0


@pytest.mark.merge
@settings(max_examples=300, deadline=None)
@given(sequences(), sequences(), st.integers(0, UNTIL))
def test_equality_is_equality_of_all_values_so_far(one: Sequence, other: Sequence, position: int) -> None:
    mine, theirs = ([sequence.value(at) for at in range(UNTIL)] for sequence in (one, other))
    agreed = next((at for at, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b), UNTIL)
    assert common_prefix(one, other, UNTIL) == common_prefix(other, one, UNTIL) == agreed
    assert (one.prefix_key(position) == other.prefix_key(position)) == (agreed >= position)


@pytest.mark.merge
@settings(max_examples=150, deadline=None)
@given(sequences())
def test_a_sequence_is_pure_and_survives_its_written_form(sequence: Sequence) -> None:
    values = [sequence.value(at) for at in range(UNTIL)]
    again = read(json.loads(json.dumps(sequence.written())))
    assert again == sequence
    assert again.written() == sequence.written()
    assert [again.value(at) for at in reversed(range(UNTIL))] == values[::-1]
    assert [v for p in sequence.pieces(UNTIL) for v in map(p.function.value, range(p.start, p.stop))] == values


@pytest.mark.merge
@settings(max_examples=100, deadline=None)
@given(sequences(), st.integers(0, UNTIL - 1))
def test_the_next_change_is_where_the_value_changes(sequence: Sequence, position: int) -> None:
    values = [sequence.value(at) for at in range(UNTIL)]
    here = range(position + 1, UNTIL)
    assert sequence.next_change(position, UNTIL) == next((at for at in here if values[at] != values[position]), UNTIL)


@pytest.mark.merge
@settings(max_examples=100, deadline=None)
@given(sequences(), st.lists(st.integers(0, UNTIL - 1), min_size=1, max_size=8))
def test_a_schedule_says_the_same_in_any_order(sequence: Sequence, positions: list[int]) -> None:
    schedule = Schedule({"lr": sequence.written()})
    for position in positions:
        assert schedule.next_change(position, UNTIL) == sequence.next_change(position, UNTIL)
        assert schedule.at(position) == {"lr": sequence.value(position)}


def test_a_schedule_goes_on_from_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[int]()
    spans = Step.spans

    def counted(self: Step, origin: int) -> Iterator[tuple[int, Function]]:
        for start, function in spans(self, origin):
            read.append(start)
            yield start, function

    monkeypatch.setattr(Step, "spans", counted)
    steps, units = Step(1.0, 3, 0.999), Step(1.0, 5, 0.99)
    schedule = Schedule({"lr": Paced(steps, "step").written(), "g": {"x": units.written()}})
    read.clear()
    for position in range(2000):
        assert schedule.next_change(position, position + 8) <= position + 5
        assert schedule.at(position, 3 * position)["lr"] < 1 or position == 0
    assert len(read) < 2000 + 2000 // 5 + 10


@pytest.mark.merge
def test_what_has_stepped_often_is_as_exact_as_its_written_values() -> None:
    often = Step(0.1, 2, 0.9)
    assert [often.value(at) for at in (0, 127, 130, 2001, 9999)] == [
        Exponential(0.1, 0.9).value(at // 2) for at in (0, 127, 130, 2001, 9999)
    ]
    assert Step(1, 2, 0.1).value(10**6) == 0
    milestones = tuple(range(1, 200))
    assert common_prefix(MultiStep(0.1, milestones, 0.9), Exponential(0.1, 0.9), 10**3) == 200
    values = tuple(Exponential(0.1, 0.9).value(at) for at in range(200))
    slow, written = MultiStep(0.1, milestones, 0.9), MultiStep(milestones=milestones, values=values)
    assert common_prefix(slow, written, 10**12) == 10**12
    assert slow.prefix_key(10**12) == written.prefix_key(10**12)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"exponental": {}}, "unknown kind exponental (did you mean exponential?)"),
        ({"exponential": {"initial": 0.1}}, "exponential.gamma: is missing"),
        ({"exponential": {"initial": 0.1, "gama": 1}}, "exponential.gama: no such field (did you mean gamma?)"),
        ({"exponential": {"gamma": 0.9}}, "exponential.initial: is missing"),
        ({"exponential": {"initial": "x", "gamma": 0.9}}, 'exponential.initial: needs a finite number, found "x"'),
        (
            {"multi_step": {"milestones": [40, 30], "initial": 1, "gamma": 2}},
            "multi_step.milestones: needs whole numbers",
        ),
        ({"multi_step": {"milestones": [40], "values": [1]}}, "multi_step.values: needs 2 values"),
        ({"warmup": {"duration": 5, "target": 1, "then": {"cosine": {"t_max": 0}}}}, "warmup.then.cosine.t_max: needs"),
        ({"chain": {"sequences": [1, {"step": 3}], "milestones": [4]}}, "chain.sequences[1].step: needs its fields"),
        ({"cyclic": {"base": 0, "max": 1, "step_size_up": 3, "mode": "up"}}, "cyclic.mode: needs one of triangular"),
        ([1, 2], "needs one kind with its fields"),
    ],
)
def test_what_is_wrong_is_named(written: Any, message: str) -> None:
    with pytest.raises(SequenceError) as caught:
        read({"sequence": written})
    assert message in str(caught.value)


@pytest.mark.parametrize("per", [0, 1.5, "epoch", True])
def test_a_wrong_clock_is_refused(per: object) -> None:
    with pytest.raises(SequenceError, match="per: needs step, or a whole number"):
        read({"sequence": {"constant": 1}, "per": per})


def test_steps_and_units_are_never_equal_here() -> None:
    one, other = (Paced(Exponential(0.1, gamma), "step") for gamma in (0.9, 0.8))
    assert common_prefix(one, other, 10) == 0
    assert common_prefix(one, one, 10) == 10


def test_values_beyond_a_double_are_named() -> None:
    with pytest.raises(SequenceError, match="beyond what a double can hold"):
        Exponential(1, 10).value(400)


def test_short_texts() -> None:
    texts = [
        str(Warmup(5, 0.1, then=Exponential(gamma=0.95))),
        str(ConstantSequence(0.1)),
        str(Paced(Cosine(1, 5), 10)),
    ]
    assert texts == [
        "warmup(duration=5, target=0.1, then=exponential(initial=0.1, gamma=0.95))",
        "0.1",
        "cosine(initial=1, t_max=5) per 10",
    ]
    assert len(set(itertools.chain(texts))) == 3
