"""Tests of the Sobol generator."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter

import pytest
from scipy.stats import qmc

from hopyard.space import Choice, Constant, IntUniform, LogUniform, Space, SpaceError, Uniform, When, canonical_json
from hopyard_hpgen.generators.sobol import SobolGenerator, scrambled

pytestmark = pytest.mark.quick

SQUARE = Space({"x": Uniform(0.0, 1.0), "c": Constant(3), "y": LogUniform(1.0, 16.0)})


def proposals(space: Space, count: int, seed: int = 1) -> list[dict[str, object]]:
    generator = SobolGenerator(space, seed)
    found = [generator.create(str(ordinal), ordinal) for ordinal in range(count)]
    return [dict(configuration) for configuration in found if configuration is not None]


def test_the_points_below_are_those_of_the_textbook() -> None:
    # The first eight points of Joe and Kuo's sequence in two dimensions, in the Gray-code order of Antonov and Saleev.
    points = qmc.Sobol(2, scramble=False, bits=30).random(8).tolist()
    assert points == [
        [0.0, 0.0],
        [0.5, 0.5],
        [0.75, 0.25],
        [0.25, 0.75],
        [0.375, 0.375],
        [0.875, 0.875],
        [0.625, 0.125],
        [0.125, 0.625],
    ]


def test_scrambling_keeps_every_binary_box() -> None:
    # Scrambled coordinates share exactly as many first bits as the original ones.
    key = b"a key"
    cells = range(0, 1 << 30, 1 << 25)  # 32 cells
    for bits in range(1, 6):
        boxes = {cell >> (30 - bits): int(scrambled(cell, key) * 2**bits) for cell in cells}
        assert sorted(boxes.values()) == list(range(2**bits))
        assert all(boxes[cell >> (30 - bits)] == int(scrambled(cell, key) * 2**bits) for cell in cells)


def test_values_by_hand() -> None:
    # Pinned: other values would break the recovery of recorded experiments.
    assert [(round(float(p["x"]), 9), round(float(p["y"]), 9)) for p in proposals(SQUARE, 4)] == PINNED  # type: ignore[arg-type]


PINNED = [
    (0.315976638, 11.690839493),
    (0.663853149, 1.483566914),
    (0.946383326, 6.688166501),
    (0.07129025, 3.441760505),
]


@pytest.mark.parametrize("seed", [0, 1, 99])
def test_each_power_of_two_fills_every_box_of_that_size(seed: int) -> None:
    points = [(float(p["x"]), math.log(float(p["y"]), 16)) for p in proposals(SQUARE, 64, seed)]  # type: ignore[arg-type]
    for across in range(7):  # 64 boxes: 2^across columns, 2^(6 - across) rows
        boxes = Counter((int(x * 2**across), int(y * 2 ** (6 - across))) for x, y in points)
        assert len(boxes) == 64


def test_choices_and_integers_are_used_evenly() -> None:
    space = Space({"x": Uniform(0, 1), "kind": Choice(("a", "b", "c", "d")), "n": IntUniform(1, 8)})
    found = proposals(space, 64)
    assert set(Counter(p["kind"] for p in found).values()) == {16}
    assert set(Counter(p["n"] for p in found).values()) == {8}


def test_a_small_space_is_exhausted_without_repetition() -> None:
    space = Space({"a": IntUniform(1, 5), "b": When(Choice((1, 2, 3)), {"a": [1, 2]})})
    found = proposals(space, 20)
    assert len(found) == len({canonical_json(p) for p in found}) == space.size == 9


def test_another_parameter_behind_leaves_the_others_alone() -> None:
    larger = Space({**SQUARE.entries, "z": Uniform(0, 1)})
    assert [{"x": p["x"], "y": p["y"], "c": 3} for p in proposals(larger, 16)] == proposals(SQUARE, 16)


def test_a_space_without_a_dimension() -> None:
    assert proposals(Space({"a": Constant(1)}), 3) == [{"a": 1}]


@pytest.mark.merge
def test_too_many_dimensions_are_refused() -> None:
    with pytest.raises(SpaceError, match="sobol takes at most 21201 parameters, found 21202"):
        SobolGenerator(Space({f"x{n}": Uniform(0, 1) for n in range(21202)}), 1)


@pytest.mark.merge
def test_every_process_gives_the_same() -> None:
    program = (
        "from tests.unit.hpgen.test_sobol import *\nfrom hopyard.space import canonical_json\n"
        "print(canonical_json(proposals(SQUARE, 8)))"
    )
    out = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    assert out == [canonical_json(proposals(SQUARE, 8))] * 2
