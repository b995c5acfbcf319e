"""Seeded random searches on the simulator: each event in the journal, and the result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.golden import product
from tests.golden.canonical import dump
from tests.golden.case import Case, Part

SEARCHES: Final = 24
"""Number of searches of each policy."""

KEPT: Final = 8
"""Number of searches of each policy that the record contains in full."""


def units() -> list[str]:
    """Return one unit for each built-in policy."""
    return list(product.policies())


def cases(unit: str) -> Iterator[Case]:
    """Yield random searches of a policy.

    Searches planned by the solver of SciPy are left out: which of several best plans it finds differs between its versions.
    """
    done = seed = 0
    while done < SEARCHES:
        case, verdict = product.search(str(seed), unit)
        if product.CANON.attribute(case, "parameters").get("scheduler") != "milp":
            yield Case(f"{unit}:{seed}", lines(verdict), kept=done < KEPT)
            done += 1
        seed += 1


def lines(verdict: Any) -> list[str]:
    """Run a search and return one line for each journal event, each result, and the verdict."""
    found: list[str] = []
    results: list[Any] = []

    def observer(_: Any, effects: list[Any]) -> None:
        for effect in effects:
            if product.NAMES.class_name(type(effect)) == "Record":
                found.append(_record(product.CANON.plain(effect)))

    with product.observed(observer), product.results(results):
        said = verdict()
    found += [dump({"name": "the result", "result": product.CANON.plain(result)}) for result in results]
    return [*found, dump({"name": "the verdict", "verdict": said})]


def _record(record: dict[str, Any]) -> str:
    return dump({"stream": record["stream"], "event": record["event"]})


PART: Final = Part("searches", "journals and results of random searches on the simulator", units, cases)
