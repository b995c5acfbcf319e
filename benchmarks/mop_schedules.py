"""How good are the schedules of model hopper parallelism, and how long does planning take?

    python benchmarks/mop_schedules.py [--instances 20] [--milp SECONDS] [--milp-instances 1] [--only PART ...] [--json FILE]

The settings are those of section 5.4 of Cerebro: configurations with equal costs or with those of Table 7, and slots with equal speeds
or with those of its four GPUs, drawn with replacement. Each figure is makespan / lower bound, as mean and maximum over all instances.
Planning times are CPU milliseconds, the median. The parts:

* `offline`: the times are known; every scheduler plans the same instances. `one pass` is the default scheduler without restarts.
* `online`: the time of each unit has normal noise of 10 %, and the bound is computed from the real times. `known` knows the times
  without noise, `learned` knows nothing; both are the default scheduler, as the policy uses it.
* `replicas`: each partition has replicas on 2 or 3 neighbouring slots; the bound is that of a linear program.
* `death`: as `replicas`, and a slot fails unexpectedly at 30 % of the schedule; the bound is for a scheduler that knows it in advance.
  The benchmark also checks that each unit was trained exactly once.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hopyard_policies.mop.schedule.bounds import lower_bound, replica_bound
from hopyard_policies.mop.schedule.dispatch import Randomized, Rule
from hopyard_policies.mop.schedule.estimates import Estimates
from hopyard_policies.mop.schedule.milp import NoPlanError
from hopyard_policies.mop.schedule.planning import dispatcher, longest, milp, randomized
from hopyard_policies.mop.schedule.problem import TrainingUnit, VisitProblem, VisitSchedule, check
from hopyard_policies.mop.schedule.replanning import Online
from hopyard_policies.mop.schedule.simulation import carry_out_online

MFLOPS: tuple[int, ...] = (
    727,
    724,
    837,
    360,
    727,
    2000,
    3000,
    2000,
    2000,
    2000,
    16000,
    16000,
    20000,
    2000,
    2000,
    4000,
    4000,
    8000,
    11000,
)
MFLOPS += (4000, 8000, 16000, 6000, 4000, 8000, 11000, 4000, 8000, 21000, 2000, 3000, 8000, 3000, 4000, 579)
"""The costs of the paper's 35 networks (Table 7)."""

TFLOPS = (12.1, 5.6, 11.3, 18.7)
"""The speeds of the paper's GPUs (section 5.4): Titan Xp, K80, GTX 1080, P100."""

NOISE = 0.1
DIES_AT = 0.3
Row = dict[str, Any]


def instance(configs: int, slots: int, mixed: bool, seed: int, replicas: int = 1) -> VisitProblem:
    """Return one instance with a partition per slot, which has `replicas` replicas, on its slot and the next ones.

    Args:
        configs: Number of configurations.
        slots: Number of slots.
        mixed: Whether costs and speeds are drawn from the paper's; otherwise all are equal.
        seed: Seed of the instance.
        replicas: Number of replicas of each partition.
    """
    rng = random.Random(f"{configs}/{slots}/{mixed}/{seed}")
    return VisitProblem(
        costs=[rng.choice(MFLOPS) / 1000 for _ in range(configs)] if mixed else [1.0] * configs,
        sizes=[1.0] * slots,
        speeds=[rng.choice(TFLOPS) for _ in range(slots)] if mixed else [1.0] * slots,
        holders=[sorted((first + more) % slots for more in range(replicas)) for first in range(slots)],
    )


class Figures:
    """Ratios and planning times of several schedulers in one setting."""

    def __init__(self) -> None:
        self.ratios: dict[str, list[float]] = {}
        self.seconds: dict[str, list[float]] = {}

    def add(self, name: str, ratio: float, seconds: float) -> None:
        self.ratios.setdefault(name, []).append(ratio)
        self.seconds.setdefault(name, []).append(seconds)

    def rows(self, part: str, setting: Row) -> Iterator[Row]:
        for name, ratios in self.ratios.items():
            yield {
                "part": part,
                **setting,
                "scheduler": name,
                "instances": len(ratios),
                "mean": statistics.mean(ratios),
                "max": max(ratios),
                "milliseconds": 1000 * statistics.median(self.seconds[name]),
            }


def timed(make: Callable[[], VisitSchedule]) -> tuple[VisitSchedule, float]:
    began = time.process_time()
    schedule = make()
    return schedule, time.process_time() - began


def offline(problem: VisitProblem, seed: int, figures: Figures, milp_seconds: float) -> None:
    bound = lower_bound(problem)
    ways: dict[str, Callable[[], VisitSchedule]] = {
        "longest": lambda: longest(problem, random.Random(seed)),
        "one pass": lambda: longest(problem, random.Random(seed), restarts=1),
        "randomized": lambda: randomized(problem, random.Random(seed)),
    }
    if milp_seconds:
        ways["milp"] = lambda: milp(problem, random.Random(seed), milp_seconds)
    for name, way in ways.items():
        try:
            schedule, seconds = timed(way)
        except NoPlanError:
            figures.add(name, float("inf"), milp_seconds)
            continue
        check(problem, schedule)
        figures.add(name, schedule.makespan / bound, seconds)


