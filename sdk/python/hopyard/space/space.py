"""A search space: named parameters in a fixed order."""

from __future__ import annotations

import copy
import functools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Self, cast

from hopyard.space.errors import ParameterError, Problem, SpaceError
from hopyard.space.kinds import parameter_from_data
from hopyard.space.parameter import Parameter
from hopyard.space.streams import stream
from hopyard.space.values import Configuration, JsonValue, canonical_json, show


class Space(Mapping[str, Parameter]):
    """Named parameters; a configuration has one value for each.

    Immutable. The order of the names is part of the space: it is the order of a grid's wheels. As a mapping it goes
    from name to parameter (`space["lr"]`, `"lr" in space`); `contains` is about configurations.
    """

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        """Hold `parameters` in their order.

        Raises:
            SpaceError: a name is not text or is empty, or a value is not a `Parameter`.
        """
        problems = [
            Problem((str(name),), f"needs a non-empty name and a Parameter, found {name!r}: {show(parameter)}")
            for name, parameter in cast("Mapping[object, object]", parameters).items()
            if not (name and isinstance(name, str) and isinstance(parameter, Parameter))
        ]
        if problems:
            raise SpaceError(problems)
        self._parameters: Mapping[str, Parameter] = MappingProxyType(dict(parameters))

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Self:
        """Read a written space: names to written parameters, as in an experiment file.

        Raises:
            SpaceError: every problem of every parameter.
        """
        if not isinstance(data, Mapping):
            raise SpaceError([Problem((), f"needs a mapping of names to parameters, found {show(data)}")])
        parameters, problems = dict[str, Parameter](), list[Problem]()
        for name, written in cast("Mapping[object, object]", data).items():
            if not (name and isinstance(name, str)):
                problems.append(Problem((str(name),), f"a parameter's name is non-empty text, found {show(name)}"))
                continue
            try:
                parameters[name] = parameter_from_data(written)
            except ParameterError as error:
                problems.append(Problem((name,), str(error)))
        if problems:
            raise SpaceError(problems)
        return cls(parameters)

    def to_dict(self) -> dict[str, JsonValue]:
        """The written form, plain JSON in the order of the names; `from_dict` gives an equal space back."""
        return {name: parameter.to_data() for name, parameter in self._parameters.items()}

    def sample(self, rng: random.Random) -> Configuration:
        """Draw one configuration.

        One number is taken from `rng`, whatever the space; each parameter has a stream of its own that is derived
        from that number and the parameter's name. So adding, removing or reordering parameters leaves the values of
        the others as they were.
        """
        return self._draw(rng.getrandbits(64))

    def sample_at(self, seed: int, ordinal: int, attempt: int = 0) -> Configuration:
        """The configuration number `ordinal` of the random sequence `seed`, without drawing those before it.

        `attempt` gives further, independent draws for the same ordinal.
        """
        return self._draw(seed, ordinal, attempt)

    def _draw(self, *root: int) -> Configuration:
        return {name: parameter.sample(stream(*root, name)) for name, parameter in self._parameters.items()}

    def grid(self) -> Iterator[Configuration]:
        """All grid points in odometer order: the last name turns fastest, the first slowest.

        Raises:
            SpaceError: every continuous parameter that does not say how it is divided.
        """
        return (self.grid_at(index) for index in range(self.grid_size))

    @property
    def grid_size(self) -> int:
        """How many grid points there are; raises SpaceError as `grid` does."""
        return math.prod(len(values) for values in self._wheels.values())

    def grid_at(self, index: int) -> Configuration:
        """Grid point number `index`, 0 <= index < grid_size, in the order of `grid`.

        Raises:
            IndexError: there is no such point.
        """
        wheels = self._wheels
        rest, values = index, dict[str, JsonValue]()
        for name in reversed(list(wheels)):
            rest, place = divmod(rest, len(wheels[name]))
            values[name] = copy.deepcopy(wheels[name][place])
        if rest:  # what is left after the slowest wheel: -1 below zero, positive beyond the end
            raise IndexError(f"the grid has {self.grid_size} points, found index {index}")
        return {name: values[name] for name in wheels}

    @functools.cached_property
    def _wheels(self) -> dict[str, Sequence[JsonValue]]:
        wheels, problems = dict[str, Sequence[JsonValue]](), list[Problem]()
        for name, parameter in self._parameters.items():
            try:
                wheels[name] = parameter.grid()
            except ParameterError as error:
                problems.append(Problem((name,), str(error)))
        if problems:
            raise SpaceError(problems)
        return wheels

    def contains(self, configuration: Mapping[str, object]) -> bool:
        """Whether `configuration` has a value of this space for each parameter, and nothing else."""
        return not self.problems(configuration)

    def problems(self, configuration: Mapping[str, object]) -> list[str]:
        """Why `configuration` is not in this space: one sentence for each missing, foreign or outlying value."""
        found = [f"{name} is missing" for name in self._parameters if name not in configuration]
        for name, value in configuration.items():
            if name not in self._parameters:
                found.append(f"{name} is not a parameter of the space")
            elif not self._parameters[name].contains(value):
                found.append(f"{name} = {show(value)} is outside {show(self._parameters[name].to_data())}")
        return found

    @property
    def size(self) -> int | None:
        """How many configurations there are; None when they cannot be counted."""
        sizes = [parameter.size for parameter in self._parameters.values()]
        counted = [size for size in sizes if size is not None]
        return math.prod(counted) if len(counted) == len(sizes) else None

    def at(self, index: int) -> Configuration:
        """Configuration number `index`, 0 <= index < size: all of them, not only the grid; the last name turns fastest.

        Raises:
            ParameterError: the space cannot be counted.
            IndexError: there is no such configuration.
        """
        rest, values = index, dict[str, JsonValue]()
        for name in reversed(list(self._parameters)):
            parameter = self._parameters[name]
            rest, place = divmod(rest, parameter.size or 1)
            values[name] = parameter.at(place)
        if rest:
            raise IndexError(f"the space has {self.size} configurations, found index {index}")
        return {name: values[name] for name in self._parameters}

    def __getitem__(self, name: str) -> Parameter:
        """The parameter called `name`."""
        return self._parameters[name]

    def __iter__(self) -> Iterator[str]:
        """The names in order."""
        return iter(self._parameters)

    def __len__(self) -> int:
        """How many parameters."""
        return len(self._parameters)

    def __eq__(self, other: object) -> bool:
        """Equal parameters under equal names in the same order."""
        if not isinstance(other, Space):
            return NotImplemented
        return list(self.items()) == list(other.items())

    def __hash__(self) -> int:
        """Equal spaces hash alike."""
        return hash(canonical_json(self.to_dict()))

    def __repr__(self) -> str:
        """The written form."""
        return f"Space({self.to_dict()!r})"
