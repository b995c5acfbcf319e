"""Reduces a case to a smaller one that has the same error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from fuzzing.drawing import Case
from hopyard_simulator import Costs, Faults, Fleet

_NOTHING: Final[dict[str, Any]] = {
    "costs": Costs(),
    "faults": Faults(),
    "fleet": Fleet(1),
    "terms": {},
    "settings": {},
    "deeds": (),
    "group": (),
    "later": (),
    "target": None,
    "max_time": None,
    "from_scratch": False,
    "seed": 0,
}


def reduced(case: Case, shows: Callable[[Case], bool]) -> Case:
    """Return a smallest case with the error: nothing can be removed from it so that `shows` still returns True."""
    while True:
        smaller = next((one for one in _smaller(case) if shows(one)), None)
        if smaller is None:
            return case
        case = smaller


def _smaller(case: Case) -> Iterator[Case]:
    """Yield the cases that result from removing one thing from a case, larger things first."""
    for name, nothing in _NOTHING.items():
        if getattr(case, name) != nothing:
            yield _with(case, name, nothing)
    for name in ("parameters", "terms", "settings"):
        for key in getattr(case, name):
            yield _with(case, name, {k: v for k, v in getattr(case, name).items() if k != key})
    for name in ("costs", "faults"):
        whole = getattr(case, name)
        for field in fields(whole):
            if getattr(whole, field.name) != field.default:
                yield _with(case, name, replace(whole, **{field.name: field.default}))
    for name in ("deeds", "group", "later"):
        for fewer in _without_one(getattr(case, name)):
            yield _with(case, name, fewer)
    if case.fleet.slots > 1:
        yield replace(case, fleet=replace(case.fleet, slots=case.fleet.slots - 1))
    for fewer in _without_one(case.task.configurations):
        yield replace(case, task=replace(case.task, configurations=fewer))
    for program in (
        replace(case.task.program, ends_early=0),
        replace(case.task.program, strange=0),
        *(replace(case.task.program, positions=fewer) for fewer in _without_one(case.task.program.positions)),
    ):
        if program != case.task.program:
            yield replace(case, task=replace(case.task, program=program))


def _with(case: Case, name: str, value: object) -> Case:
    changed: dict[str, Any] = {name: value}
    return replace(case, **changed)


def _without_one(whole: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the sequence without each of its items in turn; nothing if it has only one item."""
    for index in range(len(whole) if len(whole) > 1 else 0):
        yield (*whole[:index], *whole[index + 1 :])
