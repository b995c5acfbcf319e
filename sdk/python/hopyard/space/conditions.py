"""Conditions under which a parameter is part of a configuration, based on the values of other parameters."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, Union

from hopyard.space.errors import ParameterError
from hopyard.space.parameter import Parameter
from hopyard.space.values import JsonValue, canonical_json, json_problem, show

Entry: TypeAlias = Union[Parameter, "When", Mapping[str, "Entry"]]
"""An entry of a space: a parameter, a group of named entries, or either of them with conditions."""


@dataclass(frozen=True)
class When:
    """A parameter or a group that is part of a configuration only if all `conditions` hold.

    Attributes:
        inner: The parameter or the group.
        conditions: Dotted names of other parameters, each with the required value or a list of allowed values. A
            parameter that is not part of the configuration has no value, so a condition on it does not hold.
    """

    inner: Parameter | Mapping[str, Entry]
    conditions: Mapping[str, JsonValue]


@dataclass(frozen=True)
class Condition:
    """The requirement that a parameter has one of some values.

    Attributes:
        name: The parameter's dotted name.
        values: The allowed values; at least one.
    """

    name: str
    values: tuple[JsonValue, ...] = field(compare=False)
    keys: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check and copy the values, and prepare their comparison."""
        if not self.values:
            raise ParameterError("needs a value or a list of values, found []")
        for value in self.values:
            if problem := json_problem(value):
                raise ParameterError(f"needs JSON values, but {problem}")
        object.__setattr__(self, "values", tuple(copy.deepcopy(self.values)))
        object.__setattr__(self, "keys", tuple(canonical_json(value) for value in self.values))

    @classmethod
    def from_data(cls, name: str, written: object) -> Condition:
        """Read `name: value` or `name: [value, ...]`. A list is always a list of values.

        Raises:
            ParameterError: There is no value, or a value is not a JSON value.
        """
        return cls(name, tuple(written) if isinstance(written, list | tuple) else (written,))  # type: ignore[arg-type]

    def to_data(self) -> JsonValue:
        """Return the written form. A single value is written without a list, unless it is a list itself."""
        values = list(copy.deepcopy(self.values))
        return values[0] if len(values) == 1 and not isinstance(values[0], list) else values

    def holds(self, values: Mapping[str, object]) -> bool:
        """Return whether the parameter is in `values` (by dotted name) and has an allowed value."""
        return self.name in values and self.allows(values[self.name])

    def allows(self, value: object) -> bool:
        """Return whether `value` is an allowed value."""
        return json_problem(value) is None and canonical_json(value) in self.keys

    def __str__(self) -> str:
        return f"{self.name} is {' or '.join(show(value) for value in self.values)}"
