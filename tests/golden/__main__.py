"""Compares the behavior of the code with the golden record, or updates the record."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.golden import journals, product
from tests.golden.archive import RECORD, Archive
from tests.golden.cluster import ClusterError
from tests.golden.names import REPOSITORY
from tests.golden.runner import PARTS, Outcome, Task, run, units_of

ACTIONS: Final = ("verify", "update", "dump", "record")

EPILOG: Final = """\
actions
  verify [PART...]    run the code and compare it with the record; exit code 1 on a difference (the default)
  update [PART...]    write what the code does now into the record; the commit says what changed and why
  dump DIR [PART...]  write what the code does now into DIR with the full text of every step, for --against
  record [POLICY...]  run a live cluster for each policy and keep its journal; then update the part `live`

parts
{parts}

examples
  python -m tests.golden                          everything, as `make golden` does
  python -m tests.golden simulation               one part
  python -m tests.golden simulation/policy_asha   one unit of it: a probe or a policy
  python -m tests.golden dump /tmp/before         on the commit before a change
  python -m tests.golden --against /tmp/before    on the change: every difference is shown field by field
  python -m tests.golden update live              accept an intended change of one part

A rename is no difference: add it to tests/golden/names.toml. docs/golden.md explains the record."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    action = given.pop(0) if given and given[0] in ACTIONS else "verify"
    parser = _parser()
    options = parser.parse_args(given)
    names: list[str] = options.names
    for name, origin in product.origins().items():
        if not origin.is_relative_to(REPOSITORY):
            parser.error(f"{name} is loaded from {origin}, outside of this working tree ({REPOSITORY}): set PYTHONPATH")
    if options.processes < 1:
        parser.error(f"--processes: found {options.processes}, allowed are numbers of at least 1")
    if options.against is not None and not options.against.is_dir():
        parser.error(f"--against: no folder {options.against}")
    if action == "record":
        if unknown := sorted(set(names) - product.policies().keys()):
            parser.error(f"record: no policy {', '.join(unknown)}; there are {', '.join(product.policies())}")
        try:
            for name in journals.record(list(dict.fromkeys(names))):
                _say(f"recorded {name}")
        except ClusterError as error:
            parser.exit(1, f"{error}\n")
        return 0
    if action == "dump":
        if not names:
            parser.error("dump: name the folder to write into")
        folder = Path(names.pop(0))
        if folder.exists() and not folder.is_dir():
            parser.error(f"dump: {folder} is not a folder")
        task = Task("write", Archive(folder, whole=True))
    elif action == "update":
        task = Task("write", Archive(RECORD))
    else:
        older = Archive(options.against, whole=True) if options.against is not None else None
        task = Task("compare", Archive(RECORD), older)
    try:
        chosen = units_of(names)
    except LookupError as error:
        parser.error(str(error))
    begun = time.monotonic()
    outcomes = run(chosen, task, options.processes)
    seconds = time.monotonic() - begun
    differences = [difference for outcome in outcomes.values() for difference in outcome.differences]
    if options.json:
        _say(json.dumps({"action": action, "seconds": seconds, "parts": _plain(outcomes)}, indent=2))
    else:
        _tell(outcomes, options.all)
        found = f"{len(differences)} cases differ" if differences else "no difference"
        _say(f"{'written' if task.action == 'write' else found}; {seconds:.0f} seconds")
    return 1 if differences else 0


def _parser() -> argparse.ArgumentParser:
    parts = "\n".join(f"  {part.name:12}        {part.about}" for part in PARTS.values())
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden",
        usage="python -m tests.golden [verify | update | dump DIR | record] [PART...] [options]",
        description=__doc__,
        epilog=EPILOG.format(parts=parts),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="PART", help="parts, or units as PART/UNIT; without any: everything"
    )
    parser.add_argument("--against", type=Path, metavar="DIR", help="a dump of the code before the change")
    parser.add_argument("--all", action="store_true", help="show every case that differs, not only some of each part")
    parser.add_argument("--processes", type=int, default=2, help="run so many units at a time [default: 2]")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _tell(outcomes: Mapping[str, Outcome], whole: bool) -> None:
    for name, outcome in outcomes.items():
        # Differences that can be shown field by field come first.
        ordered = sorted(outcome.differences, key=lambda one: not one.changes)
        shown = ordered if whole else ordered[:3]
        for difference in shown:
            _say(f"{difference}\n")
        if left := len(outcome.differences) - len(shown):
            _say(f"{name}: {left} more cases differ (--all shows them)\n")
    _say(f"{'part':12} {'cases':>6} {'steps':>8} {'seconds':>8} {'differ':>7}")
    for name, outcome in outcomes.items():
        count = len(outcome.differences)
        _say(f"{name:12} {outcome.cases:6} {outcome.steps:8} {outcome.seconds:8.1f} {count:7}")


def _plain(outcomes: Mapping[str, Outcome]) -> dict[str, object]:
    return {name: dataclasses.asdict(outcome) for name, outcome in outcomes.items()}


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
