"""When a parameter belongs to a configuration: only while others have certain values."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, Union

from hopyard.space.errors import ParameterError
from hopyard.space.parameter import Parameter
from hopyard.space.values import JsonValue, canonical_json, json_problem, show

Entry: TypeAlias = Union[Parameter, "When", Mapping[str, "Entry"]]
"""What stands under a name of a space: a parameter, a group of further names, or either of them with conditions."""


@dataclass(frozen=True)
class When:
    """A parameter or a group that is in a configuration only while all `conditions` hold.

    Attributes:
        inner: what is there then.
        conditions: dotted names of other parameters, each with the value, or the list of values, that it must have. A
            parameter that is itself not in the configuration has no value, so a condition on it does not hold.
    """

    inner: Parameter | Mapping[str, Entry]
    conditions: Mapping[str, JsonValue]


@dataclass(frozen=True)
class Condition:
    """One parameter must have one of some values.

    Attributes:
        name: the parameter's dotted name.
        values: what it may be; at least one.
    """

    name: str
    values: tuple[JsonValue, ...] = field(compare=False)
    keys: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the values, take a copy of them, and prepare to compare them."""
        if not self.values:
            raise ParameterError("needs a value or a list of values, found []")
        for value in self.values:
            if problem := json_problem(value):
                raise ParameterError(f"needs JSON values, but {problem}")
        object.__setattr__(self, "values", tuple(copy.deepcopy(self.values)))
        object.__setattr__(self, "keys", tuple(canonical_json(value) for value in self.values))

    @classmethod
    def from_data(cls, name: str, written: object) -> Condition:
        """Read `name: value` or `name: [value, ...]`: a list is always a list of values.

        Raises:
            ParameterError: no value, or what is no JSON value.
        """
        return cls(name, tuple(written) if isinstance(written, list | tuple) else (written,))  # type: ignore[arg-type]

    def to_data(self) -> JsonValue:
        """The written form: a single value stands alone, unless it is a list."""
        values = list(copy.deepcopy(self.values))
        return values[0] if len(values) == 1 and not isinstance(values[0], list) else values

    def holds(self, values: Mapping[str, object]) -> bool:
        """Whether the parameter is among `values` (dotted names of what is in the configuration) with a right value."""
        return self.name in values and self.allows(values[self.name])

    def allows(self, value: object) -> bool:
        """Whether `value` is one of the values."""
        return json_problem(value) is None and canonical_json(value) in self.keys

    def __str__(self) -> str:
        return f"{self.name} is {' or '.join(show(value) for value in self.values)}"
