"""Does anything go wrong in random searches? Simulated ones, by seed, of all policies that come with Hopyard.

    python benchmarks/fuzz.py [--searches 2000] [--seed 0] [--policies default,asha] [--json]
    python benchmarks/fuzz.py --only 1474 [--reduce]

Each search is drawn from its seed (`fuzzing/drawing.py`): policy and parameters, configurations, where the program reports (every
few positions, anywhere, beyond the end) and where it ends by itself, slots, costs, faults, terms, groups, what people and
clients do meanwhile, later searches. An exception is a finding, and so is what is not as it must be (`fuzzing/watching.py`):

* no run begins where it is to end, goes back, or trains nothing;
* without faults nothing is trained twice;
* every curve has all reports of its program up to the last, with the values that follow from the configuration;
* in the end no run, slot, question or pin is left;
* from the journal everything is the same again.

`--only` runs one search, and raises what is wrong with it; `--reduce` first leaves out of it whatever it does not take. Exits with 1 if
there are findings.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from fuzzing.drawing import POLICIES, draw
from fuzzing.reducing import reduced
from fuzzing.searching import run, said


@dataclass
class Found:
    """What came of many searches."""

    searches: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    findings: dict[str, str] = field(default_factory=dict)
    cpu_seconds: float = 0.0


def hunt(first: int, count: int, policies: list[str], *, quiet: bool) -> Found:
    """Runs so many searches."""
    found, begun = Found(), time.process_time()
    for number in range(first, first + count):
        case = draw(str(number), policies)
        wrong = said(case)
        found.searches[case.policy] += 1
        if wrong.startswith("REFUSED"):
            found.refused[case.policy] += 1
        elif wrong:
            found.findings[case.name] = f"{case.policy}: {wrong}"
            if not quiet:
                print(f"{case.name} {found.findings[case.name]}", flush=True)
                print(f"  repeat it: {command(case.name, policies)}", flush=True)
    found.cpu_seconds = time.process_time() - begun
    return found


def command(seed: str, policies: list[str]) -> str:
    """The command that repeats a search. The policies to choose from are a part of what is drawn."""
    chosen = "" if policies == list(POLICIES) else f" --policies {','.join(policies)}"
    return f"python benchmarks/fuzz.py --only {seed}{chosen}"


def kind(wrong: str) -> str:
    """What two searches show alike: the exception and where it was raised."""
    return f"{wrong.partition(':')[0]} {wrong.rpartition('(')[2]}"


def only(seed: str, policies: list[str], *, reduce: bool) -> None:
    """One search; raises what is wrong with it."""
    case = draw(seed, policies)
    wrong = said(case)
    if wrong and reduce:
        case = reduced(case, lambda one: kind(said(one)) == kind(wrong))
    print(case)
    run(case)
    print("no finding")


def table(found: Found) -> str:
    """The figures for people."""
    lines = ["policy           searches  refused"]
    lines += [f"{name:16} {found.searches[name]:8}  {found.refused[name]:7}" for name in sorted(found.searches)]
    return "\n".join([*lines, f"{len(found.findings)} findings, {found.cpu_seconds:.0f} CPU seconds"])


def main() -> int:
    """Runs the command line. Returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first; the others count on from it")
    parser.add_argument("--policies", default=",".join(POLICIES), help="those to choose from")
    parser.add_argument("--only", metavar="SEED", help="this search alone")
    parser.add_argument("--reduce", action="store_true", help="with --only: the smallest that shows the same")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    policies = given.policies.split(",")
    if strange := set(policies) - set(POLICIES):
        parser.error(f"there is no policy {', '.join(sorted(strange))}; there are {', '.join(POLICIES)}")
    if given.only is not None:
        only(given.only, policies, reduce=given.reduce)
        return 0
    found = hunt(given.seed, given.searches, policies, quiet=given.json)
    print(json.dumps(vars(found)) if given.json else table(found))
    return 1 if found.findings else 0


if __name__ == "__main__":
    sys.exit(main())
