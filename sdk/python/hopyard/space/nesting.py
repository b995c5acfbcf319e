"""The tree of named parameters and groups of a space, and the order of parameters that their conditions require.

An entry is what a space has under a name: a parameter, a group, or one of them with conditions. The written form of a space or an
entry is its data in an experiment file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from hopyard.space.conditions import Condition, Entry, When
from hopyard.space.errors import ParameterError, Problem
from hopyard.space.kinds import KINDS, did_you_mean, parameter_from_data
from hopyard.space.parameter import Parameter
from hopyard.space.values import JsonValue, show

_DEEPEST: Final = 10
_GROUP: Final = "space"
_WHEN: Final = "when"


@dataclass(frozen=True)
class SpaceNode:
    """A node in the tree of a space: a parameter or a group of nodes.

    Attributes:
        key: The name inside its group.
        name: The dotted name, such as `model.depth`.
        path: The location in a written space: the keys from its root to the node.
        own: The conditions written at this node.
        conditions: The conditions of the groups around this node, followed by `own`.
        inner: The parameter, or the nodes of the group.
    """

    key: str
    name: str
    path: tuple[str, ...]
    own: tuple[Condition, ...]
    conditions: tuple[Condition, ...]
    inner: Parameter | tuple[SpaceNode, ...]

    def leaves(self) -> Iterator[Leaf]:
        """Yield the parameters of this node in order: its parameter, or those at all levels of its group."""
        if isinstance(self.inner, Parameter):
            yield Leaf(self.name, self.path, self.conditions, self.inner)
        else:
            for node in self.inner:
                yield from node.leaves()

    def entry(self) -> Entry:
        """Return this node as an entry, from which another space can be created.

        An entry is a parameter, a mapping of names to entries (a group), or a `When` that adds conditions to either.
        """
        inner = self.inner if isinstance(self.inner, Parameter) else {node.key: node.entry() for node in self.inner}
        return When(inner, {c.name: list(c.values) for c in self.own}) if self.own else inner

    def written(self) -> JsonValue:
        """Return the written form of the parameter or group, with its own conditions."""
        if isinstance(self.inner, Parameter):
            data = self.inner.to_data()
            if not self.own:
                return data
            # A scalar cannot hold conditions, so write it as a mapping.
            data = data if isinstance(data, dict) else {self.inner.kind: data}
        else:
            data = {_GROUP: {node.key: node.written() for node in self.inner}}
        return {**data, _WHEN: {c.name: c.to_data() for c in self.own}} if self.own else data


@dataclass(frozen=True)
class Leaf:
    """A parameter with its place in the tree of a space.

    Attributes:
        name: The dotted name, such as `model.depth`.
        path: The location in a written space: the keys from its root to the parameter.
        conditions: All conditions of the parameter, including those of the groups around it.
        parameter: The parameter.
    """

    name: str
    path: tuple[str, ...]
    conditions: tuple[Condition, ...]
    parameter: Parameter


def read_entries(data: Mapping[object, object], path: tuple[str, ...] = ()) -> tuple[dict[str, Entry], list[Problem]]:
    """Read a written space or group.

    Args:
        data: The names, each with an entry (a parameter, a group or one of them with conditions) as in an experiment file.
        path: The location of `data` in the written space; () for the space itself.

    Returns:
        The valid entries by name, and all problems found, with their locations.
    """
    entries, problems = dict[str, Entry](), list[Problem]()
    for name, written in data.items():
        if not (name and isinstance(name, str)):
            problems.append(Problem((*path, str(name)), f"a parameter's name is non-empty text, found {show(name)}"))
            continue
        try:
            entries[name] = _read(written, (*path, name), problems)
        except ParameterError as error:
            problems.append(Problem((*path, name, *error.path), str(error)))
    return entries, problems


def _read(written: object, path: tuple[str, ...], problems: list[Problem]) -> Entry:
    if not isinstance(written, Mapping):
        return parameter_from_data(written)
    rest = {key: value for key, value in written.items() if key != _WHEN}
    entry: Parameter | Mapping[str, Entry]
    if _GROUP in rest and not any(key in KINDS for key in rest):
        entry, found = _read_group(rest, path)
        problems += found
    else:
        entry = parameter_from_data(rest)
    if _WHEN not in written:
        return entry
    conditions = written[_WHEN]
    if not (isinstance(conditions, Mapping) and conditions):
        raise ParameterError(
            f"when needs a mapping of names to values, such as {{optimizer: sgd}}, found {show(conditions)}"
        )
    return When(entry, cast("Mapping[str, JsonValue]", conditions))


def _read_group(written: Mapping[object, object], path: tuple[str, ...]) -> tuple[dict[str, Entry], list[Problem]]:
    if others := [str(key) for key in written if key != _GROUP]:
        raise ParameterError(f"a group takes space and when, found also {', '.join(others)}")
    inner = written[_GROUP]
    if not isinstance(inner, Mapping):
        raise ParameterError(f"a group's space needs a mapping of names to parameters, found {show(inner)}")
    if len(path) > 2 * _DEEPEST:
        raise ParameterError(f"groups may be nested {_DEEPEST} deep")
    return read_entries(inner, (*path, _GROUP))


def create_nodes(
    entries: Mapping[str, Entry],
    problems: list[Problem],
    parent: SpaceNode | None = None,
) -> tuple[SpaceNode, ...]:
    """Create the nodes of a space or group, with everything inside them.

    Args:
        entries: By name, a parameter, a group (a mapping of names to entries), or a `When` that adds conditions to either.
        problems: Receives a problem for each invalid name, wrong type or invalid value. Entries with a problem may be missing in the
            result.
        parent: The node of the group that contains the entries; None for the space itself.
    """
    nodes = list[SpaceNode]()
    for key, entry in cast("Mapping[object, object]", entries).items():
        place = (*parent.path, _GROUP, str(key)) if parent else (str(key),)
        inner = entry.inner if isinstance(entry, When) else entry
        if not (key and isinstance(key, str) and isinstance(inner, Parameter | Mapping)):
            problems.append(Problem(place, f"needs a non-empty name and a Parameter, found {key!r}: {show(inner)}"))
            continue
        own = tuple(_conditions(entry.conditions, place, problems)) if isinstance(entry, When) else ()
        name = f"{parent.name}.{key}" if parent else key
        node = SpaceNode(key, name, place, own, ((*parent.conditions, *own) if parent else own), ())
        if isinstance(inner, Parameter):
            planted: Parameter | tuple[SpaceNode, ...] = inner
        else:
            before = len(problems)
            planted = create_nodes(cast("Mapping[str, Entry]", inner), problems, node)
            if not planted and len(problems) == before:
                problems.append(Problem(place, "a group needs at least one parameter, found none"))
        nodes.append(SpaceNode(key, name, place, own, node.conditions, planted))
    return tuple(nodes)


def _conditions(
    conditions: Mapping[str, object], place: tuple[str, ...], problems: list[Problem]
) -> Iterator[Condition]:
    for name, written in conditions.items():
        try:
            yield Condition.from_data(str(name), written)
        except ParameterError as error:
            problems.append(Problem((*place, _WHEN, str(name)), str(error)))


def check(nodes: tuple[SpaceNode, ...], problems: list[Problem]) -> dict[str, Leaf]:
    """Check the names and conditions of a space, and return its parameters by dotted name, in order.

    Args:
        nodes: The nodes of the space.
        problems: Receives a problem for each dotted name that several parameters have, and for each condition that refers to no
            parameter of the space or can never hold. The result contains all parameters nevertheless, the last of equal names.
    """
    leaves = dict[str, Leaf]()
    for leaf in (leaf for node in nodes for leaf in node.leaves()):
        if leaf.name in leaves:
            problems.append(Problem(leaf.path, f"a second parameter with the name {leaf.name}"))
        leaves[leaf.name] = leaf
    for node in _all(nodes):
        for condition in node.own:
            if reason := _impossible(condition, leaves):
                problems.append(Problem((*node.path, _WHEN, condition.name), reason))
        for one in node.own:
            for other in node.conditions:
                if one.name == other.name and not set(one.keys) & set(other.keys):
                    problems.append(Problem((*node.path, _WHEN, one.name), f"never holds: {one}, but also {other}"))
    return leaves


def _all(nodes: tuple[SpaceNode, ...]) -> Iterator[SpaceNode]:
    for node in nodes:
        yield node
        if not isinstance(node.inner, Parameter):
            yield from _all(node.inner)


def _impossible(condition: Condition, leaves: Mapping[str, Leaf]) -> str | None:
    name, leaf = condition.name, leaves.get(condition.name)
    if leaf is None:
        return f"{name} is not a parameter of the space{did_you_mean(name, leaves)}; it has: {', '.join(leaves)}"
    parameter = leaf.parameter
    written = show(parameter.to_data())
    if parameter.size is None:
        return f"needs a parameter whose values can be counted, such as a choice; {name} is {written}"
    outside = [show(value) for value in condition.values if not parameter.contains(value)]
    return f"{', '.join(outside)} is not a value of {name}, which is {written}" if outside else None


def in_order(leaves: Mapping[str, Leaf], problems: list[Problem]) -> tuple[Leaf, ...]:
    """Return the parameters in an order in which each follows those that its conditions refer to.

    Apart from that, the order of `leaves` is preserved.

    Args:
        leaves: The parameters by dotted name.
        problems: Receives a problem for each cycle of conditions. The result then contains all parameters, in an order that does
            not satisfy the conditions of the cycle.
    """
    ordered, open_ = dict[str, Leaf](), list[str]()

    def visit(leaf: Leaf) -> None:
        if leaf.name in ordered:
            return
        if leaf.name in open_:
            circle = " -> ".join([*open_[open_.index(leaf.name) :], leaf.name])
            problems.append(Problem(leaf.path, f"its conditions go in a circle: {circle}"))
            return
        open_.append(leaf.name)
        for condition in leaf.conditions:
            visit(leaves[condition.name])
        open_.pop()
        ordered[leaf.name] = leaf

    for leaf in leaves.values():
        visit(leaf)
    return tuple(ordered.values())
