"""Tests that define ASHA by sequences of results made by hand, and checks that common mistakes fail them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest

from hopyard_policies.halving.bracket import Bracket

pytestmark = pytest.mark.quick

Make = Callable[[int, int], Bracket]


def report(bracket: Bracket, **losses: float) -> None:
    """Report losses of jobs, in order: at the bottom rung for new jobs, at the next rung for jobs that were promoted."""
    for job in losses:
        if bracket.heading(job) is None:
            bracket.add(job)
    for job, loss in losses.items():
        bracket.report(job, loss, loss)


def get_jobs(bracket: Bracket, times: int) -> list[tuple[str, int] | None]:
    """Return the answers to `times` free workers: the (job, rung) to promote, or None for a new configuration."""
    found: list[tuple[str, int] | None] = []
    for _ in range(times):
        job = next(bracket.promotable(), None)
        if job is not None:
            bracket.promote(*job)
        found.append(job)
    return found


# ------------------------------------------------------------------------------------------------------------------ cases


def rungs_are_scanned_from_the_top(make: Make) -> None:
    bracket = make(2, 3)
    report(bracket, a=1.0, b=2.0, c=3.0, d=4.0)
    assert get_jobs(bracket, 2) == [("a", 0), ("b", 0)]
    report(bracket, e=5.0, f=6.0, b=2.0, a=1.0)  # Both rungs have a candidate now: a at the upper, c at the bottom.
    assert get_jobs(bracket, 3) == [("a", 1), ("c", 0), None]


def results_count_and_jobs_on_their_way_do_not(make: Make) -> None:
    bracket = make(2, 2)
    bracket.add("w")
    report(bracket, a=1.0)
    assert get_jobs(bracket, 1) == [None]
    report(bracket, w=2.0)
    assert get_jobs(bracket, 2) == [("a", 0), None]


def a_burst_is_promoted_best_first(make: Make) -> None:
    bracket = make(4, 2)
    losses = dict(zip("abcdefghijklmnop", (5, 3, 9, 1, 8, 7, 2, 6, 15, 14, 4, 13, 12, 11, 10, 16), strict=True))
    report(bracket, **losses)
    assert get_jobs(bracket, 5) == [("d", 0), ("g", 0), ("b", 0), ("k", 0), None]


def a_paused_one_is_promoted_by_the_bad_result_of_another(make: Make) -> None:
    bracket = make(4, 2)
    report(bracket, a=1.0, b=2.0, c=3.0)
    assert get_jobs(bracket, 1) == [None]
    report(bracket, d=4.0)
    assert get_jobs(bracket, 2) == [("a", 0), None]


def a_paused_one_that_is_not_the_best_is_promoted_as_its_rung_fills(make: Make) -> None:
    bracket = make(2, 2)
    report(bracket, a=1.0, b=2.0)
    assert get_jobs(bracket, 2) == [("a", 0), None]
    report(bracket, c=3.0)
    assert get_jobs(bracket, 1) == [None]
    report(bracket, d=4.0)
    assert get_jobs(bracket, 2) == [("b", 0), None]


def who_was_promoted_too_early_keeps_nobody_back(make: Make) -> None:
    """Check that an early promotion that proves wrong takes no place from jobs that are among the best later."""
    bracket = make(2, 2)
    report(bracket, a=5.0, b=6.0)
    assert get_jobs(bracket, 1) == [("a", 0)]
    report(bracket, c=1.0, d=2.0)
    assert get_jobs(bracket, 3) == [("c", 0), ("d", 0), None]


def of_equals_the_earlier_goes_on(make: Make) -> None:
    bracket = make(2, 2)
    report(bracket, a=1.0, b=1.0, c=1.0, d=1.0)
    assert get_jobs(bracket, 3) == [("a", 0), ("b", 0), None]


def nan_is_worst_and_counts(make: Make) -> None:
    bracket = make(2, 2)
    report(bracket, a=math.nan, b=7.0)
    assert get_jobs(bracket, 2) == [("b", 0), None]
    report(bracket, c=math.nan, d=math.inf)
    assert get_jobs(bracket, 1) == [None]
    report(bracket, e=8.0, f=-math.inf)
    assert get_jobs(bracket, 2) == [("e", 0), None]


def nobody_goes_on_from_the_top(make: Make) -> None:
    bracket = make(2, 2)
    report(bracket, a=1.0, b=2.0, c=3.0, d=4.0)
    assert get_jobs(bracket, 2) == [("a", 0), ("b", 0)]
    report(bracket, a=1.0, b=2.0)
    assert get_jobs(bracket, 1) == [None]


CASES: list[Callable[[Make], None]] = [
    rungs_are_scanned_from_the_top,
    results_count_and_jobs_on_their_way_do_not,
    a_burst_is_promoted_best_first,
    a_paused_one_is_promoted_by_the_bad_result_of_another,
    a_paused_one_that_is_not_the_best_is_promoted_as_its_rung_fills,
    who_was_promoted_too_early_keeps_nobody_back,
    of_equals_the_earlier_goes_on,
    nan_is_worst_and_counts,
    nobody_goes_on_from_the_top,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_asha(case: Callable[[Make], None]) -> None:
    case(Bracket)


# --------------------------------------------------------------------------------------------------------------- mistakes


class BottomUp(Bracket):
    """Scans the rungs from the bottom."""

    def promotable(self) -> Iterator[tuple[str, int]]:
        yield from sorted(super().promotable(), key=lambda found: found[1])


class _Remembers(Bracket):
    """Stores the job and the rung of the last report."""

    latest: tuple[str, int] | None = None

    def report(self, job: str, value: float, cost: float) -> None:
        rung = self.heading(job)
        assert rung is not None
        super().report(job, value, cost)
        self.latest = (job, rung)


class LatestOnly(_Remembers):
    """Promotes only the job that has just reported, if it is promotable."""

    def promotable(self) -> Iterator[tuple[str, int]]:
        yield from (found for found in super().promotable() if found == self.latest)


class Stopping(_Remembers):
    """Implements the stopping variant, which decides at the report and never later.

    A job continues if it is among the best 1 / eta so far, or if there are too few results to decide.
    """

    def promotable(self) -> Iterator[tuple[str, int]]:
        if self.latest is None:
            return
        job, number = self.latest
        rung = self.rungs[number]
        better = next(index for index, result in enumerate(rung.results) if result[2] == job)
        few = len(rung.results) < self.eta
        if (
            number < len(self.rungs) - 1
            and job not in rung.promoted
            and (few or better < len(rung.results) // self.eta)
        ):
            yield job, number


class ByTheLetter(Bracket):
    """Follows the indentation of the paper's listing, so that it checks only the top rung before it starts a new job."""

    def promotable(self) -> Iterator[tuple[str, int]]:
        yield from (found for found in super().promotable() if found[1] == len(self.rungs) - 2)


