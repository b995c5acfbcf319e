"""A parameter whose values are sequences: one, or several to choose from, with parameters for their fields."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, cast

from hopyard.sequences import SEQUENCES, SequenceError, is_written, read
from hopyard.space.errors import ParameterError
from hopyard.space.parameter import Parameter
from hopyard.space.streams import below
from hopyard.space.values import JsonValue, canonical_json, json_problem, show

_LISTED: Final = 10_000
"""Up to so many sequences are listed, and so have numbers."""

_DRAWS: Final = 1000
_Path = tuple[str | int, ...]


class SequenceParameterError(ParameterError):
    """A sequence in a space is wrong.

    Attributes:
        path: the field, below the parameter.
    """

    def __init__(self, error: SequenceError, *outer: str | int) -> None:
        """Say what `error` says."""
        super().__init__(error.reason)
        self.path = ("sequence", *outer, *error.path)


@dataclass(frozen=True, eq=False)
class Sequences(Parameter):
    """A sequence of values over the training (docs/sequences.md), or a list of sequences to choose from.

    Attributes:
        templates: written sequences; a field may be a parameter itself, such as `{loguniform: [0.01, 1]}`. Each is drawn as
            often as any other.
        per: how many units a tick of the sequence's clock takes, or `step` for one in each optimizer step.
    """

    templates: tuple[JsonValue, ...]
    per: int | str | None = None

    kind: ClassVar[str] = "sequence"
    options: ClassVar[tuple[str, ...]] = ("per",)

    def __post_init__(self) -> None:
        """Check each template with the first values of its parameters that fit together."""
        if not isinstance(self.templates, list | tuple) or not self.templates:
            raise ParameterError(f"sequence needs at least one sequence, found {show(self.templates)}")
        object.__setattr__(self, "templates", tuple(copy.deepcopy(self.templates)))
        for index, template in enumerate(self.templates):
            if problem := json_problem(template):
                raise ParameterError(f"sequence needs JSON values, but {problem}")
            holes = list(_holes(template))
            rng = random.Random(0)
            for attempt in itertools.count():
                try:
                    self._filled(template, [hole.sample(rng) for _, hole in holes])
                except SequenceError as error:
                    # Parameters may not fit together (milestones that fall), but must sometimes.
                    if not holes or attempt == 100:
                        raise SequenceParameterError(error, *([index] if len(self.templates) > 1 else ())) from None
                else:
                    break

    @classmethod
    def from_data(cls, value: object, options: Mapping[str, object]) -> Self:
        """Read `{sequence: {kind: {...}}}` or `{sequence: [{kind: {...}}, ...]}`, perhaps with `per`."""
        return cls(
            tuple(value) if isinstance(value, list | tuple) else (cast(JsonValue, value),),
            cast("int | None", options.get("per")),
        )

    def to_data(self) -> JsonValue:
        """The written form."""
        templates = list(copy.deepcopy(self.templates))
        data: dict[str, JsonValue] = {self.kind: templates[0] if len(templates) == 1 else templates}
        return data if self.per is None else {**data, "per": self.per}

    def __eq__(self, other: object) -> bool:
        """Written alike."""
        return isinstance(other, Sequences) and canonical_json(self.to_data()) == canonical_json(other.to_data())

    def __hash__(self) -> int:
        """Equal ones hash alike."""
        return hash(canonical_json(self.to_data()))

    def sample(self, rng: random.Random) -> JsonValue:
        """A template, then each of its parameters, until they fit together.

        Raises:
            ParameterError: they hardly ever do.
        """
        template = self.templates[below(rng, len(self.templates))]
        holes = list(_holes(template))
        reason = ""
        for _ in range(_DRAWS):
            try:
                return self._filled(template, [hole.sample(rng) for _, hole in holes])
            except SequenceError as error:
                reason = str(error)
        raise ParameterError(f"0 of {_DRAWS} sequences that were drawn could be: {reason}; narrow the parameters in it")

    def contains(self, value: object) -> bool:
        """One of the templates with values of its parameters."""
        if json_problem(value) is not None or not is_written(value):
            return False
        key = canonical_json(value)
        return any(self._is(template, cast("dict[str, Any]", value), key) for template in self.templates)

    def _is(self, template: JsonValue, value: dict[str, Any], key: str) -> bool:
        found = list[JsonValue]()
        for path, hole in _holes(template):
            part: Any = value["sequence"]
            for step in path:
                try:
                    part = part[step]
                except (LookupError, TypeError):
                    return False
            if not hole.contains(part):
                return False
            found.append(part)
        try:
            return canonical_json(self._filled(template, found)) == key
        except SequenceError:
            return False

    @property
    def size(self) -> int | None:
        """How many sequences; None when they cannot be counted, or are more than 10 000."""
        return None if self._all is None else len(self._all)

    @functools.cached_property
    def _all(self) -> tuple[JsonValue, ...] | None:
        wheels = list[list[Sequence[JsonValue]]]()
        for template in self.templates:
            sizes = [(hole, hole.size) for _, hole in _holes(template)]
            if any(size is None or size > _LISTED for _, size in sizes):
                return None
            wheels.append([[hole.at(index) for index in range(cast(int, size))] for hole, size in sizes])
        if sum(math.prod(map(len, wheel)) for wheel in wheels) > _LISTED:
            return None
        return tuple(self._combined(wheels))

    def _combined(self, wheels: Sequence[Sequence[Sequence[JsonValue]]]) -> list[JsonValue]:
        """Each template with each combination of its parameters' values that can be, the last turning fastest; none twice."""
        found = dict[str, JsonValue]()
        for template, wheel in zip(self.templates, wheels, strict=True):
            for values in itertools.product(*wheel):
                try:
                    made = self._filled(template, values)
                except SequenceError:
                    continue
                found.setdefault(canonical_json(made), made)
        return list(found.values())

    @property
    def has_unit(self) -> bool:
        """Whether the sequences can be counted."""
        return self._all is not None

    def at(self, index: int) -> JsonValue:
        """Template by template, the last parameter turning fastest."""
        if self._all is None:
            raise ParameterError("these sequences cannot be counted: they have no numbers")
        return copy.deepcopy(self._all[index])

    def index(self, value: object) -> int:
        """The number of the sequence."""
        if self._all is None:
            raise ParameterError("these sequences cannot be counted: they have no numbers")
        return [canonical_json(mine) for mine in self._all].index(canonical_json(value))

    def grid(self) -> Sequence[JsonValue]:
        """Each template with the grid of its parameters; combinations that cannot be are left out."""
        wheels = list[list[Sequence[JsonValue]]]()
        for template in self.templates:
            wheels.append([])
            for path, hole in _holes(template):
                try:
                    wheels[-1].append(hole.grid())
                except ParameterError as error:
                    raise ParameterError(f"{'.'.join(map(str, path))}: {error}") from None
        return self._combined(wheels)

    def _filled(self, template: JsonValue, values: Sequence[JsonValue]) -> JsonValue:
        written: dict[str, Any] = {"sequence": copy.deepcopy(template)}
        for (path, _), value in zip(_holes(template), values, strict=True):
            part: Any = written["sequence"]
            for step in path[:-1]:
                part = part[step]
            part[path[-1]] = copy.deepcopy(value)
        if self.per is not None:
            written["per"] = self.per
        return cast(JsonValue, read(written).written())


