"""A search space: named parameters in a fixed order, some of them in groups or under conditions."""

from __future__ import annotations

import copy
import functools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Self, cast

from hopyard.space.conditions import Condition, Entry
from hopyard.space.constraints import Constraint
from hopyard.space.enumeration import Numbering
from hopyard.space.errors import ConstraintsError, ParameterError, Problem, SpaceError
from hopyard.space.nesting import Leaf, SpaceNode, check, in_order, plant, read_entries
from hopyard.space.parameter import Parameter
from hopyard.space.rng_streams import stream
from hopyard.space.values import Configuration, JsonValue, canonical_json, show

DRAWS: Final = 1000
"""How many configurations are drawn in search of one that fits the constraints."""


class Space(Mapping[str, Parameter]):
    """Named parameters; a configuration has one value for each that its conditions let in.

    Immutable. The order of the names is part of the space: it is the order of a grid's wheels. As a mapping it goes
    from dotted name to parameter (`space["lr"]`, `"model.depth" in space`); `contains` is about configurations.

    A **group** is a name for further names, and a nested mapping in a configuration. A parameter or group with
    **conditions** is in a configuration only while they hold. **Constraints** filter the configurations: `sample`,
    `sample_at`, `grid`, `contains` and `problems` respect them; `size`, `at`, `grid_size` and `grid_at` number what there
    is before the filter.
    """

    def __init__(self, parameters: Mapping[str, Entry], constraints: Sequence[str] = ()) -> None:
        """Hold `parameters` in their order, and the expressions that every configuration must fulfil.

        Raises:
            SpaceError: a name is not text or is empty, a value is not a `Parameter`, a condition cannot be, or a
                constraint is no expression about these parameters.
        """
        problems = list[Problem]()
        self._nodes = plant(parameters, problems)
        self._leaves: Mapping[str, Leaf] = check(self._nodes, problems)
        if problems:
            raise SpaceError(problems)
        self._order = in_order(self._leaves, problems)
        read = list[Constraint]()
        for index, text in enumerate(constraints):
            try:
                read.append(Constraint(text, self._leaves))
            except ParameterError as error:
                problems.append(Problem(("constraints", index), str(error)))
        if problems:
            raise SpaceError(problems)
        self.constraints: tuple[Constraint, ...] = tuple(read)

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Self:
        """Read a written space: names to written parameters, as in an experiment file.

        Raises:
            SpaceError: every problem of every parameter.
        """
        if not isinstance(data, Mapping):
            raise SpaceError([Problem((), f"needs a mapping of names to parameters, found {show(data)}")])
        entries, problems = read_entries(cast("Mapping[object, object]", data))
        if problems:
            raise SpaceError(problems)
        return cls(entries)

    def to_dict(self) -> dict[str, JsonValue]:
        """The written form, plain JSON in the order of the names; `from_dict` gives an equal space back.

        Constraints are written beside a space, not in it.
        """
        return {node.key: node.written() for node in self._nodes}

    def constrained(self, constraints: Sequence[str]) -> Self:
        """This space with these constraints instead of its own; raises SpaceError as the constructor does."""
        return type(self)(self.entries, constraints)

    @property
    def entries(self) -> dict[str, Entry]:
        """What the space was made of: parameters, groups and conditions, to make another one of."""
        return {node.key: node.entry() for node in self._nodes}

    def conditions(self, name: str) -> tuple[Condition, ...]:
        """The conditions that must all hold for the parameter with this dotted name, those of its groups included."""
        return self._leaves[name].conditions

    def build(self, value_of: Callable[[str, Parameter], JsonValue]) -> Configuration:
        """The configuration that has, for each parameter it includes, the value that `value_of` gives.

        `value_of` is called with dotted names, for parameters whose conditions hold, and for each after those that its
        conditions ask for. The result does not share mappings with the space.
        """
        values = dict[str, JsonValue]()
        for leaf in self._order:
            if all(condition.holds(values) for condition in leaf.conditions):
                values[leaf.name] = value_of(leaf.name, leaf.parameter)
        return _nested(self._nodes, values)

    def flat(self, configuration: Mapping[str, object]) -> dict[str, JsonValue]:
        """The values of a configuration of this space by dotted name, in the order of the names."""
        given = {node.name: value for _, node, value in _walk(self._nodes, configuration) if node is not None}
        return {name: cast(JsonValue, given[name]) for name in self._leaves if name in given}

    def sample(self, rng: random.Random) -> Configuration:
        """Draw one configuration.

        One number is taken from `rng`, whatever the space; each parameter has a stream of its own that is derived
        from that number and the parameter's name. So adding, removing or reordering parameters leaves the values of
        the others as they were.

        Raises:
            ConstraintsError: hardly any configuration fits the constraints.
        """
        root = rng.getrandbits(64)
        return self.fitting(lambda attempt: self._draw(root, *_further(attempt)))

    def sample_at(self, seed: int, ordinal: int, attempt: int = 0) -> Configuration:
        """The configuration number `ordinal` of the random sequence `seed`, without drawing those before it.

        `attempt` gives further, independent draws for the same ordinal. Raises ConstraintsError as `sample` does.
        """
        return self.fitting(lambda again: self._draw(seed, ordinal, attempt, *_further(again)))

    def fitting(self, draw: Callable[[int], Configuration], draws: int = DRAWS) -> Configuration:
        """The first of `draw(0)`, `draw(1)`, ... that fits the constraints.

        Raises:
            ConstraintsError: none of `draws` fitted; the message says how many of them each constraint let through.
        """
        refused, reason = Counter[str](), ""
        for attempt in range(draws):
            configuration = draw(attempt)
            if not self.constraints:
                return configuration
            values = self.flat(configuration)
            objections = {c.text: found for c in self.constraints if (found := c.objection(values))}
            if not objections:
                return configuration
            refused.update(objections.keys())
            reason = next(iter(objections.values()))
        told = ", ".join(f"{c.text} let {draws - refused[c.text]} through" for c in self.constraints)
        raise ConstraintsError(
            f"constraints: 0 of {draws} configurations fitted ({told}; the last one: {reason}); "
            "loosen them, or narrow the space to where they hold"
        )

    def _draw(self, *root: int) -> Configuration:
        return self.build(lambda name, parameter: parameter.sample(stream(*root, name)))

    def grid(self) -> Iterator[Configuration]:
        """All grid points that fit the constraints, in odometer order: the last name turns fastest, the first slowest.

        A parameter turns behind those that its conditions ask for.

        Raises:
            SpaceError: every continuous parameter that does not say how it is divided.
        """
        points = (self.grid_at(index) for index in range(self.grid_size))
        return (point for point in points if self.fits(point))

    def fits(self, configuration: Mapping[str, object]) -> bool:
        """Whether a configuration of this space fulfils the constraints."""
        if not self.constraints:
            return True
        values = self.flat(configuration)
        return not any(constraint.objection(values) for constraint in self.constraints)

    @property
    def grid_size(self) -> int:
        """How many grid points there are before constraints filter them; raises SpaceError as `grid` does."""
        return self._grid.size

    def grid_at(self, index: int) -> Configuration:
        """Grid point number `index`, 0 <= index < grid_size, in the order of `grid`, before constraints filter.

        Raises:
            IndexError: there is no such point.
        """
        places = self._grid.places(index)
        if places is None:
            raise IndexError(f"the grid has {self.grid_size} points, found index {index}")
        return self.build(lambda name, _: copy.deepcopy(self._wheels[name][places[name]]))

    @functools.cached_property
    def _wheels(self) -> dict[str, Sequence[JsonValue]]:
        wheels, problems = dict[str, Sequence[JsonValue]](), list[Problem]()
        for name, leaf in self._leaves.items():
            try:
                wheels[name] = leaf.parameter.grid()
            except ParameterError as error:
                problems.append(Problem(leaf.path, str(error)))
        if problems:
            raise SpaceError(problems)
        return wheels

    @functools.cached_property
    def _grid(self) -> Numbering:
        wheels = self._wheels

        def place(name: str, value: object) -> int | None:
            wheel = wheels[name]
            if isinstance(wheel, range):
                return wheel.index(value) if value in wheel else None  # type: ignore[arg-type]  # an int, or equal to one
            key = canonical_json(value)
            return next((n for n, found in enumerate(wheel) if canonical_json(found) == key), None)

        return self._numbering({name: len(wheel) for name, wheel in wheels.items()}, place)

    @functools.cached_property
    def _all(self) -> Numbering | None:
        sizes = {name: leaf.parameter.size for name, leaf in self._leaves.items()}
        counted = {name: size for name, size in sizes.items() if size is not None}
        if len(counted) < len(sizes):
            return None
        return self._numbering(counted, lambda name, value: self[name].index(value))

    def _numbering(self, lengths: Mapping[str, int], place: Callable[[str, object], int | None]) -> Numbering:
        return Numbering({leaf.name: leaf.conditions for leaf in self._order}, lengths, place)

    def contains(self, configuration: Mapping[str, object]) -> bool:
        """Whether `configuration` has a value of this space for each parameter, nothing else, and fits the constraints."""
        return not self.problems(configuration)

    def problems(self, configuration: Mapping[str, object]) -> list[str]:
        """Why `configuration` is not in this space: a sentence for each missing, foreign, outlying or unfitting value."""
        given, values = self.flat(configuration), dict[str, JsonValue]()
        for leaf in self._order:
            if leaf.name in given and all(condition.holds(values) for condition in leaf.conditions):
                values[leaf.name] = given[leaf.name]
        found = list(_missing(self._nodes, configuration, values))
        for name, node, value in _walk(self._nodes, configuration):
            if node is None:
                found.append(f"{name} is not a parameter of the space")
            elif not isinstance(node.inner, Parameter):
                if not isinstance(value, Mapping):
                    found.append(f"{name} = {show(value)} is not a mapping of names to values")
                elif unmet := _unmet(node, values):
                    found.append(f"{name} is given, though it is there only when {unmet}")
            elif unmet := _unmet(node, values):
                found.append(f"{name} = {show(value)} is given, though it is there only when {unmet}")
            elif not node.inner.contains(value):
                found.append(f"{name} = {show(value)} is outside {show(node.inner.to_data())}")
        if not found:
            found += [objection for c in self.constraints if (objection := c.objection(values))]
        return found

    @property
    def size(self) -> int | None:
        """How many configurations there are before constraints filter them; None when they cannot be counted."""
        return self._all.size if self._all is not None else None

    def at(self, index: int) -> Configuration:
        """Configuration number `index`, 0 <= index < size: all of them, not only the grid; the last name turns fastest.

        Raises:
            ParameterError: the space cannot be counted.
            IndexError: there is no such configuration.
        """
        if self._all is None:
            raise ParameterError("a space with a continuous parameter cannot be counted")
        places = self._all.places(index)
        if places is None:
            raise IndexError(f"the space has {self.size} configurations, found index {index}")
        return self.build(lambda name, parameter: parameter.at(places[name]))

    def __getitem__(self, name: str) -> Parameter:
        """The parameter with this dotted name."""
        return self._leaves[name].parameter

    def __iter__(self) -> Iterator[str]:
        """The dotted names in order."""
        return iter(self._leaves)

    def __len__(self) -> int:
        """How many parameters."""
        return len(self._leaves)

    def __eq__(self, other: object) -> bool:
        """Equal parameters under equal names, conditions and constraints in the same order."""
        if not isinstance(other, Space):
            return NotImplemented
        return self._nodes == other._nodes and self.constraints == other.constraints

    def __hash__(self) -> int:
        """Equal spaces hash alike."""
        return hash((canonical_json(self.to_dict()), self.constraints))

    def __repr__(self) -> str:
        """The written form."""
        constraints = [constraint.text for constraint in self.constraints]
        return f"Space({self.to_dict()!r}{f', constraints={constraints!r}' if constraints else ''})"


