"""Seeded schedules of the fault simulation: each event with the effects that follow from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from tests.golden import product
from tests.golden.canonical import dump
from tests.golden.case import Case, Part

SEEDS: Final = 20
"""Number of schedules of each probe and of each policy."""

KEPT: Final = 3
"""Number of schedules of each unit that the record contains in full."""

EVENTS: Final = 200

PARAMETERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "asha": {"eta": 2, "brackets": [0, 1]},
    "async_hyperband": {"eta": 2},
    "bandit": {"evaluation_boundary": 2, "epsilon": 0.2},
    "bohb": {"eta": 2},
    "default": {},
    "earlyterm": {"evaluation_boundary": 2},
    "hyperband": {"eta": 2},
    "median": {"evaluation_boundary": 2, "least_jobs": 1},
    "mop": {"barrier": True},
    "pbt": {"population": 3, "interval": 2, "truncation": 0.5},
    "pop": {"evaluation_boundary": 2},
    "pop_plus": {"first_look": 2},
    "sha": {"eta": 2, "brackets": [0, 1], "width": 3},
    "stage_tree": {"save_every": 2},
}
"""Parameters with which policies decide often enough in these short jobs."""

_PROBE: Final = "probe_"
_POLICY: Final = "policy_"
_DEFAULTS: Final = "defaults"


def units() -> list[str]:
    """Return a unit for each probe and each built-in policy, and one for the defaults of events and effects."""
    return [*schedules(), _DEFAULTS]


def schedules() -> list[str]:
    """Return a unit for each probe and each built-in policy."""
    return [f"{_PROBE}{name}" for name in product.probes()] + [f"{_POLICY}{name}" for name in product.policies()]


def cases(unit: str) -> Iterator[Case]:
    """Yield the schedules of a probe or a policy, or the defaults of fields: steps leave out fields at their defaults."""
    if unit == _DEFAULTS:
        for name, types in (("events", product.event_types()), ("effects", product.effect_types())):
            yield Case(f"{unit}:{name}", sorted(dump(product.CANON.defaults(each)) for each in types))
        return
    for seed in range(SEEDS):
        yield Case(f"{unit}:{seed}", schedule(unit, seed), kept=seed < KEPT)


def schedule(unit: str, seed: int, events: int = EVENTS, most: int | None = None) -> Sequence[str]:
    """Run one schedule.

    Args:
        unit: The probe or policy.
        seed: Seed of the schedule.
        events: The least number of external events.
        most: Stop after so many steps; None: run it to its end.

    Returns:
        A line for each event that the engine handled, and one for the outcome if the schedule was not stopped before.
    """
    lines: list[str] = []

    def observer(event: Any, effects: list[Any]) -> None:
        lines.append(dump(step(event, effects)))
        if len(lines) == most:
            raise StepLimitReached

    with _registered(unit) as name, product.observed(observer), suppress(StepLimitReached):
        outcome = product.schedule(name, seed, events)
        lines.append(dump({"name": "the outcome", "outcome": product.CANON.plain(outcome)}))
    return lines


class StepLimitReached(BaseException):
    """Ends a schedule after the requested number of steps. It is not an `Exception`, so that the simulation does not catch it."""


@contextmanager
def _registered(unit: str) -> Iterator[str]:
    """Register a unit while the context is open, and yield its name in the simulation."""
    if not unit.startswith(_POLICY):
        yield unit.removeprefix(_PROBE)
        return
    policy = unit.removeprefix(_POLICY)
    with product.probe(unit, product.policies()[policy], PARAMETERS.get(policy, {})):
        yield unit


def step(event: Any, effects: Sequence[Any]) -> dict[str, Any]:
    """Return an event with its effects; the text "(this event)" replaces a field of an effect that repeats the event."""
    taken = product.CANON.plain(event)
    return {"event": taken, "effects": [_without(taken, product.CANON.plain(effect)) for effect in effects]}


def _without(event: Any, effect: dict[str, Any]) -> dict[str, Any]:
    return {key: "(this event)" if value == event else value for key, value in effect.items()}


PART: Final = Part("simulation", "events and effects of seeded schedules under faults", units, cases)
