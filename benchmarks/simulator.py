"""How fast is the simulator, how much memory does it use, and does the same seed give the same bytes?

    python benchmarks/simulator.py [--runs 3] [--jobs 60000] [--slots 500] [--json]

Each measurement is a separate process. The medians are shown, in CPU seconds and wall seconds, because hosts are noisy. An event is an
event of the scheduler's core: a report, a start, an answer of the policy, and so on. The baseline is the empty loop: the same number of
actions on the same timeline, without core, policy and runs.

* long jobs: 500 configurations with 100 positions on 8 slots;
* many slots: `--jobs` configurations with 16 positions on `--slots` slots. Bandit decides after the first position of each, so most end
  there, as in an asynchronous search with thousands of configurations.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from hopyard_simulator import CurveWorkload, Result, simulate
from hopyard_simulator.event_heap import EventHeap


def workload(jobs: int, positions: int) -> CurveWorkload:
    """Return saturating curves, with final values spread evenly between 0 and 1, and 1 to 2 seconds per position."""
    configurations = [
        {"asymptote": (job * 0.6180339887498949) % 1.0, "pace": 1 + (job * 0.414213562) % 1} for job in range(jobs)
    ]

    def curve(given: Mapping[str, Any], position: int) -> float:
        return float(given["asymptote"]) * (1 - math.exp(-position / 4))

    return CurveWorkload(curve, configurations, positions, seconds=lambda given, _: float(given["pace"]))


def long_jobs(_: argparse.Namespace) -> Result:
    return simulate(workload(500, 100), "default", slots=8)


def many_slots(arguments: argparse.Namespace) -> Result:
    bandit = {"evaluation_boundary": 1, "epsilon": 0.25}
    return simulate(workload(arguments.jobs, 16), "bandit", slots=arguments.slots, parameters=bandit)


CASES: dict[str, Callable[[argparse.Namespace], Result]] = {"long jobs": long_jobs, "many slots": many_slots}


def empty_loop(actions: int) -> float:
    """Return the CPU seconds of a timeline with `actions` actions that do nothing."""
    timeline = EventHeap()

    def nothing() -> None:
        if timeline.taken + 8 <= actions:
            timeline.later(1.0, nothing)

    began = time.process_time()
    for _ in range(8):
        timeline.later(1.0, nothing)
    while timeline.step():
        pass
    return time.process_time() - began


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one case in this process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    result = CASES[arguments.case](arguments)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    plain = json.dumps(result.plain(), sort_keys=True, allow_nan=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "case": arguments.case,
        "events": result.events,
        "jobs": result.jobs_started,
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "events_per_second": result.events / wall,
        "events_per_cpu_second": result.events / cpu,
        "empty_loop_seconds": empty_loop(result.events),
        "peak_mb": peak / 1e3,
        "grown_mb": (peak - before) / 1e3,
        "virtual_seconds": result.time,
        "sha256": hashlib.sha256(plain.encode()).hexdigest(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=60_000)
    parser.add_argument("--slots", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(arguments)))
        return
    rows = []
    for case in CASES:
        command = [
            sys.executable,
            __file__,
            "--case",
            case,
            "--jobs",
            str(arguments.jobs),
            "--slots",
            str(arguments.slots),
        ]
        runs = []
        for number in range(arguments.runs):
            runs.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            print(f"{case} {number + 1}/{arguments.runs}: {runs[-1]['wall_seconds']:.1f} s", file=sys.stderr)
        medians = {
            key: statistics.median(run[key] for run in runs)
            for key, value in runs[0].items()
            if isinstance(value, float | int)
        }
        rows.append({"case": case, **medians, "same_bytes": len({run["sha256"] for run in runs}) == 1})
    if arguments.json:
        print(json.dumps({"settings": vars(arguments), "rows": rows}))
        return
    heads = f"{'events':>8} {'wall s':>7} {'CPU s':>7} {'events/s':>9} {'loop alone s':>13} {'peak MB':>8}  same bytes"
    print(f"{'case':14} {'jobs':>6} {heads}")
    for row in rows:
        print(
            f"{row['case']:14} {row['jobs']:6.0f} {row['events']:8.0f} {row['wall_seconds']:7.1f} {row['cpu_seconds']:7.1f} "
            f"{row['events_per_second']:9.0f} {row['empty_loop_seconds']:13.2f} {row['peak_mb']:8.0f}  {row['same_bytes']}"
        )


if __name__ == "__main__":
    main()
