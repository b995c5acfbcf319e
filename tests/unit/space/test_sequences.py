"""Tests of sequences in a space: fixed ones, templates with parameters inside, and a choice of several."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hopyard._net.rpc.values import hyperparameters_from_proto, hyperparameters_to_proto
from hopyard.errors import InvalidInput
from hopyard.sequences import (
    ConstantSequence,
    Exponential,
    GridSearchSpace,
    MultiStep,
    Sequence,
    SequenceError,
    read,
    sequences_of,
    values_at,
)
from hopyard.space import JsonValue, ParameterError, Sequences, Space, SpaceError, sequence_parameter
from hopyard_hpgen.generators.grid import GridGenerator
from hopyard_hpgen.generators.random import RandomGenerator
from hopyard_hpgen.generators.sobol import SobolGenerator

pytestmark = pytest.mark.quick

WARM: JsonValue = {
    "warmup": {
        "duration": 5,
        "target": {"choice": [0.1, 0.2]},
        "then": {"exponential": {"gamma": {"choice": [0.9, 1]}}},
    }
}


def test_a_fixed_sequence_is_written_in_full() -> None:
    space = Space.from_dict({"lr": {"sequence": {"warmup": {"duration": 5, "target": 0.1}}}})
    (found,) = space.grid()
    then = {"constant": 0.1}
    assert found == {"lr": {"sequence": {"warmup": {"duration": 5, "target": 0.1, "then": then, "start": 0.0}}}}
    assert space.size == 1
    assert hyperparameters_from_proto(hyperparameters_to_proto(found)) == found


def test_fields_may_be_parameters_and_a_list_is_a_choice() -> None:
    space = Space.from_dict({"lr": {"sequence": [WARM, {"constant": 0.1}]}})
    grid = [str(read(found["lr"])) for found in space.grid()]  # type: ignore[arg-type]
    assert len(grid) == space.size == 5
    assert grid[0] == "warmup(duration=5, target=0.1, then=exponential(initial=0.1, gamma=0.9))"
    assert grid[-1] == "0.1"
    assert {space.problems({"lr": space["lr"].at(index)}) == [] for index in range(5)} == {True}


def test_what_is_drawn_is_in_the_space_and_other_things_are_not() -> None:
    space = Space.from_dict(
        {"lr": {"sequence": {"exponential": {"initial": {"loguniform": [0.01, 1]}, "gamma": 0.9}}, "per": "step"}}
    )
    for seed in range(50):
        assert space.contains(space.sample(random.Random(seed)))
    right = read({"sequence": {"exponential": {"initial": 0.5, "gamma": 0.9}}, "per": "step"}).written()
    assert space.contains({"lr": right})
    for wrong in (
        {**right, "per": 2},
        Exponential(2, 0.9).written(),
        {**Exponential(2, 0.9).written(), "per": "step"},
        {**Exponential(0.5, 0.8).written(), "per": "step"},
        0.5,
    ):
        assert not space.contains({"lr": wrong})


def test_a_sequence_may_stand_in_a_choice() -> None:
    space = Space.from_dict({"bs": {"choice": [128, MultiStep(128, (40,), 2).written()]}})
    assert [values_at(found, 50) for found in space.grid()] == [{"bs": 128}, {"bs": 256}]


def test_drawn_fields_that_do_not_fit_together_are_drawn_again() -> None:
    milestones: list[JsonValue] = [{"int": [1, 9]}, {"int": [1, 9]}]
    parameter = Sequences(({"multi_step": {"initial": 1, "milestones": milestones, "gamma": 0.5}},))
    for seed in range(50):
        assert parameter.contains(parameter.sample(random.Random(seed)))
    assert parameter.size == 36  # pairs in ascending order


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"sequence": {"exponental": {}}}, "space.lr.sequence: unknown kind exponental (did you mean exponential?)"),
        ({"sequence": {"exponential": {"initial": 1, "gama": 2}}}, "space.lr.sequence.exponential.gama: no such field"),
        (
            {"sequence": [0.1, {"exponential": {"initial": 1, "gamma": {"choice": [0]}}}]},
            "space.lr.sequence[1].exponential.gamma: needs a finite number above 0, found 0",
        ),
        ({"sequence": {"exponential": {"initial": {"loguniform": [1, 0]}, "gamma": 1}}}, "loguniform needs low < high"),
        ({"sequence": []}, "sequence needs at least one sequence"),
        ({"sequence": 0.1, "per": 0}, "space.lr.sequence.per: needs step, or a whole number of units"),
        ({"choice": [{"sequence": {"step": {}}}]}, "sequence: step.step_size: is missing"),
        (
            {"choice": [{"sequence": {"exponential": {"initial": {"uniform": [0, 1]}, "gamma": 1}}}]},
            "write sequences with parameters in a list",
        ),
    ],
)
def test_what_is_wrong_is_named(written: Any, message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        Space.from_dict({"lr": written})
    assert message in str(caught.value)


def test_a_continuous_field_needs_a_division_for_a_grid() -> None:
    space = Space.from_dict({"lr": {"sequence": {"exponential": {"initial": {"loguniform": [0.01, 1]}, "gamma": 0.9}}}})
    with pytest.raises(SpaceError, match=r"space\.lr: exponential\.initial: loguniform needs count"):
        list(space.grid())
    with pytest.raises(ParameterError, match="cannot be counted"):
        space["lr"].at(0)


COUNTED: list[tuple[JsonValue, ...]] = [
    (WARM, {"constant": {"choice": [1, 2, None]}}),
    (0.1, {"multi_step": {"milestones": {"choice": [[3], [4]]}, "values": [1, 2]}}),
    # If values or templates can be equal, the number of different sequences is counted.
    (0.1, {"constant": {"choice": [0.1, 0.2]}}),
    ({"multi_step": {"initial": 1, "milestones": [{"int": [1, 4]}, {"int": [1, 4]}], "gamma": {"choice": [0.5, 2]}}},),
    ({"multi_step": {"milestones": {"choice": [[3], [4, 5]]}, "values": {"choice": [[1, 2], [1, 2, 3]]}}},),
    ({"step": {"initial": 1, "step_size": {"int": [0, 3]}, "gamma": {"choice": [0.5, 0]}}},),
    (
        {
            "cyclic": {
                "base": 0,
                "max": 1,
                "step_size_up": 3,
                "mode": {"choice": ["triangular", "exp_range"]},
                "gamma": 0.9,
            }
        },
    ),
]


@pytest.mark.parametrize("templates", COUNTED)
def test_sequences_are_numbered_as_they_are_listed(templates: tuple[JsonValue, ...]) -> None:
    parameter = Sequences(templates)
    size = parameter.size
    assert size is not None
    listed = [parameter.at(index) for index in range(size)]
    assert listed == parameter.grid()
    assert [parameter.index(one) for one in listed] == list(range(size))
    with pytest.raises(IndexError):
        parameter.at(size)


def test_counting_makes_no_sequence_for_each_combination(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[object]()

    def counted(written: Any) -> Sequence:
        made.append(written)
        return read(written)

    monkeypatch.setattr(sequence_parameter, "read", counted)
    values: list[JsonValue] = [number / 100 for number in range(1, 51)]
    then: JsonValue = {"exponential": {"gamma": {"choice": values}}}
    parameter = Sequences(({"warmup": {"duration": {"int": [1, 4]}, "target": {"choice": values}, "then": then}},))
    assert parameter.size == 4 * 50 * 50
    parameter.at(9999)
    assert len(made) < 150


def test_generators_propose_sequences_or_say_that_they_cannot() -> None:
    countable = Space.from_dict({"lr": {"sequence": [WARM, {"constant": 0.1}]}, "x": {"choice": [1, 2]}})
    endless = Space.from_dict({"lr": {"sequence": {"linear": {"start": {"uniform": [0, 1]}, "total_iters": 5}}}})
    for made in (GridGenerator(countable, 0), RandomGenerator(countable, 0), SobolGenerator(countable, 0)):
        found = [made.create(str(index), index) for index in range(10)]
        assert all(one is not None and countable.contains(one) for one in found)
        assert len({str(one) for one in found}) == 10
    proposed = RandomGenerator(endless, 0).create("0", 0)
    assert proposed is not None
    assert endless.contains(proposed)
    with pytest.raises(SpaceError, match="sobol needs sequences that can be counted"):
        SobolGenerator(endless, 0)


def test_optuna_takes_sequences_as_alternatives() -> None:
    pytest.importorskip("optuna")
    from hopyard_hpgen.generators.optuna_samplers import TpeGenerator

    countable = Space.from_dict({"lr": {"sequence": [WARM, {"constant": 0.1}]}})
    made = TpeGenerator(countable, 0)
    found = [made.create(str(index), index) for index in range(6)]
    assert sum(one is None for one in found) == 1
    assert {str(one) for one in found if one} == {str(one) for one in countable.grid()}
    with pytest.raises(SpaceError, match="sequences that can be counted"):
        TpeGenerator(Space.from_dict({"lr": {"sequence": {"constant": {"uniform": [0, 1]}}}}), 0)


def test_a_grid_in_python_with_a_filter() -> None:
    grid = GridSearchSpace(
        {"lr": [ConstantSequence(0.1), Exponential(0.1, 0.95)], "bs": [128, MultiStep(128, (40,), 2)]},
        filter=lambda found: found["bs"].value(50) == 128 or found["lr"].value(1) == 0.1,
    )
    assert len(grid) == 3
    space = Space.from_dict(grid.to_dict())
    generator: dict[str, Any] = dict(grid.generator)
    assert generator.pop("name") == "grid"
    made = GridGenerator(space, 0, **generator)
    proposed = [made.create(str(index), index) for index in range(4)]
    kept = [values_at(found, 50) for found in grid]
    assert proposed[3] is None
    assert [values_at(one, 50) for one in proposed if one is not None] == kept
    assert kept == [{"lr": 0.1, "bs": 128}, {"lr": 0.1, "bs": 256}, {"lr": Exponential(0.1, 0.95).value(50), "bs": 128}]
    with pytest.raises(SequenceError, match="keeps none of 2"):
        GridSearchSpace({"x": [1, 2]}, filter=lambda _: False)
    with pytest.raises(SequenceError, match="x: needs a list of values"):
        GridSearchSpace({"x": []})


@pytest.mark.parametrize("points", [[], [0, 0], [4], [-1], [True], "all"])
def test_wrong_points_are_refused(points: object) -> None:
    with pytest.raises(InvalidInput, match="grid needs points as a list of different whole numbers from 0 to 3"):
        GridGenerator(Space.from_dict({"x": {"choice": [1, 2, 3, 4]}}), 0, points=points)  # type: ignore[arg-type]


def test_a_constraint_asks_for_the_value_at_a_position() -> None:
    written = {"lr": {"choice": [0.1, Exponential(0.1, 0.5).written()]}, "bs": {"choice": [128, 256]}}
    space = Space.from_dict(written).constrained(["at(lr, 2) >= 0.1 or at(bs, 0) == 128"])
    found = [values_at(one, 2) for one in space.grid()]
    assert found == [{"lr": 0.1, "bs": 128}, {"lr": 0.1, "bs": 256}, {"lr": 0.025, "bs": 128}]
    refused = Space.from_dict(written).constrained(["at(lr, -1) > 0"])
    assert "at needs a position, a whole number from 0 on, found -1" in refused.problems({"lr": 0.1, "bs": 128})[0]


def test_values_at_a_position_reach_into_groups() -> None:
    configuration = {"a": 1, "g": {"lr": Exponential(1, 0.5).written(), "b": [2]}}
    assert values_at(configuration, 2) == {"a": 1, "g": {"lr": 0.25, "b": [2]}}
    assert sequences_of(configuration) == {"g.lr": Exponential(1, 0.5)}
    with pytest.raises(SequenceError, match=r"g\.lr\.step\.step_size: is missing"):
        sequences_of({"g": {"lr": {"sequence": {"step": {"initial": 1}}}}})
