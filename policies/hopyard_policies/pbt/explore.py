"""Exploration of PBT: changes the hyperparameters that a copy inherits, within the space."""

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
    """Return a configuration near an inherited one.

    Each hyperparameter is independently resampled with probability `resample`, otherwise perturbed (see `perturbed`).
    If the conditions of the space enable further parameters for the new values, these are sampled; parameters that the
    conditions disable are omitted. If the result violates a constraint, the whole configuration is drawn again.

    Args:
        space: The search space.
        inherited: The configuration to start from. Values outside the space are resampled.
        frozen: Dotted names of parameters that keep their values; see `closure`.
        resample: Probability in [0, 1].
        rng: The source of random numbers.

    Returns:
        The new configuration; a copy of `inherited` if none of 1000 draws satisfies the constraints.
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
    """Return a value near a given value of a parameter.

    A number is multiplied by 0.8 or 1.2 and clipped to its bounds. A number with steps moves to the nearest step, by at
    least one. A choice moves to one of its two neighbours in the list. A constant stays.

    Args:
        parameter: The parameter.
        value: The given value, within the parameter's domain.
        rng: The source of random numbers.
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
    """Return the index of the step nearest to the perturbed value, at least one step from `index`.

    Args:
        parameter: The parameter, with steps.
        index: The index of the given value.
        up: Whether the value is multiplied by 1.2 instead of 0.8.
    """
    value, origin = parameter.at(index), parameter.at(0)
    wanted = value * FACTORS[up]
    nearest = round((wanted - origin) / (parameter.at(1) - origin))
    if nearest != index:
        return nearest
    rises = wanted > value if value else up
    return index + 1 if rises else index - 1


def closure(space: Space, named: Iterable[str]) -> frozenset[str]:
    """Return the names of all parameters that must stay unchanged so that the named ones do.

    The name of a group is the name of all its parameters. The parameters that a frozen parameter's conditions refer to are
    frozen too, because their change might enable or disable the frozen parameter.

    Raises:
        ValueError: A name is not in the space.
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
