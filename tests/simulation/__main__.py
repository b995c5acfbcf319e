"""`python -m tests.simulation`: run many schedules and count their faults, or print the events of one schedule."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.bugs import BUGS
from tests.simulation.probes import PROBES
from tests.simulation.schedule import Outcome, run

CHUNK = 50
EVENTS = 200


def _chunk(probe: str, first: int, count: int, events: int) -> list[Outcome]:
    return [run(probe, first + index, events) for index in range(count)]


def command(schedule: str, events: int = EVENTS) -> str:
    """Return the command that repeats a schedule (`probe:seed`) and prints its events; a schedule depends on the number of events."""
    probe, _, seed = schedule.rpartition(":")
    longer = f" --events {events}" if events != EVENTS else ""
    return f"python -m tests.simulation --probe {probe} --seed-of-failure {seed}{longer} --trace"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def simulate(probes: list[str], schedules: int, events: int, seed: int, jobs: int) -> int:
    """Run `schedules` schedules of each probe and print the counts; return the number of failures."""
    began = time.monotonic()
    failures = 0
    total: Counter[str] = Counter()
    seen = ran = 0
    with ProcessPoolExecutor(jobs) as pool:
        for probe in probes:
            firsts = range(seed, seed + schedules, CHUNK)
            waiting = [
                pool.submit(_chunk, probe, first, min(CHUNK, seed + schedules - first), events) for first in firsts
            ]
            counts: Counter[str] = Counter()
            outcomes = fewest = taken = accepted = 0
            for future in waiting:
                for outcome in future.result():
                    outcomes += 1
                    taken += outcome.events
                    accepted += outcome.reports
                    fewest = min(fewest or outcome.events, outcome.events)
                    counts.update(outcome.faults)
                    if outcome.error:
                        failures += 1
                        _say(f"FAILED {outcome.seed} after {outcome.events} events: {outcome.error}")
                        _say(f"  repeat it: {command(outcome.seed, events)}")
            _say(
                f"{probe}: {outcomes} schedules, {taken} core events (at least {fewest} each), "
                f"{accepted} reports accepted, {sum(counts.values())} faults"
            )
            total.update(counts)
            seen += taken
            ran += outcomes
    _say(f"all: {ran} schedules, {seen} core events, {time.monotonic() - began:.0f} seconds, {failures} failures")
    for kind, count in sorted(total.items()):
        _say(f"  {kind:32} {count:>10}")
    return failures


def find_bugs(schedules: int, events: int) -> int:
    """Seed each bug and run schedules until one finds it; return the number of bugs that were not found."""
    missed = 0
    for name, bug in BUGS.items():
        for number in range(schedules):
            probe = bug.probes[number % len(bug.probes)]
            with bug.seeded():
                outcome = run(probe, number, events)
            if outcome.error:
                _say(f"{name}: found at schedule {number + 1} ({outcome.seed}): {outcome.error[:160]}")
                break
        else:
            missed += 1
            _say(f"{name}: NOT FOUND in {schedules} schedules")
    return missed


def main() -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=100, help="schedules, divided among the probes")
    parser.add_argument(
        "--events", type=int, default=EVENTS, help="core events under faults, at least, in each schedule"
    )
    parser.add_argument("--probe", choices=[*PROBES, "all"], default="all")
    parser.add_argument("--seed", type=int, default=0, help="the first schedule's seed; the others count on from it")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed-of-failure", type=int, help="run this one schedule only")
    parser.add_argument("--trace", action="store_true", help="with --seed-of-failure: tell its story, event by event")
    parser.add_argument("--bugs", action="store_true", help="seed each known bug and show which schedule finds it")
    arguments = parser.parse_args()
    if arguments.trace and arguments.seed_of_failure is None:
        parser.error("--trace needs --seed-of-failure: the schedule whose events are printed")
    if arguments.bugs:
        return min(find_bugs(1000, arguments.events), 1)
    probes = list(PROBES) if arguments.probe == "all" else [arguments.probe]
    each = -(-arguments.schedules // len(probes))
    if arguments.seed_of_failure is None:
        return min(simulate(probes, each, arguments.events, arguments.seed, arguments.jobs), 1)
    failed = 0
    for probe in probes:
        outcome = run(probe, arguments.seed_of_failure, arguments.events, arguments.trace)
        for line in outcome.story:
            _say(line)
        _say(
            f"{outcome.seed}: {outcome.events} events, {dict(outcome.faults)}: {outcome.error or 'all invariants hold'}"
        )
        failed += bool(outcome.error)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