def online(problem: VisitProblem, seed: int, figures: Figures) -> None:
    rng = random.Random(f"noise/{seed}")
    noise = {unit: max(rng.gauss(1.0, NOISE), 0.1) for unit in problem.units}

    def actual(unit: TrainingUnit, slot: int) -> float:
        return problem.time(*unit, slot) * noise[unit]

    configs, slots = [0.0] * len(problem.costs), [0.0] * len(problem.speeds)
    for unit in problem.units:
        slot = problem.holders[unit.partition][0]
        configs[unit.config] += actual(unit, slot)
        slots[slot] += actual(unit, slot)
    bound = max(configs + slots)
    chance = random.Random(seed)
    learned = Estimates()
    ways: dict[str, tuple[Callable[[VisitProblem], Rule], Estimates | None]] = {
        "known": (lambda left: dispatcher(left, known=True), None),
        "learned": (lambda left: dispatcher(left, learned.know(range(len(configs)), range(len(slots)))), learned),
        "randomized": (lambda left: Randomized(left, chance), None),
    }
    for name, (make, estimates) in ways.items():
        rule = Online(problem, make, estimates)
        schedule, seconds = timed(lambda rule=rule: carry_out_online(problem, rule, actual))  # type: ignore[misc]
        once(problem, schedule)
        figures.add(name, schedule.makespan / bound, seconds)


def replicas(problem: VisitProblem, seed: int, figures: Figures) -> None:
    bound = replica_bound(problem)
    for name, way in {"longest": longest, "randomized": randomized}.items():
        schedule, seconds = timed(lambda way=way: way(problem, random.Random(seed)))  # type: ignore[misc]
        check(problem, schedule)
        figures.add(name, schedule.makespan / bound, seconds)


def death(problem: VisitProblem, seed: int, figures: Figures) -> None:
    victim = random.Random(seed).randrange(len(problem.speeds))
    chance = random.Random(seed)
    makers: dict[str, Callable[[VisitProblem], Rule]] = {
        "longest": lambda left: dispatcher(left, known=True),
        "randomized": lambda left: Randomized(left, chance),
    }
    moment = DIES_AT * longest(problem, random.Random(seed)).makespan
    bound = replica_bound(problem, {victim: moment})
    for name, make in makers.items():
        rule = Online(problem, make)
        schedule, seconds = timed(
            lambda rule=rule: carry_out_online(problem, rule, lambda u, m: problem.time(*u, m), {victim: moment})  # type: ignore[misc]
        )
        check(problem, schedule)
        figures.add(name, schedule.makespan / bound, seconds)


def once(problem: VisitProblem, schedule: VisitSchedule) -> None:
    """Exit with an error unless the schedule trains each unit exactly once."""
    if sorted(placed.unit for placed in schedule.placed) != sorted(problem.units):
        sys.exit("a unit was lost, or trained twice")


def measure(arguments: argparse.Namespace) -> Iterator[Row]:
    for part in arguments.only:
        copies = (1,) if part in ("offline", "online") else (2, 3)
        sizes = (16, 256) if part in ("offline", "online") else (16, 64, 256)
        for count in copies:
            for configs in sizes:
                for slots in (8, 16):
                    for mixed in (False, True):
                        figures = Figures()
                        for seed in range(arguments.instances):
                            problem = instance(configs, slots, mixed, seed, count)
                            if part == "offline":
                                limit = arguments.milp if seed < arguments.milp_instances and configs <= 16 else 0.0
                                offline(problem, seed, figures, limit)
                            else:
                                {"online": online, "replicas": replicas, "death": death}[part](problem, seed, figures)
                        setting = {"S": configs, "p": slots, "mixed": mixed, "replicas": count}
                        yield from figures.rows(part, setting)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=20, help="in each setting")
    parser.add_argument(
        "--milp", type=float, default=0.0, metavar="SECONDS", help="for each program; 0: none is solved"
    )
    parser.add_argument("--milp-instances", type=int, default=1, help="in each setting with 16 configurations")
    parts = ("offline", "online", "replicas", "death")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    arguments = parser.parse_args()
    rows = []
    print(
        f"{'part':<9} {'|S|':>4} {'p':>3} {'kind':<6} {'copies':>6} {'scheduler':<10} {'mean':>7} {'max':>7} {'ms':>8}"
    )
    for row in measure(arguments):
        rows.append(row)
        print(
            f"{row['part']:<9} {row['S']:>4} {row['p']:>3} {'mixed' if row['mixed'] else 'alike':<6} {row['replicas']:>6} "
            f"{row['scheduler']:<10} {row['mean']:>7.4f} {row['max']:>7.4f} {row['milliseconds']:>8.1f}",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
