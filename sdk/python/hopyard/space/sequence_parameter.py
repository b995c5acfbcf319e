"""A parameter whose values are sequences: values that change over the training, such as a learning-rate schedule.

A template is a written sequence in which some fields may be parameters, such as `{loguniform: [0.01, 1]}`.
"""

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
from hopyard.space.integers import IntUniform, LogInt
from hopyard.space.parameter import Parameter
from hopyard.space.rng_streams import below
from hopyard.space.values import JsonValue, canonical_json, is_number, json_problem, show

_LISTED: Final = 10_000
"""Maximum number of sequences that are listed and numbered."""

_DRAWS: Final = 1000
_Path = tuple[str | int, ...]
_Holes = Mapping[_Path, Parameter]


class SequenceParameterError(ParameterError):
    """A sequence in a space is wrong.

    Args:
        error: The error from `hopyard.sequences`, whose reason becomes the message.
        *outer: The index of the template (the written sequence) in the parameter, if the parameter has several; else nothing.

    Attributes:
        path: Location of the wrong field within the parameter's written form.
    """

    def __init__(self, error: SequenceError, *outer: str | int) -> None:
        super().__init__(error.reason)
        self.path = ("sequence", *outer, *error.path)


@dataclass(frozen=True, eq=False)
class Sequences(Parameter):
    """A sequence of values over the training (docs/sequences.md), or a choice between several sequences.

    Attributes:
        templates: Written sequences, all equally likely. A field can be a parameter, such as `{loguniform: [0.01, 1]}`.
        per: Number of units after which the sequence advances by one position, or `step`: it advances with each optimizer
            step; None: with each unit.
    """

    templates: tuple[JsonValue, ...]
    per: int | str | None = None

    kind: ClassVar[str] = "sequence"
    options: ClassVar[tuple[str, ...]] = ("per",)

    def __post_init__(self) -> None:
        """Check that each template (a sequence with parameters) gives a valid sequence for at least one of about 100 random draws.

        Raises:
            SequenceParameterError: No draw of a template is a valid sequence.
            ParameterError: There is no template, or one is not a JSON value.
        """
        if not isinstance(self.templates, list | tuple) or not self.templates:
            raise ParameterError(f"sequence needs at least one sequence, found {show(self.templates)}")
        object.__setattr__(self, "templates", tuple(copy.deepcopy(self.templates)))
        for index, template in enumerate(self.templates):
            if problem := json_problem(template):
                raise ParameterError(f"sequence needs JSON values, but {problem}")
            holes = dict(_holes(template))
            rng = random.Random(0)
            for attempt in itertools.count():
                try:
                    self._filled(template, _drawn(holes, rng))
                except SequenceError as error:
                    # A draw may be invalid (such as descending milestones), but not every draw may be.
                    if not holes or attempt == 100:
                        raise SequenceParameterError(error, *([index] if len(self.templates) > 1 else ())) from None
                else:
                    break

    @classmethod
    def from_data(cls, value: object, options: Mapping[str, object]) -> Self:
        """Create the parameter from `{sequence: {kind: {...}}}` or `{sequence: [{kind: {...}}, ...]}`.

        The optional key `per` sets after how many units the sequence advances by one position, or is `step`: it advances with
        each optimizer step.

        Args:
            value: One template (a written sequence, in which a field may be a parameter) or a list of them.
            options: The other keys: `per`, optional.

        Raises:
            ParameterError: A template is invalid.
        """
        return cls(
            tuple(value) if isinstance(value, list | tuple) else (cast(JsonValue, value),),
            cast("int | None", options.get("per")),
        )

    def to_data(self) -> JsonValue:
        """Return the written form, a mapping with the key `sequence` and, unless it is None, the attribute `per`."""
        templates = list(copy.deepcopy(self.templates))
        data: dict[str, JsonValue] = {self.kind: templates[0] if len(templates) == 1 else templates}
        return data if self.per is None else {**data, "per": self.per}

    def __eq__(self, other: object) -> bool:
        """Return whether `other` is a parameter with an equal written form (1 and 1.0 are equal)."""
        return isinstance(other, Sequences) and canonical_json(self.to_data()) == canonical_json(other.to_data())

    def __hash__(self) -> int:
        """Return a hash of the written form."""
        return hash(canonical_json(self.to_data()))

    def sample(self, rng: random.Random) -> JsonValue:
        """Draw a template (a sequence with parameters), then draw values of its parameters repeatedly until the result is valid.

        Raises:
            ParameterError: None of 1000 draws is valid.
        """
        template, holes = self._parts[below(rng, len(self.templates))]
        reason = ""
        for _ in range(_DRAWS):
            try:
                return self._filled(template, _drawn(holes, rng))
            except SequenceError as error:
                reason = str(error)
        raise ParameterError(f"0 of {_DRAWS} sequences that were drawn could be: {reason}; narrow the parameters in it")

    def contains(self, value: object) -> bool:
        """Return whether `value` is a written sequence that a template (a sequence with parameters) gives for some parameter values."""
        if json_problem(value) is not None or not is_written(value):
            return False
        key = canonical_json(value)
        return any(self._is(template, holes, cast("dict[str, Any]", value), key) for template, holes in self._parts)

    def _is(self, template: JsonValue, holes: _Holes, value: dict[str, Any], key: str) -> bool:
        found = dict[_Path, JsonValue]()
        for path, hole in holes.items():
            part: Any = value["sequence"]
            for step in path:
                try:
                    part = part[step]
                except (LookupError, TypeError):
                    return False
            if not hole.contains(part):
                return False
            found[path] = part
        try:
            return canonical_json(self._filled(template, found)) == key
        except SequenceError:
            return False

    @property
    def size(self) -> int | None:
        """The number of sequences, or None if they cannot be counted or are more than 10,000."""
        if self._counts is None:
            return None
        return sum(map(math.prod, self._counts)) if self._free else len(self._all)

    @functools.cached_property
    def _parts(self) -> tuple[tuple[JsonValue, _Holes], ...]:
        """For each template (a written sequence with parameters), the template and its parameters by their path in it."""
        return tuple((template, dict(_holes(template))) for template in self.templates)

    @functools.cached_property
    def _counts(self) -> tuple[tuple[int, ...], ...] | None:
        """For each template (a sequence with parameters), the number of values of each of its parameters.

        None if a parameter is continuous, or if all templates together have more than 10,000 combinations of values.
        """
        found = list[tuple[int, ...]]()
        for _, holes in self._parts:
            sizes = [hole.size for hole in holes.values()]
            counted = [size for size in sizes if size is not None and size <= _LISTED]
            if len(counted) < len(sizes):
                return None
            found.append(tuple(counted))
        return tuple(found) if sum(map(math.prod, found)) <= _LISTED else None

    @functools.cached_property
    def _free(self) -> bool:
        """Whether every combination of the parameters' values is known to be a valid and distinct sequence.

        If true, the sequences can be counted without creating them. False can also mean that it is not known.
        """
        kinds = {next(iter(template)) if isinstance(template, dict) else "constant" for template, _ in self._parts}
        return len(kinds) == len(self._parts) and all(self._fits(template, holes) for template, holes in self._parts)

    def _fits(self, template: JsonValue, holes: _Holes) -> bool:
        # Separate fields are checked one by one. List entries depend on each other, and a mode changes which fields are
        # valid.
        if any(isinstance(path[-1], int) or path[-1] == "mode" for path in holes):
            return False
        first = {path: hole.at(0) for path, hole in holes.items()}
        for path, hole in holes.items():
            size = cast(int, hole.size)
            # The allowed integers form a range, so checking both ends is enough.
            tried = {0, size - 1} if isinstance(hole, IntUniform | LogInt) else range(size)
            for value in map(hole.at, tried):
                if value is None:  # None means that the field is omitted, which may be invalid for other fields.
                    return False
                try:
                    self._filled(template, {**first, path: value})
                except SequenceError:
                    return False
        return True

    @functools.cached_property
    def _all(self) -> Mapping[str, JsonValue]:
        """All sequences by their canonical JSON text, in the order of `at`. Read it only if `_counts` is not None."""
        return self._combined(
            [
                [[hole.at(index) for index in range(cast(int, hole.size))] for hole in holes.values()]
                for _, holes in self._parts
            ]
        )

    @functools.cached_property
    def _listed(self) -> tuple[JsonValue, ...]:
        return tuple(self._all.values())

    @functools.cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {key: number for number, key in enumerate(self._all)}

    def _combined(self, wheels: Sequence[Sequence[Sequence[JsonValue]]]) -> dict[str, JsonValue]:
        """Return the sequences that the templates (sequences with parameters) give for `wheels`. The last parameter changes fastest.

        Combinations that are not valid sequences are omitted.

        Args:
            wheels: For each template, the values to combine for each of its parameters.

        Returns:
            The sequences by their canonical JSON text, without duplicates.
        """
        found = dict[str, JsonValue]()
        for (template, holes), wheel in zip(self._parts, wheels, strict=True):
            for values in itertools.product(*wheel):
                try:
                    made = self._filled(template, dict(zip(holes, values, strict=True)))
                except SequenceError:
                    continue
                found.setdefault(canonical_json(made), made)
        return found

    def ends(self) -> Iterator[JsonValue]:
        """Yield sequences in which every parameter of a template has its largest or its smallest value.

        Callers use them to test whether a sequence's values can exceed the range of a double. A choice of other values than numbers
        contributes all its values. Combinations that are not valid sequences are omitted. At most 32 combinations per template
        are tried.
        """
        for template, holes in self._parts:
            for values in itertools.islice(itertools.product(*map(_ends, holes.values())), 32):
                try:
                    yield self._filled(template, dict(zip(holes, values, strict=True)))
                except SequenceError:
                    continue

    @property
    def has_unit(self) -> bool:
        """Whether the sequences can be counted, so that `from_unit` and `to_unit` can be used."""
        return self._counts is not None

    def at(self, index: int) -> JsonValue:
        """Return sequence number `index`, 0 <= index < size: first those of the first template, then of the next.

        A template is a sequence in which fields may be parameters. Within a template, the value of the last parameter changes fastest.

        Raises:
            ParameterError: The sequences cannot be counted.
            IndexError: There is no such sequence.
        """
        counts = self._counted_holes()
        if not self._free:
            return copy.deepcopy(self._listed[index])
        for (template, holes), sizes in zip(self._parts, counts, strict=True):
            if 0 <= index < math.prod(sizes):
                values = dict[_Path, JsonValue]()
                for (path, hole), size in reversed(list(zip(holes.items(), sizes, strict=True))):
                    index, place = divmod(index, size)
                    values[path] = hole.at(place)
                return self._filled(template, values)
            index -= math.prod(sizes)
        raise IndexError(f"there are {self.size} sequences")

    def index(self, value: object) -> int:
        """Return the number of a sequence in the order of `at`.

        Raises:
            ParameterError: The sequences cannot be counted.
            KeyError: `value` is not one of them.
        """
        self._counted_holes()
        return self._numbers[canonical_json(value)]

    def _counted_holes(self) -> tuple[tuple[int, ...], ...]:
        if self._counts is None:
            raise ParameterError("these sequences cannot be counted: they have no numbers")
        return self._counts

    def grid(self) -> Sequence[JsonValue]:
        """Return all valid sequences of the templates (sequences with parameters) for the parameters' grid values, without duplicates.

        Raises:
            ParameterError: A parameter in a template has no grid.
        """
        wheels = list[list[Sequence[JsonValue]]]()
        for _, holes in self._parts:
            wheels.append([])
            for path, hole in holes.items():
                try:
                    wheels[-1].append(hole.grid())
                except ParameterError as error:
                    raise ParameterError(f"{'.'.join(map(str, path))}: {error}") from None
        return list(self._combined(wheels).values())

    def _filled(self, template: JsonValue, values: Mapping[_Path, JsonValue]) -> JsonValue:
        written: dict[str, Any] = {"sequence": _put(template, (), values)}
        if self.per is not None:
            written["per"] = self.per
        return cast(JsonValue, read(written).written())


