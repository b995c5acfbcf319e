"""Runs the parts of the record on several processes."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Literal

from tests.golden import hand_worked, live, searches, simulation
from tests.golden.archive import Archive, Unit
from tests.golden.case import Part
from tests.golden.difference import Difference, compare

PARTS: Final[dict[str, Part]] = {
    part.name: part for part in (live.PART, hand_worked.PART, simulation.PART, searches.PART)
}
"""All parts, those with the longest units first."""


@dataclass
class Outcome:
    """Result of a unit or of a whole part.

    Attributes:
        cases: How many cases ran.
        steps: How many steps they had.
        seconds: How long they took, summed over processes.
        differences: The differences from the record.
    """

    cases: int = 0
    steps: int = 0
    seconds: float = 0.0
    differences: list[Difference] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Add the outcome of another unit to this one."""
        self.cases += other.cases
        self.steps += other.steps
        self.seconds += other.seconds
        self.differences += other.differences


@dataclass(frozen=True)
class Task:
    """The action for the cases of each unit.

    Attributes:
        action: "compare": compare them with the record; "write": write them.
        archive: The record to compare with, or the archive to write to.
        older: With "compare": a dump with the lines that the record lacks; None: there is none.
    """

    action: Literal["compare", "write"]
    archive: Archive
    older: Archive | None = None

    def perform(self, part: str, unit: str) -> Outcome:
        """Run a unit and return its outcome."""
        begun = time.monotonic()
        try:
            cases = list(PARTS[part].cases(unit))
        except Exception as error:
            if self.action == "write":
                raise
            where = "".join(traceback.format_exception(error, limit=-3))
            failed = Difference(f"{part}/{unit}", f"could not run: {where}")
            return Outcome(seconds=time.monotonic() - begun, differences=[failed])
        outcome = Outcome(len(cases), sum(len(case.lines) for case in cases))
        if self.action == "write":
            self.archive.write(part, unit, cases)
        else:
            older = self.older.read(part, unit) if self.older is not None else Unit()
            outcome.differences = compare(part, cases, self.archive.read(part, unit), older)
        outcome.seconds = time.monotonic() - begun
        return outcome


def units_of(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the units to run, by part.

    Args:
        names: Parts, or units as `part/unit`; empty: everything.

    Raises:
        LookupError: There is no such part or unit.
    """
    found: dict[str, list[str]] = {}
    for name in names or PARTS:
        part, _, unit = name.partition("/")
        if part not in PARTS:
            raise LookupError(f"there is no part {part}; there are {', '.join(PARTS)}")
        there = PARTS[part].units()
        if unit and unit not in there:
            raise LookupError(f"{part} has no unit {unit}; it has {', '.join(there)}")
        found.setdefault(part, []).extend([unit] if unit else there)
    return {part: list(dict.fromkeys(found[part])) for part in PARTS if part in found}


def run(chosen: Mapping[str, Sequence[str]], task: Task, processes: int) -> dict[str, Outcome]:
    """Run the units that `units_of` returns and return the outcome of each part."""
    found: defaultdict[str, Outcome] = defaultdict(Outcome)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        waiting: list[tuple[str, Future[Outcome]]] = [
            (part, pool.submit(task.perform, part, unit)) for part, units in chosen.items() for unit in units
        ]
        for part, future in waiting:
            found[part].add(future.result())
    for part, units in chosen.items():
        if set(units) == set(PARTS[part].units()):
            found[part].differences.extend(_leftover(part, task))
    return dict(found)


def _leftover(part: str, task: Task) -> Iterator[Difference]:
    """Yield recorded units that no longer exist; when writing, delete them."""
    for unit in sorted(task.archive.units(part) - set(PARTS[part].units())):
        if task.action == "write":
            task.archive.drop(part, unit)
        else:
            yield Difference(f"{part}/{unit}", "in the record, but this unit no longer exists")
