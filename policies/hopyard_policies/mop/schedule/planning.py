"""Makes complete schedules for known times: the schedulers by name, and the choice of the rule of the default scheduler, `longest`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hopyard_policies.mop.schedule.dispatch import LongestFirst, PlanFollower, Randomized, Rule
from hopyard_policies.mop.schedule.problem import Hosting, VisitProblem, VisitSchedule
from hopyard_policies.mop.schedule.replica_assignment import host, loads
from hopyard_policies.mop.schedule.simulation import carry_out

RESTARTS: Final = 30
"""Maximum number of passes of the scheduler `longest`; the first follows the rule, the others are perturbed."""

TIGHT: Final = 0.8
"""Minimum mean load, as a fraction of the bound of the makespan, at which no configuration or slot may wait."""

CLOSE: Final = 1.001
"""A schedule within this factor of the bound ends the search."""


UNITS: Final = 4_000
"""Maximum number of units placed by all passes after the first, when idle slots wait for the decision."""


def longest(problem: VisitProblem, rng: random.Random, restarts: int = RESTARTS) -> VisitSchedule:
    """Return the schedule of the scheduler `longest`: the best of several by `LongestFirst`, with randomly weighted remaining times.

    Args:
        problem: The scheduling problem.
        rng: The source of random weights.
        restarts: The maximum number of schedules to try.
    """
    return _best(problem, host(problem), rng, restarts)[0]


def _best(
    problem: VisitProblem, hosting: Hosting, rng: random.Random, restarts: int
) -> tuple[VisitSchedule, Sequence[float]]:
    """Return the schedule with the least makespan of up to `restarts` schedules by `LongestFirst`, and its weights.

    The weights are factors for the remaining times of configurations: in the first schedule 1 (returned as empty), then random.

    Args:
        problem: The scheduling problem.
        hosting: The slot assigned to each of `problem.units`.
        rng: The source of random weights.
        restarts: The maximum number of schedules.
    """
    configs, slots = loads(problem, hosting)
    enough = CLOSE * max(configs + slots, default=0.0)
    best: tuple[VisitSchedule, Sequence[float]] = carry_out(problem, LongestFirst(problem, hosting)), ()
    for number in range(1, restarts):
        if best[0].makespan <= enough:
            break
        spread = 0.02 * 1.3 ** (number % 12)
        weights = [1.0 + spread * rng.random() for _ in problem.costs]
        found = carry_out(problem, LongestFirst(problem, hosting, weights))
        if found.makespan < best[0].makespan:
            best = found, weights
    return best


def randomized(problem: VisitProblem, rng: random.Random) -> VisitSchedule:
    """Return one random schedule by Cerebro's Algorithm 1.

    Args:
        problem: The scheduling problem.
        rng: The source of random numbers.
    """
    return carry_out(problem, Randomized(problem, rng))


def milp(problem: VisitProblem, rng: random.Random, seconds: float = 60.0) -> VisitSchedule:
    """Return the schedule found by the mixed-integer linear program of Cerebro, section 5.1. `rng` is not used.

    Args:
        problem: The scheduling problem.
        rng: Ignored.
        seconds: The time limit in seconds.

    Raises:
        milp.NoPlanError: No schedule was found in time, or the problem has too many units.
    """
    from hopyard_policies.mop.schedule.milp import solve

    return solve(problem, seconds)


SCHEDULERS: Final[Mapping[str, Callable[[VisitProblem, random.Random], VisitSchedule]]] = {
    "longest": longest,
    "randomized": randomized,
    "milp": milp,
}


def dispatcher(problem: VisitProblem, known: bool = False) -> Rule:
    """Return the rule of the scheduler `longest`, for times that are known only approximately: `PlanFollower` or `LongestFirst`.

    A complete schedule by `longest` is followed if no configuration and no slot may wait: the mean load of the configurations and
    that of the slots are at least the fraction `TIGHT` of the bound of the makespan. Greedy choices could then leave a slot without
    a configuration that needs it. Otherwise the result is `LongestFirst`.

    Args:
        problem: The remaining problem.
        known: Whether times were measured; matters for `LongestFirst` only. True: several schedules with random weights of the
            remaining times are simulated, and the rule gets the weights of the best. `UNITS` limits their number, so that this
            is fast. False: the rule has no weights.
    """
    hosting = host(problem)
    configs, slots = ([end for end in ends if end > 0] for ends in loads(problem, hosting))
    bound = max(configs + slots, default=0.0)
    if all(sum(ends) >= TIGHT * bound * len(ends) for ends in (configs, slots)):
        return PlanFollower(problem, longest(problem, random.Random(0)))
    if not known:
        return LongestFirst(problem, hosting)
    restarts = min(RESTARTS, 1 + UNITS // max(len(problem.units), 1))
    return LongestFirst(problem, hosting, _best(problem, hosting, random.Random(0), restarts)[1])
