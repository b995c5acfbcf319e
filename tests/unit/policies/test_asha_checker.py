"""Tests of the checker of Algorithm 2: it accepts correct journals and names the violation in others."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from hopyard.policy import CONTINUE, TERMINATE, Cluster, Decision, IterationFinish, Policy
from hopyard_engine.core.effects import Effect, Record
from hopyard_engine.core.events import Event
from hopyard_engine.core.types import Settings
from hopyard_policies.halving import AshaPolicy
from hopyard_policies.halving import bracket as halving
from hopyard_simulator import Costs, CurveWorkload, Faults, Fleet
from hopyard_simulator.world import World
from tests.asha_checker import Bracket, Judge, Violation, positions
from tests.unit.policies import asha_variants as variants
from tests.unit.policies.asha_variants import ETA, RUNGS

JOBS = 64
SOME = Faults(drop=0.05, straggling=0.5)
MANY = Faults(drop=0.3, straggling=0.5)
"""Faults that lose so many runs, many of them while they save, that promotable jobs wait in several rungs at once."""


def always(_: str) -> bool:
    return True


def journal(
    policy: Policy,
    seed: int,
    *,
    slots: int = 4,
    values: int | None = None,
    saving: float = 0.3,
    faults: Faults | None = None,
) -> list[Event]:
    """Return the journal of a simulated search with random metric values, of which `values` are different (None: all)."""
    rng = random.Random(seed)
    drawn = {
        (n, at): rng.random() if values is None else float(rng.randrange(values))
        for n in range(JOBS)
        for at in range(1, RUNGS[-1] + 1)
    }

    def curve(given: Mapping[str, Any], position: int) -> float:
        return drawn[given["n"], position]

    workload = CurveWorkload(curve, [{"n": n} for n in range(JOBS)], RUNGS[-1], seconds=lambda g, p: 1 + g["n"] % 7 / 5)
    settings = Settings("metric", "max", RUNGS[-1], JOBS, every_iteration=True, ends_jobs=True, max_seconds=400.0)
    configurations = iter(workload.configurations(None))
    world = World(
        workload,
        policy,
        settings,
        Fleet(slots),
        Costs(suspend=saving, resume=0.2),
        faults or Faults(),
        seed=seed,
        answer=lambda _: next(configurations, None),
    )
    recorded: list[Event] = []
    world.core.handle = partial(_recording, world.core.handle, recorded)  # type: ignore[method-assign]
    for _ in world.run():
        pass
    return recorded


def _recording(handle: Callable[[Event], list[Effect]], recorded: list[Event], event: Event) -> list[Effect]:
    effects = handle(event)
    recorded += [effect.event for effect in effects if isinstance(effect, Record) and effect.stream != "cluster"]
    return effects


def judge() -> Judge:
    return Judge([Bracket(RUNGS, ETA)], "metric")


@pytest.mark.parametrize("seed", range(4))
def test_it_accepts_algorithm_2(seed: int) -> None:
    found = judge().follow(journal(variants.AsMeant(), seed))
    assert len(found.grown) == JOBS
    assert {until for _, until in found.promotions} == {2, 4, 8}
    assert (found.again, found.left) == ([], [])


@pytest.mark.parametrize("seed", range(4))
def test_it_accepts_ties_and_losses(seed: int) -> None:
    found = judge().follow(journal(variants.AsMeant(), seed, values=4, faults=SOME))
    assert len(found.promotions) > 20
    assert len(found.again) > 5


@pytest.mark.parametrize(
    "given",
    [{"values": 3}, {"faults": SOME}, {"faults": MANY, "slots": 8, "saving": 3.0}, {"slots": 16, "saving": 3.0}],
)
def test_it_accepts_the_policy_asha(given: dict[str, Any]) -> None:
    found = judge().follow(journal(AshaPolicy(eta=ETA, r=1, brackets=[0]), 3, **given))
    assert len(found.promotions) > 20
    assert bool(found.again) == ("faults" in given)
    brackets = [Bracket(RUNGS[s:], ETA, width=width) for s, width in enumerate((31, 19, 14))]
    found = Judge(brackets, "metric").follow(journal(AshaPolicy(eta=ETA, r=1), 4, **given))
    assert (len(found.grown), found.left) == (JOBS, [])


BEFORE = r"is promoted, but job \d+ \(.*\) on rung \d comes before it"
INSTEAD = r"grows the bottom rung, but job \d+ \(.*\) on rung \d is promotable"
WAITS = r"is sent to \d, but job \d+ was promoted before and waits for a worker"
ENDS = "is ended, and may be promoted later"
PLACE = r"is promoted from rung \d, where it is \d+ of \d+, and floor\(\d+ / 2\) = \d+ are promotable"


@pytest.mark.parametrize(
    ("variant", "told", "given"),
    [
        (variants.BottomUp, BEFORE, {"seed": 3, "faults": SOME}),
        (variants.WorstFirst, BEFORE, {"seed": 2, "faults": MANY, "slots": 8, "saving": 3.0}),
        (variants.LatestOnly, INSTEAD, {}),
        (variants.GrowsFirst, INSTEAD, {}),
        (variants.Stopping, f"{PLACE}|{ENDS}", {}),
        (variants.Awaited, PLACE, {}),
        (variants.LaterTies, f"{PLACE}|{BEFORE}", {"values": 3}),
    ],
)
def test_it_tells_what_is_not_algorithm_2(variant: type[Policy], told: str, given: dict[str, Any]) -> None:
    with pytest.raises(Violation, match=rf"^event \d+: job .*({told})"):
        judge().follow(journal(variant(), **{"seed": 1, **given}))


class BottomUp(AshaPolicy):
    """The built-in policy, but with rungs scanned from the bottom."""

    def _candidates(self) -> Iterator[tuple[halving.Bracket, str, int]]:
        yield from sorted(super()._candidates(), key=lambda found: found[2])


class LatestOnly(AshaPolicy):
    """The built-in policy, but it promotes only the job that has just reported."""

    def _promotion(self, cluster: Cluster, staying: str) -> tuple[str, int] | None:
        found = super()._promotion(cluster, staying)
        return found if found is not None and found[0] == staying else None


class GrowsFirst(AshaPolicy):
    """The built-in policy, but it promotes only when no new job can start."""

    def _promotion(self, cluster: Cluster, staying: str) -> tuple[str, int] | None:
        return None if any(map(cluster.waits, self._fresh)) else super()._promotion(cluster, staying)


class FirstBracket(AshaPolicy):
    """The built-in policy, but it checks the rungs of one bracket only."""

    def _candidates(self) -> Iterator[tuple[halving.Bracket, str, int]]:
        yield from (found for found in super()._candidates() if found[0] is self._ladder.brackets[0])


class Stopping(AshaPolicy):
    """The built-in policy, but a job that is not promoted at its report is terminated."""

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        decision = super().on_iteration_finish(cluster, event)
        return TERMINATE if event.at_until and decision == CONTINUE else decision


@pytest.mark.parametrize(
    ("mutant", "told", "given"),
    [
        (BottomUp, BEFORE, {"faults": MANY, "slots": 8, "saving": 3.0}),
        (LatestOnly, f"{INSTEAD}|{WAITS}", {}),
        (GrowsFirst, f"{INSTEAD}|{WAITS}", {}),
        (FirstBracket, f"{INSTEAD}|{WAITS}", {}),
        (Stopping, ENDS, {}),
    ],
)
def test_it_tells_when_the_built_policy_is_no_longer_algorithm_2(
    mutant: type[AshaPolicy], told: str, given: dict[str, Any]
) -> None:
    brackets = [Bracket(RUNGS[s:], ETA, width=width) for s, width in enumerate((31, 19, 14))]
    with pytest.raises(Violation, match=rf"^event \d+: job .*({told})"):
        Judge(brackets, "metric").follow(journal(mutant(eta=ETA, r=1), **{"seed": 4, **given}))


def test_it_tells_the_first_violation_only_once_it_is_there() -> None:
    events = journal(variants.LatestOnly(), 1)
    with pytest.raises(Violation) as found:
        judge().follow(events)
    number = int(str(found.value).split(":")[0].removeprefix("event "))
    judge().follow(events[: number - 1])
    with pytest.raises(Violation):
        judge().follow(events[:number])


def test_it_tells_other_rungs_and_a_bottom_that_is_too_wide() -> None:
    events = journal(variants.AsMeant(), 0)
    with pytest.raises(Violation, match=r"job 1 starts towards 1, the bottom rungs are at \[2\]"):
        Judge([Bracket((2, 4, 8), ETA)], "metric").follow(events)
    with pytest.raises(Violation, match=r"is sent to 2; it was sent to rung 0 of \[1, 4, 8\]"):
        Judge([Bracket((1, 4, 8), ETA)], "metric").follow(events)
    with pytest.raises(Violation, match="grows the bottom rung beyond 63 jobs"):
        Judge([Bracket(RUNGS, ETA, width=63)], "metric").follow(events)
    with pytest.raises(Violation):
        Judge([Bracket(RUNGS, ETA, "min")], "metric").follow(events)


def test_a_rung_by_hand() -> None:
    bracket = Bracket((1, 4, 16), 4)
    for job, value in zip("abcdefgh", (0.5, math.nan, 0.9, 0.9, 0.1, math.inf, 0.9, 0.2), strict=True):
        bracket.grows(job, always)
        assert bracket.completed(job, 1, value)
        assert not bracket.completed(job, 1, 1.0), "a job reports once where it is sent"
        if job == "c":
            with pytest.raises(Violation, match="where it is 1 of 3, and floor"):
                bracket.promotes("c", always)
        if job == "d":
            assert bracket.get_job(always) == ("c", 0)
            bracket.promotes("c", always)
            assert bracket.get_job(always) is None
    assert bracket.candidates(0) == ["c", "d"]  # g came later; infinity is not finite.
    with pytest.raises(Violation, match="job g is promoted from rung 0, where it is 3 of 8"):
        bracket.promotes("g", always)
    with pytest.raises(Violation, match=r"job i grows the bottom rung, but job d \(0.9\) on rung 0 is promotable"):
        bracket.grows("i", always)
    bracket.grows("i", lambda job: job != "d")
    bracket.promotes("d", always)
    assert not bracket.completed("d", 3, 1.0)
    with pytest.raises(Violation, match="job d is promoted from rung 1, where it has not reported"):
        bracket.promotes("d", always)


def test_what_is_no_number_is_not_promotable() -> None:
    bracket = Bracket((1, 2), 2, "min")
    for job, value in zip("abcd", (math.nan, -math.inf, math.nan, 3.0), strict=True):
        bracket.grows(job, always)
        bracket.completed(job, 1, value)
    assert bracket.candidates(0) == ["d"]
    with pytest.raises(Violation, match="job a is promoted from rung 0, where it is 2 of 4"):
        bracket.promotes("a", always)


def test_rungs_are_r_times_eta_to_the_k_and_end_at_R() -> None:
    assert positions(1, 256, 4) == (1, 4, 16, 64, 256)
    assert positions(1, 256, 4, s=2) == (16, 64, 256)
    assert positions(1, 15, 4) == (4, 15)
    assert positions(1, 5, 2) == (1, 3, 5)
    assert positions(2, 120, 4, s=1) == (30, 120)
