"""How much does it save to train common beginnings only once? Simulated, on the search spaces of the Hippo paper.

    python benchmarks/stage_tree.py [--spaces resnet56_large,...] [--slots 40] [--snapshot 0.01] [--json]

Each search is simulated trial by trial (`default`, `sha`, ...) and on a stage tree with the same tuner, the same slots and the same
costs: a snapshot, and a start from one, take a part of an epoch each. Runs save only where they end and where trials branch off.
Metrics depend only on the state, so both searches see the same values. `saved` is the ratio of their slot-hours, `p` the merge rate of
the space, `bound` a lower bound of the time that any schedule needs (Hu's level bound), and `again` the number of reports that were
trained more than once. Slot-hours and times are those of the simulator, in epochs; for bert, an epoch is 1,000 steps.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from hopyard._common.plugins import GENERATORS, load_plugin
from hopyard.generator import Generator
from hopyard.sequences import PrefixTree, Request, as_sequence
from hopyard.spec import load_search
from hopyard_simulator import Costs, Lesson, Result, Workload, simulate

SPACES = Path(__file__).parent / "stage_tree"
HALVING: Mapping[str, Any] = {"eta": 4, "rungs": (15, 60, 120)}
"""Reduction 4, min 15, max 120 (Hippo, Table 1): one bracket trains 448 trials to 15, 112 to 60 and 28 to 120."""

TUNERS: Mapping[str, Mapping[str, Any]] = {
    "grid": {"name": "default"},
    "sha": {"name": "sha", **HALVING},
    "asha": {"name": "asha", **HALVING, "brackets": [0]},
    "asha_standard": {"name": "asha", **HALVING},
}
"""`asha` has one bracket, as in the paper, and `asha_standard` the brackets 0 and 1, which are the policy's default here."""
SAVES: Mapping[str, int] = {"snapshot_every": 0}
"""Runs save only where they end and where trials branch off."""
STEPS = 1000
"""Steps in an epoch, in spaces whose positions are steps."""


class Space(Workload):
    """A search space as a workload for the simulator. Its metric is from 0 to 1 and depends only on the state."""

    metric = "accuracy"

    def __init__(self, name: str) -> None:
        spec = load_search((SPACES / f"{name}.yaml").read_text(encoding="utf-8"), name)
        kind = cast("type[Generator]", load_plugin(GENERATORS, spec.generator.name, Generator))
        generator = kind(spec.search_space, spec.generator.seed, **spec.generator.parameters)
        found: list[Mapping[str, Any]] = []
        while len(found) != spec.stop.jobs and (made := generator.create(str(len(found)), len(found))) is not None:
            found.append(made)
        assert spec.stop.max_iterations is not None
        self.every = STEPS if spec.stop.max_iterations > 10 * STEPS else 1
        self.max_position = spec.stop.max_iterations
        self.found = found
        self.tree = PrefixTree(Request(each, self.max_position) for each in found)
        # A program may also save at each position where a trial branches off.
        stops = {branch.stop for root in self.tree.roots for branch in root.all()}
        self.positions = sorted(stops.union(range(self.every, self.max_position + 1, self.every)))
        self._lessons = {json.dumps(each, sort_keys=True): self._lesson(each) for each in found}

    def reports(self, tree: PrefixTree) -> int:
        """Return the number of reports on a tree if nothing is trained twice."""
        return sum(
            branch.start < p <= branch.stop for root in tree.roots for branch in root.all() for p in self.positions
        )

    def configurations(self, order_seed: int | None) -> Sequence[Mapping[str, Any]]:
        """Return all configurations, shuffled by `order_seed`; None: not shuffled."""
        order = list(self.found)
        if order_seed is not None:
            random.Random(order_seed).shuffle(order)
        return order

    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        """Return the reports of a configuration."""
        return self._lessons[json.dumps(hyperparameters, sort_keys=True)]

    def _lesson(self, given: Mapping[str, Any]) -> Lesson:
        """Compute the reports: the metric approaches a goal that depends on the values in force, so it depends on the past only."""
        sequences = {name: as_sequence(value) for name, value in sorted(given.items())}
        level, before, values, seconds = 0.0, 0, [], []
        for position in self.positions:
            in_force = json.dumps({name: s.value(before) for name, s in sequences.items()})
            seconds.append((position - before) / self.every)
            level += (random.Random(in_force).random() - level) * (1 - 0.95 ** seconds[-1])
            values.append(level)
            before = position
        return Lesson(values, seconds, self.positions)


def measure(space: Space, tuner: str, slots: int, cost: float) -> dict[str, Any]:
    """Simulate one search trial by trial and on a stage tree; return the figures."""
    costs = Costs(snapshot=cost, resume=cost)
    given = dict(TUNERS[tuner])
    if "rungs" in given:
        given["rungs"] = [rung * space.max_position // 120 for rung in given["rungs"]]
    name = given.pop("name")
    begun = time.perf_counter()
    alone = simulate(space, name, slots=slots, costs=costs, parameters={**given, **SAVES})
    between = time.perf_counter()
    tree = simulate(
        space,
        "stage_tree",
        slots=slots,
        costs=costs,
        parameters={"tuner": {"name": name, **given}, **SAVES},
        details=True,
    )
    known = _trained(space, tree)
    unique, bound = space.reports(known), math.ceil(known.makespan_lower_bound(slots) / space.every)
    return {
        "trials": len(space.found),
        "p": space.tree.total / space.tree.unique,
        "tuner": tuner,
        "slots": slots,
        "snapshot": cost,
        "hours_alone": alone.job_seconds,
        "hours": tree.job_seconds,
        "saved": alone.job_seconds / tree.job_seconds,
        "time_alone": alone.time,
        "time": tree.time,
        "faster": alone.time / tree.time,
        "bound": bound,
        "over_bound": tree.time / bound,
        "trained": tree.iterations,
        "unique": unique,
        "unique_of_space": space.reports(space.tree),
        "again": tree.iterations - unique,
        "best_alone": alone.best,
        "best": tree.best,
        "simulated_in": [round(between - begun, 1), round(time.perf_counter() - between, 1)],
    }


def _trained(space: Space, result: Result) -> PrefixTree:
    """Return the tree of what was trained, each state once."""
    assert result.curves is not None
    reached = {int(job): max(int(p or 0) for _, p, _ in reports) for job, reports in result.curves.items() if reports}
    return PrefixTree(Request(space.found[job - 1], position) for job, position in reached.items())


def main() -> int:
    """Run the command line: print a table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--spaces", default=",".join(sorted(file.stem for file in SPACES.glob("*.yaml"))))
    parser.add_argument("--tuners", default=",".join(TUNERS))
    parser.add_argument("--slots", type=int, default=40)
    parser.add_argument("--snapshot", type=float, default=0.01, help="cost of a snapshot, in epochs")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = []
    if not given.json:
        sys.stdout.write("space            tuner         trials    p  saved faster    time  bound  ratio  again\n")
    for name in given.spaces.split(","):
        space = Space(name)
        for tuner in given.tuners.split(","):
            row = {"space": name, **measure(space, tuner, given.slots, given.snapshot)}
            rows.append(row)
            if not given.json:
                sys.stdout.write(
                    "{space:<16} {tuner:<13} {trials:>6} {p:>4.2f} {saved:>6.2f} {faster:>6.2f} {time:>7.1f} {bound:>6} "
                    "{over_bound:>6.3f} {again:>6}\n".format(**row)
                )
                sys.stdout.flush()
    if given.json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
