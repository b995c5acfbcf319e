"""A search space: named parameters in a fixed order, optionally in groups or under conditions."""

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
from hopyard.space.nesting import Leaf, SpaceNode, check, create_nodes, in_order, read_entries
from hopyard.space.parameter import Parameter
from hopyard.space.rng_streams import stream
from hopyard.space.values import Configuration, JsonValue, canonical_json, show

DRAWS: Final = 1000
"""Maximum number of configurations to draw until one fits the constraints."""


class Space(Mapping[str, Parameter]):
    """A search space: an immutable mapping of dotted names to parameters (`space["lr"]`, `"model.depth" in space`).

    A configuration has one value for each parameter whose conditions hold; use `contains` to test configurations. The
    order of the names is part of the space and defines the order of a grid.

    A **group** is a name that contains further names; in a configuration it is a nested mapping. A parameter or group
    with **conditions** is part of a configuration only if they hold. **Constraints** filter the configurations:
    `sample`, `sample_at`, `grid`, `contains` and `problems` apply them, while `size`, `at`, `grid_size` and `grid_at`
    ignore them.

    Args:
        parameters: By name, in the order of the space: a parameter, a group (a mapping of names to the same), or a `When`, which
            adds conditions to either.
        constraints: Expressions that every configuration must fulfil (`hopyard.space.constraints`).

    Raises:
        SpaceError: A name is empty or not text, a value is not a `Parameter`, a group or a `When`, a condition can never hold,
            or a constraint is not an expression about these parameters.
    """

    def __init__(self, parameters: Mapping[str, Entry], constraints: Sequence[str] = ()) -> None:
        problems = list[Problem]()
        self._nodes = create_nodes(parameters, problems)
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
        """Create a space from its written form: a mapping of names to written parameters, as in an experiment file.

        Raises:
            SpaceError: Some parameters are wrong. The error contains every problem.
        """
        if not isinstance(data, Mapping):
            raise SpaceError([Problem((), f"needs a mapping of names to parameters, found {show(data)}")])
        entries, problems = read_entries(cast("Mapping[object, object]", data))
        if problems:
            raise SpaceError(problems)
        return cls(entries)

    def to_dict(self) -> dict[str, JsonValue]:
        """Return the written form: plain JSON in the order of the names. `from_dict` creates an equal space from it.

        Constraints are not included; an experiment file has them outside the space.
        """
        return {node.key: node.written() for node in self._nodes}

    def constrained(self, constraints: Sequence[str]) -> Self:
        """Return this space with the given constraints instead of its current ones.

        Raises:
            SpaceError: A constraint is not an expression about the space's parameters.
        """
        return type(self)(self.entries, constraints)

    @property
    def entries(self) -> dict[str, Entry]:
        """The argument `parameters` of the constructor: by name, a parameter, a group, or a `When` that adds conditions to either."""
        return {node.key: node.entry() for node in self._nodes}

    def conditions(self, name: str) -> tuple[Condition, ...]:
        """Return all conditions of the parameter with the dotted name `name`, including those of its groups.

        Raises:
            KeyError: The space has no such parameter.
        """
        return self._leaves[name].conditions

    def build(self, value_of: Callable[[str, Parameter], JsonValue]) -> Configuration:
        """Create a configuration from a function that provides the values.

        The configuration contains the parameters whose conditions hold. The result shares no mappings with the space.

        Args:
            value_of: Returns the value for a dotted name and its parameter. It is called only for the parameters that
                the configuration contains; each of them comes after those that its conditions refer to.
        """
        values = dict[str, JsonValue]()
        for leaf in self._order:
            if all(condition.holds(values) for condition in leaf.conditions):
                values[leaf.name] = value_of(leaf.name, leaf.parameter)
        return _nested(self._nodes, values)

    def flat(self, configuration: Mapping[str, object]) -> dict[str, JsonValue]:
        """Return the values of a configuration by dotted name, in the order of the space.

        Names that the space does not have, and parameters that the configuration does not have, are omitted. Values are not checked.
        """
        given = {node.name: value for _, node, value in _walk(self._nodes, configuration) if node is not None}
        return {name: cast(JsonValue, given[name]) for name in self._leaves if name in given}

    def normalize(self, configuration: Mapping[str, object]) -> Configuration:
        """Return a configuration of this space with each value in the type that its parameter draws: an integer as 3, not 3.0."""
        values = self.flat(configuration)
        return self.build(lambda name, parameter: parameter.normalize(values[name]))

    def sample(self, rng: random.Random) -> Configuration:
        """Draw one configuration that fits the constraints.

        The method takes exactly one number from `rng`. Each parameter has a separate stream that is derived from that
        number and the parameter's name. Therefore adding, removing or reordering parameters does not change the values
        of the others.

        Raises:
            ConstraintsError: None of 1000 draws fits the constraints.
        """
        root = rng.getrandbits(64)
        return self.fitting(lambda attempt: self._draw(root, *_further(attempt)))

    def sample_at(self, seed: int, ordinal: int, attempt: int = 0) -> Configuration:
        """Return configuration number `ordinal` of the random sequence identified by `seed`, without drawing the earlier ones.

        Args:
            seed: The seed of the sequence.
            ordinal: The number of the configuration, >= 0.
            attempt: Another number gives another, independent configuration for the same seed and ordinal.

        Raises:
            ConstraintsError: None of 1000 draws fits the constraints.
        """
        return self.fitting(lambda again: self._draw(seed, ordinal, attempt, *_further(again)))

    def fitting(self, draw: Callable[[int], Configuration], draws: int = DRAWS) -> Configuration:
        """Return the first of `draw(0)`, `draw(1)`, and so on that fits the constraints.

        Args:
            draw: Returns a configuration of this space for the number of the attempt.
            draws: The maximum number of attempts.

        Raises:
            ConstraintsError: None of the attempts fits. The message says how many of them fulfilled each constraint.
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
        """Iterate over all grid points (configurations) that fit the constraints. The last name changes fastest, the first slowest.

        A parameter changes faster than those that its conditions refer to.

        Raises:
            SpaceError: Some continuous parameters have no step or count. The error names all of them.
        """
        points = (self.grid_at(index) for index in range(self.grid_size))
        return (point for point in points if self.fits(point))

    def fits(self, configuration: Mapping[str, object]) -> bool:
        """Return whether a configuration of this space fulfils all constraints. Its values are not checked; `contains` does that."""
        if not self.constraints:
            return True
        values = self.flat(configuration)
        return not any(constraint.objection(values) for constraint in self.constraints)

    @property
    def grid_size(self) -> int:
        """The number of grid points, including those that violate constraints.

        Raises:
            SpaceError: Some continuous parameters have no step or count. The error names all of them.
        """
        return self._grid.size

    def grid_at(self, index: int) -> Configuration:
        """Return grid point number `index`, 0 <= index < grid_size. Constraints are ignored; otherwise the order is that of `grid`.

        Raises:
            IndexError: There is no such point.
            SpaceError: Some continuous parameters have no step or count.
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
        """Return whether a configuration is in this space.

        This is the case if the configuration has a valid value for each parameter whose conditions hold, has no other
        names, and fits the constraints.
        """
        return not self.problems(configuration)

    def problems(self, configuration: Mapping[str, object]) -> list[str]:
        """Return why `configuration` is not in this space: one sentence for each missing, unknown or invalid value.

        If no value is missing, unknown or invalid, the result has one sentence for each violated constraint. It is empty if
        the configuration is in the space.
        """
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
        """The number of configurations, including those that violate constraints; None if they cannot be counted."""
        return self._all.size if self._all is not None else None

    def at(self, index: int) -> Configuration:
        """Return configuration number `index`, 0 <= index < size. The last name changes fastest. Constraints are ignored.

        Raises:
            ParameterError: The configurations cannot be counted.
            IndexError: There is no such configuration.
        """
        if self._all is None:
            raise ParameterError("a space with a continuous parameter cannot be counted")
        places = self._all.places(index)
        if places is None:
            raise IndexError(f"the space has {self.size} configurations, found index {index}")
        return self.build(lambda name, parameter: parameter.at(places[name]))

    def __getitem__(self, name: str) -> Parameter:
        """Return the parameter with the dotted name `name`; raise `KeyError` if there is none."""
        return self._leaves[name].parameter

    def __iter__(self) -> Iterator[str]:
        """Iterate over the dotted names of the parameters, in order."""
        return iter(self._leaves)

    def __len__(self) -> int:
        """Return the number of parameters."""
        return len(self._leaves)

    def __eq__(self, other: object) -> bool:
        """Return whether both spaces have equal names, parameters, conditions and constraints, in the same order."""
        if not isinstance(other, Space):
            return NotImplemented
        return self._nodes == other._nodes and self.constraints == other.constraints

    def __hash__(self) -> int:
        """Return a hash of the written form and the constraints."""
        return hash((canonical_json(self.to_dict()), self.constraints))

    def __repr__(self) -> str:
        """Return the written form and the constraints as text."""
        constraints = [constraint.text for constraint in self.constraints]
        return f"Space({self.to_dict()!r}{f', constraints={constraints!r}' if constraints else ''})"


def _further(attempt: int) -> tuple[int, ...]:
    # Attempt 0 keeps the stream name that was used before constraints existed, so that recorded experiments can
    # continue.
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
    """Yield every entry of a configuration, groups before their entries.

    Args:
        nodes: The nodes of the space or of the group.
        configuration: The configuration, or the group's part of it.
        group: The dotted name of the group with a final dot; empty for the space.

    Yields:
        The dotted name, the node (None if the space has no such name) and the value of each entry.
    """
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
