"""Cerebro's exact scheduler (section 5.1): a mixed-integer linear program, solved by HiGHS with a time limit."""

from __future__ import annotations

from itertools import combinations
from typing import Any, Final

import numpy as np

from hopyard._common.optional_import import need
from hopyard.solver import Solver
from hopyard_policies.mop.schedule.bounds import lower_bound
from hopyard_policies.mop.schedule.problem import ScheduledUnit, VisitProblem, VisitSchedule, from_plain
from hopyard_policies.mop.schedule.replica_assignment import host, loads

MOST_PAIRS: Final = 200_000
"""Maximum number of order variables; the solver needs too much memory for larger programs and finds no plan for them in hours."""


class NoPlanError(RuntimeError):
    """The solver found no schedule within the time limit, or the problem has too many units to be solved."""


def solve(problem: VisitProblem, seconds: float) -> VisitSchedule:
    """Minimize the makespan over start times, with an order for each two units that share a slot or a configuration.

    The variables Y and Z of section 5.1 are one binary variable for each such pair: 1 if its first unit comes first.
    With replicas, which the paper omits, units are first assigned to slots by `replica_assignment.host`.

    Args:
        problem: The scheduling problem.
        seconds: The time limit in seconds; the best schedule found by then is returned.

    Raises:
        NoPlanError: No schedule was found in time, or the problem has too many units (`MOST_PAIRS`).
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    units, hosting = problem.units, host(problem)
    if not units:
        return VisitSchedule(())
    times = [problem.time(*unit, slot) for unit, slot in zip(units, hosting, strict=True)]
    together: dict[tuple[str, int], list[int]] = {}
    for number, (unit, slot) in enumerate(zip(units, hosting, strict=True)):
        together.setdefault(("slot", slot), []).append(number)
        together.setdefault(("config", unit.config), []).append(number)
    pairs = sorted({pair for numbers in together.values() for pair in combinations(numbers, 2)})
    if len(pairs) > MOST_PAIRS:
        raise NoPlanError(
            f"{len(units)} units are too many to plan exactly: {len(pairs)} orders, at most {MOST_PAIRS} can be decided"
        )
    count = len(units)  # Variables: a start for each unit, the makespan, an order for each pair.
    large = sum(times) + max([0.0, *problem.config_free, *problem.slot_free])
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    least: list[float] = []

    def at_least(bound: float, *terms: tuple[int, float]) -> None:
        for column, value in terms:
            rows.append(len(least))
            columns.append(column)
            values.append(value)
        least.append(bound)

    for number, (a, b) in enumerate(pairs):
        order = count + 1 + number
        at_least(times[a] - large, (b, 1.0), (a, -1.0), (order, -large))
        at_least(times[b], (a, 1.0), (b, -1.0), (order, large))
    for number, time in enumerate(times):
        at_least(time, (count, 1.0), (number, -1.0))
    low = np.zeros(count + 1 + len(pairs))
    for number, (unit, slot) in enumerate(zip(units, hosting, strict=True)):
        low[number] = max(problem.free_config(unit.config), problem.free_slot(slot))
    low[count] = max(loads(problem, hosting)[1])
    high = np.full(len(low), np.inf)
    high[count + 1 :] = 1.0
    result = milp(
        np.eye(1, len(low), count)[0],
        integrality=np.concatenate([np.zeros(count + 1), np.ones(len(pairs))]),
        bounds=Bounds(low, high),
        constraints=LinearConstraint(
            coo_array((values, (rows, columns)), shape=(len(least), len(low))), np.array(least), np.inf
        ),
        options={"time_limit": seconds},
    )
    if result.x is None:
        raise NoPlanError(f"no schedule of {count} units was found in {seconds:g} s: {result.message}")
    return _tidied(problem, hosting, times, result.x[:count])


def _tidied(problem: VisitProblem, hosting: list[int], times: list[float], starts: np.ndarray) -> VisitSchedule:
    """Return a schedule in the order of the solver's starts, with each unit as early as possible.

    The solver's starts are not used as they are, because units may overlap within its tolerance.

    Args:
        problem: The scheduling problem.
        hosting: The slot of each of `problem.units`.
        times: The seconds of each unit.
        starts: The start that the solver found for each unit.
    """
    configs = [problem.free_config(config) for config in range(len(problem.costs))]
    slots = [problem.free_slot(slot) for slot in range(len(problem.speeds))]
    placed = []
    for number in np.argsort(starts, kind="stable"):
        unit, slot = problem.units[number], hosting[number]
        start = max(configs[unit.config], slots[slot])
        configs[unit.config] = slots[slot] = start + times[number]
        placed.append(ScheduledUnit(unit, slot, start, start + times[number]))
    return VisitSchedule(tuple(placed))


class MilpSolver(Solver):
    """Plans an epoch of model hopper parallelism exactly (Cerebro, section 5.1) with a mixed-integer linear program (HiGHS).

    The request is a problem as JSON values (`hopyard_policies.mop.schedule.problem.to_plain`). The answer has the units in order of
    start (`placed`: each [configuration, partition, slot]), the `makespan` in seconds, and a lower bound of the makespan of any plan
    (`bound`).
    """

    def solve(self, payload: Any, seconds: float) -> Any:
        """Solve the problem in `payload` within `seconds`; see the class and `hopyard.solver.Solver`.

        Raises:
            ValueError: The payload is not a problem, or no plan was found in time.
        """
        need("scipy.optimize", "mop")
        problem = from_plain(payload)
        try:
            plan = solve(problem, seconds)
        except NoPlanError as error:
            raise ValueError(str(error)) from error
        bound = lower_bound(problem)
        units = f"{len(plan.placed)} units on {len(problem.speeds)} slots"
        ratio = f", {plan.makespan / bound:.3f} x the bound" if bound else ""
        return {
            "placed": [[*placed.unit, placed.slot] for placed in plan.placed],
            "makespan": plan.makespan,
            "bound": bound,
            "said": f"a plan of {units} that takes {plan.makespan:.3g} s{ratio}",
        }