class Awaited(Bracket):
    """Counts jobs that are still training toward a rung in its size."""

    def promotable(self) -> Iterator[tuple[str, int]]:
        for number in range(len(self.rungs) - 2, -1, -1):
            rung = self.rungs[number]
            for _, _, job in rung.able[: rung.promotable(self.eta, len(rung.awaited))]:
                yield job, number


class LaterTies(Bracket):
    """Prefers the later report among equal losses."""

    def report(self, job: str, value: float, cost: float) -> None:
        super().report(job, value, cost)
        for rung in self.rungs:
            for results in (rung.results, rung.able):
                results[:] = sorted((found[0], -abs(found[1]), found[2]) for found in results)


@pytest.mark.parametrize("mistake", [BottomUp, LatestOnly, Stopping, ByTheLetter, Awaited, LaterTies])
def test_mistakes_are_found(mistake: type[Bracket]) -> None:
    """Check that each mistake fails the cases made for it and passes others."""
    found = []
    for case in CASES:
        try:
            case(mistake)
        except AssertionError:
            found.append(case)
    assert found, f"{mistake.__name__} passes them all"
    assert nobody_goes_on_from_the_top not in found or mistake is not BottomUp
    wrong = {
        BottomUp: [rungs_are_scanned_from_the_top],
        LatestOnly: [a_burst_is_promoted_best_first, a_paused_one_is_promoted_by_the_bad_result_of_another],
        Stopping: [a_burst_is_promoted_best_first, a_paused_one_is_promoted_by_the_bad_result_of_another],
        ByTheLetter: [rungs_are_scanned_from_the_top],
        Awaited: [results_count_and_jobs_on_their_way_do_not],
        LaterTies: [of_equals_the_earlier_goes_on],
    }[mistake]
    assert set(wrong) <= set(found)