def _ends(parameter: Parameter) -> list[JsonValue]:
    if parameter.kind == "choice":  # In the written order.
        listed = [parameter.at(index) for index in range(cast(int, parameter.size))]
        numbers = [value for value in listed if is_number(value)]
        if len(numbers) < len(listed):
            return listed
        ordered = sorted(cast("list[float]", numbers))
        return [ordered[-1], ordered[0]]
    return [parameter.from_unit(1.0), parameter.from_unit(0.0)]


def _drawn(holes: _Holes, rng: random.Random) -> dict[_Path, JsonValue]:
    return {path: hole.sample(rng) for path, hole in holes.items()}


def _put(template: JsonValue, path: _Path, values: Mapping[_Path, JsonValue]) -> JsonValue:
    """Return a copy of a template (a written sequence with parameters) in which values replace the parameters.

    Args:
        template: The template or a part of it.
        path: The location of this part in the template.
        values: The value of each parameter by its path in the template.
    """
    if path in values:
        return copy.deepcopy(values[path])
    if isinstance(template, dict):
        return {key: _put(part, (*path, key), values) for key, part in template.items()}
    if isinstance(template, list):
        return [_put(part, (*path, index), values) for index, part in enumerate(template)]
    return template


def read_fixed(value: JsonValue, kind: str) -> JsonValue:
    """Check a value of a choice or a constant. If it is a written sequence, return it with its defaults filled in.

    Other JSON values are returned unchanged.

    Args:
        value: The JSON value.
        kind: The kind of the parameter, for the error message.

    Raises:
        ParameterError: The value has the form of a sequence but is not a valid one.
    """
    if not is_written(value):
        return value
    try:
        return cast(JsonValue, read(cast("dict[str, Any]", value)).written())
    except SequenceError as error:
        hint = ""
        if next(_holes(cast("dict[str, JsonValue]", value)["sequence"]), None) is not None:
            hint = f"; a {kind} takes fixed sequences; write sequences with parameters in a list: {{sequence: [...]}}"
        raise ParameterError(f"sequence: {error}{hint}") from None


def _holes(template: JsonValue, path: _Path = ()) -> Iterator[tuple[_Path, Parameter]]:
    """Yield each parameter inside a written sequence with its path.

    Args:
        template: The written sequence or a part of it.
        path: The location of this part in the sequence.

    Raises:
        ParameterError: The written form of a parameter is wrong.
    """
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
    # An entry of `sequences: [...]` is a sequence. Sequences and parameters both have a kind named `constant`.
    inside_chain = len(path) > 1 and path[-2] == "sequences"
    return not inside_chain and any(key in kinds and (key == "constant" or key not in SEQUENCES) for key in written)
