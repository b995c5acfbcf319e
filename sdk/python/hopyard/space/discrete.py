"""Parameters with listed values: a choice and a constant."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, cast

from hopyard.space.errors import ParameterError
from hopyard.space.parameter import Parameter
from hopyard.space.rng_streams import below
from hopyard.space.sequence_parameter import read_fixed
from hopyard.space.values import JsonValue, canonical_json, json_problem, show


class _Discrete(Parameter):
    """A parameter with listed values. Equality and hash use the canonical JSON text of the written form.

    The text is necessary because 1 == True in Python, and because lists have no hash.
    """

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _key(self) == _key(cast(Parameter, other))

    def __hash__(self) -> int:
        return hash(_key(self))


def _key(parameter: Parameter) -> str:
    return canonical_json(parameter.to_data())


@dataclass(frozen=True, eq=False)
class Choice(_Discrete):
    """One of several listed JSON values, all equally likely.

    Attributes:
        values: The values; at least one, without duplicates (1 and 1.0 are equal, 1 and true are not).
    """

    values: tuple[JsonValue, ...]

    kind: ClassVar[str] = "choice"

    def __post_init__(self) -> None:
        """Check and copy the values, and complete sequences (mappings with the key `sequence`) with the defaults of their fields.

        Raises:
            ParameterError: There is no value, a value occurs twice, or a value is an invalid sequence or not a JSON
                value.
        """
        if not isinstance(self.values, list | tuple):
            raise ParameterError(f"choice needs a list of values, found {show(self.values)}")
        if not self.values:
            raise ParameterError("choice needs at least one value, found []")
        seen, values = set[str](), list[JsonValue]()
        for given in self.values:
            if problem := json_problem(given):
                raise ParameterError(f"choice needs JSON values, but {problem}")
            values.append(value := read_fixed(given, self.kind))
            if (key := canonical_json(value)) in seen:
                raise ParameterError(f"choice needs different values, found {show(value)} twice")
            seen.add(key)
        object.__setattr__(self, "values", tuple(copy.deepcopy(values)))

    @classmethod
    def from_data(cls, value: object, options: Mapping[str, object]) -> Self:
        """Create the parameter from `{choice: [a, b, ...]}`.

        Args:
            value: The list of values.
            options: Empty; a choice has no options.

        Raises:
            ParameterError: The list is empty, or a value is invalid or occurs twice.
        """
        return cls(cast("tuple[JsonValue, ...]", value))

    def to_data(self) -> JsonValue:
        """Return the written form, the mapping `{choice: [a, b, ...]}`."""
        return {self.kind: list(copy.deepcopy(self.values))}

    def sample(self, rng: random.Random) -> JsonValue:
        """Draw one of the values; all are equally likely."""
        return self.at(below(rng, self.size))

    def contains(self, value: object) -> bool:
        """Return whether `value` is one of the listed values (1 and 1.0 are equal, 1 and true are not)."""
        return json_problem(value) is None and canonical_json(value) in {canonical_json(mine) for mine in self.values}

    @property
    def size(self) -> int:
        """The number of listed values."""
        return len(self.values)

    def at(self, index: int) -> JsonValue:
        """Return the value at `index` in the written order, 0 <= index < size."""
        return copy.deepcopy(self.values[index])

    def index(self, value: object) -> int:
        """Return the index of `value` in the written order, from 0.

        Raises:
            ValueError: It is not one of the listed values.
        """
        return [canonical_json(mine) for mine in self.values].index(canonical_json(value))

    def normalize(self, value: JsonValue) -> JsonValue:
        """Return the listed value that is equal to `value`, which must be one of them: 3 for 3.0 if 3 is listed."""
        return self.at(self.index(value))

    def grid(self) -> Sequence[JsonValue]:
        """Return the listed values in the written order."""
        return list(copy.deepcopy(self.values))


@dataclass(frozen=True, eq=False)
class Constant(_Discrete):
    """One fixed JSON value. In a space, a scalar is a constant; a list or a mapping must be written `{constant: ...}`."""

    value: JsonValue

    kind: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        """Check and copy the value; complete a sequence (a mapping with the key `sequence`) with the defaults of its fields.

        Raises:
            ParameterError: The value is not a JSON value, or is an invalid sequence.
        """
        if problem := json_problem(self.value):
            raise ParameterError(f"constant needs a JSON value, but {problem}")
        object.__setattr__(self, "value", copy.deepcopy(read_fixed(self.value, self.kind)))

    @classmethod
    def from_data(cls, value: object, options: Mapping[str, object]) -> Self:
        """Create the parameter from `{constant: value}`.

        Args:
            value: The value.
            options: Empty; a constant has no options.

        Raises:
            ParameterError: The value is not a JSON value, or is an invalid sequence.
        """
        return cls(cast(JsonValue, value))

    def to_data(self) -> JsonValue:
        """Return the written form: the value itself if it is a scalar, `{constant: value}` for a list or a mapping."""
        if isinstance(self.value, list | dict):
            return {self.kind: copy.deepcopy(self.value)}
        return self.value

    def sample(self, rng: random.Random) -> JsonValue:
        """Return the constant value; `rng` is not used."""
        return copy.deepcopy(self.value)

    def contains(self, value: object) -> bool:
        """Return whether `value` equals the constant (1 and 1.0 are equal, 1 and true are not)."""
        return json_problem(value) is None and canonical_json(value) == canonical_json(self.value)

    @property
    def size(self) -> int:
        """Always 1."""
        return 1

    def at(self, index: int) -> JsonValue:
        """Return the constant value, whatever `index` is."""
        return copy.deepcopy(self.value)

    def index(self, value: object) -> int:
        """Return 0, the number of the only value."""
        return 0

    def grid(self) -> Sequence[JsonValue]:
        """Return a list that contains only the constant value."""
        return [copy.deepcopy(self.value)]
