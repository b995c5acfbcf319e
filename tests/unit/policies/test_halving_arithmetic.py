"""Tests of the computed rungs and brackets of successive halving, with examples by hand and numbers of the papers."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.policy import ENDLESS
from hopyard.policy.rungs import rung_positions
from hopyard_policies.halving.brackets import average, divided, hyperband, needed, shares, standard
from hopyard_policies.halving.ladder import Ladder
from hopyard_policies.halving.rungs import extended, least, rising

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("R", "r", "eta", "rungs"),
    [
        (256, 1, 4, (1, 4, 16, 64, 256)),
        (9, 1, 3, (1, 3, 9)),  # figure 1, bracket 0
        (9, 3, 3, (3, 9)),  # bracket 1
        (9, 9, 3, (9,)),  # bracket 2
        (65, 1, 4, (1, 4, 16, 65)),  # no last step from 64 to 65
        (63, 1, 4, (4, 16, 63)),  # 63 / 64 is below 1
        (15, 1, 4, (4, 15)),
        (60, 1, 4, (4, 15, 60)),
        (120, 1, 4, (2, 8, 30, 120)),
        (120, 15, 4, (30, 120)),
        (4, 1, 4, (1, 4)),
        (3, 1, 4, (3,)),
        (1, 1, 4, (1,)),
        (5, 9, 4, (5,)),
        (125, 1, 5, (1, 5, 25, 125)),  # floor(log(125) / log(5)) is 2 in floating point
        (10, Fraction(5, 2), 2, (3, 5, 10)),
        (30_000, Fraction(30_000, 256), 4, (117, 469, 1875, 7500, 30_000)),
    ],
)
def test_positions_of_rungs(R: int, r: int | Fraction, eta: int, rungs: tuple[int, ...]) -> None:
    assert rung_positions(R, r, eta) == rungs


@pytest.mark.parametrize(
    ("eta", "exponent"), [(eta, exponent) for eta in (2, 3, 4, 5, 10) for exponent in range(1, 40)]
)
def test_a_power_of_eta_is_its_own_top_rung(eta: int, exponent: int) -> None:
    """Check powers for which floating-point logarithms are off by one, such as 5^3 and 10^15."""
    found = rung_positions(eta**exponent, 1, eta)
    assert found == tuple(eta**k for k in range(exponent + 1))


@pytest.mark.merge
@given(R=st.integers(1, 10**7), r=st.integers(1, 10**4), eta=st.integers(2, 10))
def test_each_step_is_a_factor_eta_and_there_are_as_many_rungs_as_in_algorithm_1(R: int, r: int, eta: int) -> None:
    """Check the number of rungs, floor(log_eta(R / r)) + 1, by multiplication, and each rung against R / eta^k within half a unit."""
    found = rung_positions(R, r, eta)
    printed = len(rising(R, r, eta)) or 1
    assert len(found) == printed
    assert found[-1] == R
    assert found[0] >= min(r, R)
    assert all(abs(rung - Fraction(R, eta**k)) <= Fraction(1, 2) for k, rung in enumerate(reversed(found)))
    assert all(low < high for low, high in pairwise(found))


@pytest.mark.merge
@given(R=st.integers(1, 10**7), eta=st.integers(2, 10), rungs=st.integers(1, 8))
def test_default_ladder_rises_to_R_in_at_most_so_many_rungs(R: int, eta: int, rungs: int) -> None:
    found = rung_positions(R, least(R, eta, rungs), eta)
    assert found[-1] == R
    assert len(found) <= rungs
    assert all(low < high for low, high in pairwise(found))
    assert found[0] >= 1
    if eta ** (rungs - 1) <= R:
        assert len(found) == rungs


def test_an_extended_ladder_keeps_its_rungs() -> None:
    assert extended((4, 15), 60, 4) == (4, 15, 60)
    assert extended((1, 4, 16), 1024, 4) == (1, 4, 16, 64, 256, 1024)
    assert extended((1, 4, 16), 10, 4) == (1, 4, 16)
    # 75 would be a short step from 64.
    assert extended((1, 4, 16, 64), 300, 4) == (1, 4, 16, 64, 300)
    # Whoever extends from 64 to 65 wants jobs to train there.
    assert extended((1, 4, 16, 64), 65, 4) == (1, 4, 16, 64, 65)


def test_rungs_of_the_infinite_horizon_do_not_depend_on_R() -> None:
    assert rising(64, 1, 4) == rising(65, 1, 4) == rising(255, 1, 4) == (1, 4, 16, 64)
    assert rising(20, 3, 2) == (3, 6, 12)
    assert rising(2, 3, 2) == ()


def ladder(*, infinite: bool = False, **given: Any) -> Ladder:
    found = Ladder(**{"eta": 4, "rungs": None, "r": None, "brackets": None, **given})
    found.infinite = infinite
    return found


@pytest.mark.parametrize("growth", [(65, 256, 1000), (1000,), (65, 66, 67, 1000)])
def test_an_infinite_ladder_is_the_same_however_R_grows(growth: tuple[int, ...]) -> None:
    found = ladder(r=1, infinite=True)
    assert found.reach(64)
    assert [found.reach(R) for R in growth].count(True) == 1
    assert found.positions == (1, 4, 16, 64, 256)


def test_without_a_maximum_position_the_rungs_go_up_from_r() -> None:
    found = ladder(r=3)
    found.reach(ENDLESS)
    assert found.positions[:4] == (3, 12, 48, 192)
    assert found.positions[-1] * 4 > ENDLESS


def test_rungs_may_be_listed() -> None:
    found = ladder(rungs=[15, 60, 120])
    assert found.reach(120)
    assert list(found.positions) == [15, 60, 120]
    assert not found.reach(120)
    assert found.reach(500)
    assert list(found.positions) == [15, 60, 120, 500]


@pytest.mark.parametrize("R", [100, 121, ENDLESS])
def test_the_last_listed_rung_is_at_R(R: int) -> None:
    limit = "is not given" if R == ENDLESS else f"is {R}"
    with pytest.raises(ValueError, match=rf"rungs is \[15, 60, 120\], but stop.max_iterations {limit}; the last rung"):
        ladder(rungs=[15, 60, 120]).reach(R)


@pytest.mark.parametrize("rungs", [[], [0, 4], [4, 4], [16, 4], [1, 4.0], [True, 4], list(range(1, 66))])
def test_lists_that_are_no_rungs_are_refused(rungs: list[Any]) -> None:
    with pytest.raises(
        ValueError, match="must be the maximum number of rungs, or a list of 1 to 64 ascending positions"
    ):
        ladder(rungs=rungs)


def test_impossible_ladders_are_refused() -> None:
    for arguments in ((0, 1, 4), (4, 0, 4), (4, 1, 1)):
        with pytest.raises(ValueError, match="needed are R >= 1, r >= 1, eta >= 2"):
            rung_positions(*arguments)


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
