"""How inherited hyperparameters change: each is perturbed or drawn anew, and stays what the space allows."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from typing import Final, cast

from hopyard.space import (
    Choice,
    Configuration,
    ConstraintsError,
    IntUniform,
    JsonValue,
    LogInt,
    LogUniform,
    Parameter,
    Space,
    Uniform,
    below,
    did_you_mean,
)

FACTORS: Final = (0.8, 1.2)


def explored(
    space: Space, inherited: Mapping[str, object], frozen: Collection[str], resample: float, rng: random.Random
) -> Configuration:
    """A configuration near another one.

    Each hyperparameter is, on its own, drawn anew with the chance `resample`, otherwise perturbed: see `perturbed`. One that the
    conditions of others let in is drawn, one that they do not is left out. What does not fit the constraints is drawn again, all of it.

    Args:
        space: Where the result lies.
        inherited: The other one. What it has outside of the space is drawn anew.
        frozen: Dotted names of parameters that keep their values; see `closure`.
        resample: In [0, 1].
        rng: The only source of chance.

    Returns:
        The configuration; an equal one if hardly any other fits the constraints.
    """
    values = space.flat(inherited)

    def value_of(name: str, parameter: Parameter) -> JsonValue:
        if name not in values or not (name in frozen or parameter.contains(values[name])):
            return parameter.sample(rng)
        if name in frozen:
            return values[name]
        if rng.random() < resample:
            return parameter.sample(rng)
        return perturbed(parameter, values[name], rng)

    try:
        return space.fitting(lambda _: space.build(value_of))
    except ConstraintsError:
        return cast(Configuration, dict(inherited))


def perturbed(parameter: Parameter, value: JsonValue, rng: random.Random) -> JsonValue:
    """A value near another one of the same parameter.

    A number is multiplied by 0.8 or 1.2 and stays within its bounds; one of several steps goes to the nearest step, at least to the
    next one. Of listed values it is one of the two beside it, of which the first and the last have but one. A constant stays.
    """
    up = below(rng, 2) == 1
    if isinstance(parameter, LogUniform) or (isinstance(parameter, Uniform) and parameter.step is None):
        return min(max(cast(float, value) * FACTORS[up], parameter.low), parameter.high)
    if parameter.size is None:
        return value
    index, last = parameter.index(value), parameter.size - 1
    if isinstance(parameter, IntUniform | LogInt | Uniform):
        return parameter.at(min(max(_stepped(parameter, index, up), 0), last))
    if isinstance(parameter, Choice) and last:
        return parameter.at(index + 1 if index == 0 or (up and index < last) else index - 1)
    return value


def _stepped(parameter: IntUniform | LogInt | Uniform, index: int, up: bool) -> int:
    """The step nearest to the multiple of a step's value; another one than it is."""
    value, origin = parameter.at(index), parameter.at(0)
    wanted = value * FACTORS[up]
    nearest = round((wanted - origin) / (parameter.at(1) - origin))
    if nearest != index:
        return nearest
    rises = wanted > value if value else up
    return index + 1 if rises else index - 1


def closure(space: Space, named: Iterable[str]) -> frozenset[str]:
    """The parameters that must keep their values so that those named do: a group's name stands for all that is in it.

    With a parameter those are frozen that its conditions ask for: else it might come and go.

    Raises:
        ValueError: There is nothing of a name.
    """
    found: dict[str, None] = {}
    for name in named:
        meant = [leaf for leaf in space if leaf == name or leaf.startswith(f"{name}.")]
        if not meant:
            raise ValueError(
                f"frozen names {name!r}, which is not a parameter of the space{did_you_mean(name, space)}; it has: "
                f"{', '.join(space)}"
            )
        found.update(dict.fromkeys(meant))
    open_ = list(found)
    while open_:
        for condition in space.conditions(open_.pop()):
            if condition.name not in found:
                found[condition.name] = None
                open_.append(condition.name)
    return frozenset(found)
