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
        conditions: The dotted name of each parameter that `inner` depends on, such as `model.depth`, with the
            required value or a list of allowed values. A condition on a parameter that is not part of the configuration
            does not hold.
    """

    inner: Parameter | Mapping[str, Entry]
    conditions: Mapping[str, JsonValue]


@dataclass(frozen=True)
class Condition:
    """The requirement that a parameter has one of several allowed values.

    Attributes:
        name: The parameter's dotted name, such as `model.depth`.
        values: The allowed values; at least one.
        keys: The canonical texts of `values`, by which values are compared.
    """

    name: str
    values: tuple[JsonValue, ...] = field(compare=False)
    keys: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check and copy the values, and compute `keys`.

        Raises:
            ParameterError: There is no value, or a value is not a JSON value.
        """
        if not self.values:
            raise ParameterError("needs a value or a list of values, found []")
        for value in self.values:
            if problem := json_problem(value):
                raise ParameterError(f"needs JSON values, but {problem}")
        object.__setattr__(self, "values", tuple(copy.deepcopy(self.values)))
        object.__setattr__(self, "keys", tuple(canonical_json(value) for value in self.values))

    @classmethod
    def from_data(cls, name: str, written: object) -> Condition:
        """Create the condition from its written form `name: value` or `name: [value, ...]` in an experiment file.

        Args:
            name: The dotted name of the parameter.
            written: The allowed value or a list of allowed values. A list is never a value by itself.

        Raises:
            ParameterError: There is no value, or a value is not a JSON value.
        """
        return cls(name, tuple(written) if isinstance(written, list | tuple) else (written,))  # type: ignore[arg-type]

    def to_data(self) -> JsonValue:
        """Return the written form: the allowed value if there is exactly one that is not a list, else the list of allowed values."""
        values = list(copy.deepcopy(self.values))
        return values[0] if len(values) == 1 and not isinstance(values[0], list) else values

    def holds(self, values: Mapping[str, object]) -> bool:
        """Return whether the parameter is part of a configuration and has an allowed value.

        Args:
            values: The values of a configuration by dotted name.
        """
        return self.name in values and self.allows(values[self.name])

    def allows(self, value: object) -> bool:
        """Return whether `value` is one of the allowed values (1 and 1.0 are equal, 1 and true are not)."""
        return json_problem(value) is None and canonical_json(value) in self.keys

    def __str__(self) -> str:
        return f"{self.name} is {' or '.join(show(value) for value in self.values)}"
