"""How much does ASHA gain from elastic jobs, compared with jobs of a fixed number of slots (ASHA paper, section 5.2)?

    python benchmarks/elastic.py [--configurations 64,128,256,512] [--repeats 5] [--slots 32] [--output results.json] [--json]

The searches are simulated, on 32 slots: eta 4, r 1, R 256, one bracket. A unit of training takes one minute on one slot, and 60 / k +
0.3125 log2 k seconds on k slots, so 16 slots are used with an efficiency of 75 %, as for Inception in Figure 6 of the paper. Starting
and resuming take 10 s, a snapshot 2 s, leaving a slot 1 s. Runs save only where they end. A run takes 1 + |z| times as long, with z
normal with standard deviation 0.1 (stragglers). Each cell is the mean over the repeats, in which all see the same configurations in the
same order: when the first configuration is trained to R, when the search ends (no configuration can be promoted any more), the part of
the slots' time in which they had runs, and the slot hours of runs.

Jobs of a fixed size have the same policy with a scaling profile of a single size, so they get that number of slots at once, or none.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hopyard_simulator import Costs, CurveWorkload, Faults, simulate

R = 256
PROFILE = {k: 60 / k + 0.3125 * math.log2(k) for k in (1, 2, 4, 8, 16, 32)}
COSTS = Costs(start=10, resume=10, snapshot=2, suspend=1)
WAYS: Mapping[str, Mapping[int, float]] = {
    **{f"always on {k}": {k: PROFILE[k]} for k in (1, 2, 4, 8, 16)},
    "elastic": PROFILE,
}
FIGURES = ("first_at_R", "time", "utilisation", "slot_hours")


def workload(configurations: int, seed: int) -> CurveWorkload:
    """Return configurations that differ in their final value and in how soon they approach it."""
    rng = random.Random(f"elastic/{seed}")
    jobs = [{"top": rng.random(), "soon": rng.uniform(10, 80)} for _ in range(configurations)]
    return CurveWorkload(lambda job, at: job["top"] * (1 - math.exp(-at / job["soon"])), jobs, R, seconds=PROFILE[1])


def search(way: str, configurations: int, slots: int, seed: int) -> dict[str, float | None]:
    """Simulate one search, and return its figures. `way` is a key of WAYS."""
    result = simulate(
        workload(configurations, seed),
        "asha",
        slots=slots,
        parameters={"brackets": [0], "elastic": {"profile": WAYS[way]}, "snapshot_every": 0},
        seed=seed,
        costs=COSTS,
        faults=Faults(straggling=0.1),
        speedup=lambda k: PROFILE[1] / PROFILE[k],
    )
    hours = result.job_seconds / 3600
    return {
        "first_at_R": result.first_at_R,
        "time": result.time,
        "utilisation": result.utilisation,
        "slot_hours": hours,
    }


def measure(sizes: Sequence[int], slots: int, repeats: int) -> list[dict[str, Any]]:
    """Return one row of means for each number of configurations and each key of WAYS."""
    rows = []
    for configurations in sizes:
        for way in WAYS:
            found = [search(way, configurations, slots, seed) for seed in range(repeats)]
            row: dict[str, Any] = {"configurations": configurations, "way": way}
            for figure in FIGURES:
                values = [one[figure] for one in found]
                known = [value for value in values if value is not None]
                row[figure] = statistics.fmean(known) if len(known) == len(values) else None
            rows.append(row)
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as a Markdown table, with times in minutes."""
    lines = [
        "| configurations | jobs train | first at R, min | over, min | utilisation | slot hours |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        first = "-" if row["first_at_R"] is None else f"{row['first_at_R'] / 60:.0f}"
        lines.append(
            f"| {row['configurations']} | {row['way']} | {first} | {row['time'] / 60:.0f} | {row['utilisation']:.2f} | "
            f"{row['slot_hours']:.1f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--configurations", default="64,128,256,512")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    rows = measure([int(size) for size in given.configurations.split(",")], given.slots, given.repeats)
    document = {"R": R, "slots": given.slots, "repeats": given.repeats, "profile": PROFILE, "rows": rows}
    if given.output:
        given.output.write_text(json.dumps(document, indent=1))
    sys.stdout.write((json.dumps(document) if given.json else table(rows)) + "\n")


if __name__ == "__main__":
    main()
