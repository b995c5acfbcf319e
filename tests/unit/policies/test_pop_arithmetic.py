"""Tests of POP's division of slots, confidences and expected remaining times, with values computed by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard_policies.pop import divide, epochs_left, outlook_of

pytestmark = pytest.mark.quick

CHANCES = st.floats(0, 1)


class TestSlots:
    def test_as_in_the_paper(self) -> None:
        # S = 4. p = 0.9: one job wants 1 slot and deserves 3.6. p = 0.5: two want 2 and deserve 2. p = 0.2: three want 3, deserve 0.8.
        division = divide([0.2, 0.9, 0.5], 4)
        assert division.curve == ((0.9, 1.0, 3.6), (0.5, 2.0, 2.0), (0.2, 3.0, 0.8))
        assert (division.promising, division.threshold, division.effective) == (2, 0.5, 2.0)

    def test_slots_are_whole(self) -> None:
        # Three jobs at 0.6 want 3 of 4 slots and deserve 2.4.
        assert divide([0.6, 0.6, 0.6], 4)[:2] == (2, 0.6)

    def test_a_tie_goes_to_the_larger_confidence(self) -> None:
        # S = 2: p = 0.5 alone wants 1 and deserves 1; at 0.25 four want 4 and deserve 0.5; at 1.0 one wants 1, deserves 2: 1 again.
        assert divide([1.0, 0.5, 0.25, 0.25], 2)[:2] == (1, 1.0)
        # S = 4, p = 0.5: two want 2 and deserve 2. p = 1.0: none. So the threshold is 0.5.
        assert divide([0.5, 0.5], 4)[:2] == (2, 0.5)

    def test_all_low(self) -> None:
        # No job deserves a whole slot: 4 x 0.1.
        division = divide([0.1] * 10, 4)
        assert (division.promising, division.threshold) == (0, 0.1)

    def test_nobody_has_a_chance_or_there_is_nobody(self) -> None:
        assert divide([0.0, 0.0], 4)[:3] == (0, None, 0.0)
        assert divide([], 4)[:3] == (0, None, 0.0)
        assert divide([0.9], 0)[:3] == (0, None, 0.0)

    def test_all_high(self) -> None:
        # More promising jobs than slots: they get all slots.
        assert divide([1.0] * 10, 4)[:2] == (4, 1.0)
        assert divide([0.99] * 10, 4)[:2] == (3, 0.99)

    def test_jobs_of_several_slots(self) -> None:
        # k = 2, S = 8: one at 0.9 wants 2; two at 0.75 want 4 and deserve 6; three at 0.5 want 6 and deserve 4.
        assert divide([0.9, 0.75, 0.5], 8, 2)[:2] == (4, 0.75)

    def test_rounding_takes_no_slot(self) -> None:
        # 0.1 + 0.2 is a little above 0.3, and 10 x 0.3 a little below 3 in other orders.
        assert divide([0.3] * 5, 10).promising == 3
        assert divide([0.7] * 9, 10).promising == 7

    @pytest.mark.merge
    @given(st.lists(CHANCES, max_size=30), st.integers(0, 20), st.integers(1, 4))
    def test_the_maximum_is_the_maximum(self, chances: list[float], slots: int, per_job: int) -> None:
        division = divide(chances, slots, per_job)
        all_of_them = [min(per_job * sum(q >= p for q in chances), slots * p) for p in chances]
        assert division.effective == pytest.approx(max(all_of_them, default=0.0))
        assert 0 <= division.promising <= slots
        assert [p for p, _, _ in division.curve] == sorted(set(chances), reverse=True)
        if division.threshold is not None:
            better = [p for p, value in zip(chances, all_of_them, strict=True) if p > division.threshold]
            assert all(min(per_job * sum(q >= p for q in chances), slots * p) < division.effective for p in better)


class TestOutlook:
    def test_by_hand(self) -> None:
        # First passages: 0.2 at 1, 0.3 at 2, nothing at 3, 0.4 at 4. x = 0.2 + 0.6 + 1.6 = 2.4 epochs of 10 s.
        outlook = outlook_of([0.2, 0.5, 0.4, 0.9], 1000.0, 10.0)
        assert outlook.confidence == pytest.approx(0.9)
        assert outlook.remaining == pytest.approx(24.0)

    def test_the_time_cuts_the_sums(self) -> None:
        # 25 s are two epochs: 0.2 at 1, 0.3 at 2.
        outlook = outlook_of([0.2, 0.5, 0.4, 0.9], 25.0, 10.0)
        assert outlook.confidence == pytest.approx(0.5)
        assert outlook.remaining == pytest.approx(8.0)

    def test_no_longer_than_there_is_time(self) -> None:
        # One epoch fits; its share of 11 s is below the 10 s that are left. With 0.99 at the tenth of ten: 9.9 epochs of 10 s.
        assert outlook_of([0.0] * 9 + [0.99], 100.0, 10.0).remaining == pytest.approx(99.0)
        assert outlook_of([1.0], 10.0, 10.0).remaining == 10.0

    def test_nearly_no_time(self) -> None:
        assert outlook_of([1.0, 1.0], 9.0, 10.0) == (0.0, 0.0)
        assert outlook_of([1.0], -5.0, 10.0) == (0.0, 0.0)

    def test_a_hopeless_job_has_no_remaining_time(self) -> None:
        assert outlook_of([0.0] * 50, math.inf, 10.0) == (0.0, 0.0)

    def test_without_an_end(self) -> None:
        assert outlook_of([0.5, 1.0], math.inf, 2.0) == (1.0, 3.0)

    @given(st.lists(CHANCES, max_size=40), st.floats(0, 1e4), st.floats(0.01, 100))
    def test_bounds(self, chances: list[float], left: float, epoch: float) -> None:
        outlook = outlook_of(chances, left, epoch)
        assert 0 <= outlook.confidence <= max(chances, default=0)
        assert 0 <= outlook.remaining <= left


def test_epochs_left_minds_rounding() -> None:
    assert epochs_left(0.3 - 0.1, 0.1) == 2
    assert epochs_left(0.19, 0.1) == 1
    assert epochs_left(1e9, 0.1) == 10_000_000_000
    assert epochs_left(0.0, 0.1) == 0
