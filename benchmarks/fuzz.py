"""Does anything go wrong in random searches? Searches with all policies of Hopyard are drawn by seed and simulated.

    python benchmarks/fuzz.py [--searches 2000] [--seed 0] [--policies default,asha] [--json]
    python benchmarks/fuzz.py --only 1474 [--reduce]

Each search is drawn from its seed (`fuzzing/drawing.py`): policy and parameters, configurations, where the program reports and where it
ends, slots, costs, faults, settings, groups, what users and clients do meanwhile, and later searches. An exception is a finding, and so
is a violated invariant (`fuzzing/watching.py`):

* each run trains something: it does not begin at its end and does not go back;
* without faults nothing is trained twice;
* each curve has all reports of its program up to the last one, with the values that follow from the configuration;
* at the end no run, slot, question or pin is left;
* a replay of the journal gives the same answers and the same end.

`--only` runs one search and raises its error. `--reduce` first removes everything from it that the error does not need. The exit code
is 1 if there are findings.
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
    """The result of many searches.

    Attributes:
        searches: Number of searches by policy.
        refused: Number of searches by policy that the simulator refused as invalid.
        findings: What was wrong, by the seed of the search.
        cpu_seconds: CPU time of all searches.
    """

    searches: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    findings: dict[str, str] = field(default_factory=dict)
    cpu_seconds: float = 0.0


def hunt(first: int, count: int, policies: list[str], *, quiet: bool) -> Found:
    """Run `count` searches with the seeds `first`, `first` + 1, ..., and return the result. Findings are printed unless `quiet`."""
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
    """Return the command that repeats a search. It names the policies, because the search is drawn from their list."""
    chosen = "" if policies == list(POLICIES) else f" --policies {','.join(policies)}"
    return f"python benchmarks/fuzz.py --only {seed}{chosen}"


def kind(wrong: str) -> str:
    """Return what identifies an error in different searches: the exception and the line that raised it."""
    return f"{wrong.partition(':')[0]} {wrong.rpartition('(')[2]}"


def only(seed: str, policies: list[str], *, reduce: bool) -> None:
    """Run one search, and raise its error. With `reduce`, reduce it to the smallest search with the same error before."""
    case = draw(seed, policies)
    wrong = said(case)
    if wrong and reduce:
        case = reduced(case, lambda one: kind(said(one)) == kind(wrong))
    print(case)
    run(case)
    print("no finding")


def table(found: Found) -> str:
    """Return the result as text."""
    lines = ["policy           searches  refused"]
    lines += [f"{name:16} {found.searches[name]:8}  {found.refused[name]:7}" for name in sorted(found.searches)]
    return "\n".join([*lines, f"{len(found.findings)} findings, {found.cpu_seconds:.0f} CPU seconds"])


def main() -> int:
    """Run the command line, and return the exit code."""
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
