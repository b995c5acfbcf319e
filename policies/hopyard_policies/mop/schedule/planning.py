"""Planning with known times: a schedule for a problem, by the name of the scheduler."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hopyard_policies.mop.schedule.dispatch import Following, Longest, Randomized, Rule
from hopyard_policies.mop.schedule.problem import Hosting, VisitProblem, VisitSchedule
from hopyard_policies.mop.schedule.replica_assignment import host, loads
from hopyard_policies.mop.schedule.simulation import carry_out

RESTARTS: Final = 30
"""Passes of the default scheduler at most: the first as its rule says, the others perturbed."""

TIGHT: Final = 0.8
"""Configurations and machines that have, in the mean, this part of the most to do of any of them leave no slack."""

CLOSE: Final = 1.001
"""A schedule within this factor of what cannot be beaten is good enough to look no further."""


UNITS: Final = 4_000
"""Units that all passes of a decision that cannot wait may place together, after the first one."""


def longest(problem: VisitProblem, rng: random.Random, restarts: int = RESTARTS) -> VisitSchedule:
    """The default: the best of some passes of `Longest`, each with remaining times weighted at random anew."""
    return _best(problem, host(problem), rng, restarts)[0]


def _best(
    problem: VisitProblem, hosting: Hosting, rng: random.Random, restarts: int
) -> tuple[VisitSchedule, Sequence[float]]:
    """The best pass, and the weights that it had."""
    configs, machines = loads(problem, hosting)
    enough = CLOSE * max(configs + machines, default=0.0)
    best: tuple[VisitSchedule, Sequence[float]] = carry_out(problem, Longest(problem, hosting)), ()
    for number in range(1, restarts):
        if best[0].makespan <= enough:
            break
        spread = 0.02 * 1.3 ** (number % 12)
        weights = [1.0 + spread * rng.random() for _ in problem.costs]
        found = carry_out(problem, Longest(problem, hosting, weights))
        if found.makespan < best[0].makespan:
            best = found, weights
    return best


def randomized(problem: VisitProblem, rng: random.Random) -> VisitSchedule:
    """Cerebro's own default: one pass of its Algorithm 1."""
    return carry_out(problem, Randomized(problem, rng))


def milp(problem: VisitProblem, rng: random.Random, seconds: float = 60.0) -> VisitSchedule:
    """The mixed integer linear program of section 5.1, solved as well as it can be in so many seconds.

    Raises:
        milp.NoPlanError: No schedule was found in that time.
    """
    from hopyard_policies.mop.schedule.milp import solve

    return solve(problem, seconds)


SCHEDULERS: Final[Mapping[str, Callable[[VisitProblem, random.Random], VisitSchedule]]] = {
    "longest": longest,
    "randomized": randomized,
    "milp": milp,
}


def dispatcher(problem: VisitProblem, known: bool = False) -> Rule:
    """The default scheduler's rule where times are known roughly only: `Longest`, or a plan that is followed.

    As many equal configurations as equal machines leave no slack on either side: each of both must always be at work. Then
    whoever takes what is idle first takes it from those that cannot do without, and following a plan is better.

    Args:
        problem: What is left to do.
        known: Its times were measured, so that perturbed restarts are worth their while: the rule then has the weights of the best
            of them, as many as a decision can wait for.
    """
    hosting = host(problem)
    configs, machines = ([end for end in ends if end > 0] for ends in loads(problem, hosting))
    bound = max(configs + machines, default=0.0)
    if all(sum(ends) >= TIGHT * bound * len(ends) for ends in (configs, machines)):
        return Following(problem, longest(problem, random.Random(0)))
    if not known:
        return Longest(problem, hosting)
    restarts = min(RESTARTS, 1 + UNITS // max(len(problem.units), 1))
    return Longest(problem, hosting, _best(problem, hosting, random.Random(0), restarts)[1])