def _further(attempt: int) -> tuple[int, ...]:
    # The first draw has the name that it had before there were constraints: recorded experiments go on.
    return (attempt,) if attempt else ()


def _nested(nodes: tuple[SpaceNode, ...], values: Mapping[str, JsonValue]) -> Configuration:
    found = Configuration()
    for node in nodes:
        if not isinstance(node.inner, Parameter):
            if all(condition.holds(values) for condition in node.conditions):
                found[node.key] = _nested(node.inner, values)
        elif node.name in values:
            found[node.key] = values[node.name]
    return found


def _walk(
    nodes: tuple[SpaceNode, ...], configuration: Mapping[str, object], group: str = ""
) -> Iterator[tuple[str, SpaceNode | None, object]]:
    """What a configuration gives: dotted name, node of the space if there is one, value; a group before what is in it."""
    known = {node.key: node for node in nodes}
    for key, value in configuration.items():
        node = known.get(key)
        yield f"{group}{key}", node, value
        if node is not None and not isinstance(node.inner, Parameter) and isinstance(value, Mapping):
            yield from _walk(node.inner, value, f"{node.name}.")


def _unmet(node: SpaceNode, values: Mapping[str, JsonValue]) -> str:
    return " and ".join(str(condition) for condition in node.conditions if not condition.holds(values))


def _missing(
    nodes: tuple[SpaceNode, ...], configuration: Mapping[str, object], values: Mapping[str, JsonValue]
) -> Iterator[str]:
    for node in nodes:
        if node.key in configuration:
            inner = configuration[node.key]
            if not isinstance(node.inner, Parameter) and isinstance(inner, Mapping):
                yield from _missing(node.inner, inner, values)
        elif not _unmet(node, values):
            yield f"{node.name} is missing"