def read_fixed(value: JsonValue, kind: str) -> JsonValue:
    """A JSON value that stands in a choice or is a constant: a sequence in full, defaults filled in; others as they are.

    Raises:
        ParameterError: it looks like a sequence and is none.
    """
    if not is_written(value):
        return value
    try:
        return cast(JsonValue, read(cast("dict[str, Any]", value)).written())
    except SequenceError as error:
        hint = ""
        if next(_holes(cast("dict[str, JsonValue]", value)["sequence"]), None) is not None:
            hint = (
                f"; a {kind} takes fixed sequences, those with parameters inside stand in a list: {{sequence: [...]}}"
            )
        raise ParameterError(f"sequence: {error}{hint}") from None


def _holes(template: JsonValue, path: _Path = ()) -> Iterator[tuple[_Path, Parameter]]:
    """The parameters inside a written sequence, and where."""
    from hopyard.space.kinds import KINDS, parameter_from_data

    if isinstance(template, dict):
        if path and path[-1] not in ("then", "sequences") and _is_parameter(template, path, KINDS):
            try:
                yield path, parameter_from_data(template)
            except ParameterError as error:
                raise ParameterError(f"{'.'.join(map(str, path))}: {error}") from None
            return
        for key, value in template.items():
            yield from _holes(value, (*path, key))
    elif isinstance(template, list):
        for index, value in enumerate(template):
            yield from _holes(value, (*path, index))


def _is_parameter(written: dict[str, JsonValue], path: _Path, kinds: Mapping[str, object]) -> bool:
    # What stands in `sequences: [...]` is a sequence: both have a kind called constant.
    inside_chain = len(path) > 1 and path[-2] == "sequences"
    return not inside_chain and any(key in kinds and (key == "constant" or key not in SEQUENCES) for key in written)
