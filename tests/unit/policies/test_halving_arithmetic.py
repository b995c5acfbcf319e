"""Tests of the computed rungs and brackets of successive halving, with examples by hand and numbers of the papers."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard_policies.halving.brackets import average, divided, hyperband, needed, shares, standard
from hopyard_policies.halving.rungs import extended, least, positions

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("R", "r", "eta", "rungs"),
    [
        (256, 1, 4, (1, 4, 16, 64, 256)),
        (9, 1, 3, (1, 3, 9)),  # figure 1
        (15, 1, 4, (1, 4, 15)),
        (60, 1, 4, (1, 4, 16, 60)),
        (120, 1, 4, (1, 4, 16, 64, 120)),
        (4, 1, 4, (1, 4)),
        (1, 1, 4, (1,)),
        (5, 9, 4, (5,)),
        (125, 1, 5, (1, 5, 25, 125)),  # floor(log(125) / log(5)) is 2 in floating point
        (10, Fraction(5, 2), 2, (3, 5, 10)),
        (30_000, Fraction(30_000, 256), 4, (117, 469, 1875, 7500, 30_000)),
    ],
)
def test_positions_of_rungs(R: int, r: int | Fraction, eta: int, rungs: tuple[int, ...]) -> None:
    assert positions(R, r, eta) == rungs


@pytest.mark.parametrize(
    ("eta", "exponent"), [(eta, exponent) for eta in (2, 3, 4, 5, 10) for exponent in range(1, 40)]
)
def test_a_power_of_eta_is_its_own_top_rung(eta: int, exponent: int) -> None:
    """Check powers for which floating-point logarithms are off by one, such as 5^3 and 10^15."""
    found = positions(eta**exponent, 1, eta)
    assert found == tuple(eta**k for k in range(exponent + 1))


@pytest.mark.merge
@given(R=st.integers(1, 10**7), eta=st.integers(2, 10), rungs=st.integers(1, 8))
def test_default_ladder_rises_to_R_in_at_most_so_many_rungs(R: int, eta: int, rungs: int) -> None:
    found = positions(R, least(R, eta, rungs), eta)
    assert found[-1] == R
    assert len(found) <= rungs
    assert all(low < high for low, high in pairwise(found))
    assert found[0] >= 1
    if eta ** (rungs - 1) <= R:
        assert len(found) == rungs


def test_an_extended_ladder_keeps_its_rungs() -> None:
    assert extended((1, 4, 15), 60, 4) == (1, 4, 15, 60)
    assert extended((1, 4), 6, 4) == (1, 4, 6)
    assert extended((1, 4, 16), 1024, 4) == (1, 4, 16, 64, 256, 1024)
    assert extended((1, 4, 16), 10, 4) == (1, 4, 16)


def test_impossible_ladders_are_refused() -> None:
    for arguments in ((0, 1, 4), (4, 0, 4), (4, 1, 1)):
        with pytest.raises(ValueError, match="needed are R >= 1, r >= 1, eta >= 2"):
            positions(*arguments)


def test_average_budgets_are_those_of_the_paper() -> None:
    assert [average(rungs, 4) for rungs in (5, 4, 3)] == [Fraction(5, 256), Fraction(4, 64), Fraction(3, 16)]
    inverse = [1 / average(rungs, 4) for rungs in (5, 4, 3)]
    assert [int(1000 * part / sum(inverse)) for part in inverse] == [705, 220, 73]  # 70.5 %, 22.1 %, 7.1 % in the paper


@pytest.mark.parametrize(
    ("n", "widths"),
    [
        (0, (0, 0, 0)),
        (1, (1, 0, 0)),
        (2, (1, 1, 0)),
        (3, (1, 1, 1)),
        (4, (2, 1, 1)),
        (16, (12, 3, 1)),
        (100, (71, 22, 7)),
        (256, (182, 56, 18)),
        (1000, (707, 220, 73)),
    ],
)
def test_configurations_are_divided_by_the_inverse_average_budget(n: int, widths: tuple[int, ...]) -> None:
    assert shares(n, (5, 4, 3), 4) == widths


@pytest.mark.merge
@given(n=st.integers(0, 10_000), rungs=st.integers(1, 7), brackets=st.integers(1, 7), eta=st.integers(2, 6))
def test_every_bracket_gets_its_part(n: int, rungs: int, brackets: int, eta: int) -> None:
    counts = [rungs - s for s in range(min(brackets, rungs))]
    widths = shares(n, counts, eta)
    assert sum(widths) == n
    assert min(widths) >= (n >= len(counts))
    assert list(widths[1:]) == sorted(widths[1:], reverse=True)


def test_the_standard_brackets() -> None:
    assert [standard(rungs) for rungs in (1, 2, 3, 4, 5)] == [(0,), (0,), (0, 1), (0, 1, 2), (0, 1, 2)]


def test_the_brackets_of_hyperband() -> None:
    """Check the brackets of table 1 of the Hyperband paper (R = 81, eta 3), and the ASHA paper's five brackets with eta 4."""
    assert hyperband(5, 3) == (81, 34, 15, 8, 5)
    assert hyperband(5, 4) == (256, 80, 27, 10, 5)


def test_what_brings_one_to_the_top() -> None:
    assert [needed(rungs, 4) for rungs in (5, 4, 3, 2, 1)] == [256, 64, 16, 4, 1]


@pytest.mark.parametrize(
    ("n", "begun", "widths"),
    [
        (16, (0, 0, 0), (12, 3, 1)),
        (27, (12, 8, 1), (18, 8, 1)),
        (27, (3, 3, 1), (21, 5, 1)),
        (29, (20, 8, 1), (20, 8, 1)),
        (3, (1, 1, 1), (1, 1, 1)),
        (2, (1, 1, 0), (1, 1, 0)),
        (3, (3, 0, 0), (3, 0, 0)),
    ],
)
def test_parts_divided_anew_are_never_below_what_a_bracket_holds(
    n: int, begun: tuple[int, ...], widths: tuple[int, ...]
) -> None:
    assert divided(n, [5, 4, 3], 4, begun) == widths


@pytest.mark.merge
@given(
    begun=st.lists(st.integers(0, 50), min_size=1, max_size=5),
    more=st.integers(0, 100),
    eta=st.integers(2, 5),
    spare=st.integers(1, 4),
)
def test_divided_parts_sum_to_n(begun: list[int], more: int, eta: int, spare: int) -> None:
    n = sum(begun) + more
    widths = divided(n, [spare + len(begun) - index for index in range(len(begun))], eta, begun)
    assert sum(widths) == n
    assert all(width >= held for width, held in zip(widths, begun, strict=True))
