"""Constraints between hyperparameters, such as `batch_size * width <= 4096`.

A constraint is an expression. Python's parser parses it; only the functions of this module evaluate it. The language
has numbers, text, `true`, `false`, `null`, names of parameters (dotted inside groups), `+ - * / // % **`, comparisons,
`in` with a list, `and`, `or`, `not`, and the functions `min`, `max`, `abs`, `log`, `len` and `at`. `at(lr, 50)` is the
value of the sequence `lr` at position 50.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias, cast

from hopyard.sequences import as_sequence
from hopyard.space.errors import ParameterError
from hopyard.space.kinds import did_you_mean
from hopyard.space.values import JsonValue, canonical_json, show

_LONGEST: Final = 1000
_DEEPEST: Final = 50
_EXAMPLE: Final = "batch_size * width <= 4096"

Values: TypeAlias = Mapping[str, JsonValue]
_Term: TypeAlias = Callable[[Values], JsonValue]


class Constraint:
    """An expression that every configuration of a space must fulfil. Constraints with equal texts are equal.

    Args:
        text: The expression.
        allowed: The dotted names of the space's parameters; the expression may contain only these.

    Attributes:
        text: The expression as written.
        names: The dotted names of the parameters in the expression, sorted; at least one.

    Raises:
        ParameterError: The text is not an expression of the language, has no or an unknown parameter, is longer than 1000
            characters, or is nested more than 50 levels deep.
    """

    def __init__(self, text: str, allowed: Iterable[str]) -> None:
        self.text = text
        reader = _Reader(set(allowed))
        self._term = reader.read(text)
        self.names = tuple(sorted(reader.found))

    def objection(self, values: Values) -> str | None:
        """Return why a configuration violates the constraint, or None if it fulfils the constraint.

        A constraint is fulfilled if a parameter in it is not part of the configuration. It is violated if it cannot be
        computed, for example because of a division by zero.

        Args:
            values: The values of the configuration by dotted name.
        """
        if any(name not in values for name in self.names):
            return None
        try:
            if _truth(self._term(values)):
                return None
            why = "does not hold"
        except (_UnfitError, ArithmeticError, ValueError) as error:
            why = f"cannot be computed: {error}"
        found = ", ".join(f"{name} = {show(values[name])}" for name in self.names)
        return f"the constraint {self.text} {why} with {found}"

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Constraint) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Constraint({self.text!r})"


class _UnfitError(Exception):
    """A value in a constraint has a type that the operation does not accept. The constraint is violated."""


def _number(value: JsonValue) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _UnfitError(f"needs a number, found {show(value)}")
    return value


def _truth(value: JsonValue) -> bool:
    if not isinstance(value, bool):
        raise _UnfitError(f"needs true or false, found {show(value)}")
    return value


def _same(one: JsonValue, other: JsonValue) -> bool:
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other)]
    # Compare numbers first, because an infinite result has no canonical text.
    return one == other if all(numbers) else not any(numbers) and canonical_json(one) == canonical_json(other)


def _numbers(arguments: Sequence[JsonValue]) -> list[float]:
    listed = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], list) else arguments
    return [_number(value) for value in listed] or _refuse("needs at least one number, found none")


def _refuse(message: str) -> list[float]:
    raise _UnfitError(message)


def _len(value: JsonValue) -> int:
    if not isinstance(value, list | str):
        raise _UnfitError(f"len needs a list or text, found {show(value)}")
    return len(value)


def _at(value: JsonValue, position: JsonValue) -> JsonValue:
    if isinstance(position, bool) or not isinstance(position, int) or position < 0:
        raise _UnfitError(f"at needs a position, a whole number from 0 on, found {show(position)}")
    return as_sequence(value).value(position)


_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: math.pow,  # Returns a float; an integer power could fill the memory.
}
_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[float, float], bool]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: Final[Mapping[str, tuple[int, int, Callable[[Sequence[JsonValue]], JsonValue]]]] = {
    "min": (1, 99, lambda given: min(_numbers(given))),
    "max": (1, 99, lambda given: max(_numbers(given))),
    "abs": (1, 1, lambda given: abs(_number(given[0]))),
    "log": (1, 2, lambda given: math.log(*(_number(value) for value in given))),
    "len": (1, 1, lambda given: _len(given[0])),
    "at": (2, 2, lambda given: _at(given[0], given[1])),
}
"""Each function with its minimum and maximum number of arguments."""

_WORDS: Final[Mapping[str, JsonValue]] = {"true": True, "false": False, "null": None}


class _Reader:
    """Compiles the text of one constraint: `read(text)` returns a function that evaluates it for values by dotted name.

    `read` raises ParameterError if the text is not a valid constraint.

    Args:
        allowed: The dotted names that the text may contain.

    Attributes:
        found: The dotted names of the parameters in the text; empty before `read` is called.
    """

    def __init__(self, allowed: set[str]) -> None:
        self._allowed = allowed
        self._depth = 0
        self.found = set[str]()

    def read(self, text: str) -> _Term:
        if not isinstance(text, str):
            raise ParameterError(f"needs an expression such as {_EXAMPLE}, found {show(text)}")
        if len(text) > _LONGEST:
            raise ParameterError(f"needs an expression of at most {_LONGEST} characters, found {len(text)}")
        try:
            body = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            why = getattr(error, "msg", None) or "it is nested too deeply"
            raise ParameterError(f"needs an expression such as {_EXAMPLE}, found {show(text)}: {why}") from None
        truth = isinstance(body, ast.Compare | ast.BoolOp | ast.Name | ast.Attribute)
        if not truth and not (isinstance(body, ast.UnaryOp) and isinstance(body.op, ast.Not)):
            raise ParameterError(f"needs a comparison such as {_EXAMPLE}, found {show(text)}")
        term = self._term(body)
        if not self.found:
            raise ParameterError(f"needs the name of a parameter, found {show(text)}")
        return term

    def _term(self, node: ast.expr) -> _Term:
        if self._depth == _DEEPEST:
            raise ParameterError(f"is nested more than {_DEEPEST} levels deep")
        self._depth += 1
        try:
            return self._term_of(node)
        finally:
            self._depth -= 1

    def _term_of(self, node: ast.expr) -> _Term:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return lambda _: cast(JsonValue, value)
            case ast.Name() | ast.Attribute():
                return self._name(node)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                return self._arithmetic(_OPERATIONS[type(op)], left, right)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                term = self._term(operand)
                return lambda values: -_number(term(values))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                term = self._term(operand)
                return lambda values: _number(term(values))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                term = self._term(operand)
                return lambda values: not _truth(term(values))
            case ast.BoolOp(op=op, values=operands):
                terms, every = [self._term(operand) for operand in operands], isinstance(op, ast.And)
                return lambda values: (all if every else any)(_truth(term(values)) for term in terms)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._comparison(left, ops, comparators)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
                return self._function(name, arguments)
            case ast.Call(func=ast.Name(id=name)):
                raise ParameterError(
                    f"unknown function {name}{did_you_mean(name, _FUNCTIONS)}; allowed: {', '.join(_FUNCTIONS)}"
                )
        raise ParameterError(
            f"{show(ast.unparse(node))} is not allowed; allowed are numbers, text, names, + - * / // % **, comparisons, "
            "in [...], and, or, not, and the functions " + ", ".join(_FUNCTIONS)
        )

    def _name(self, node: ast.Name | ast.Attribute) -> _Term:
        name = ast.unparse(node)
        if name not in self._allowed:
            if name in _WORDS:
                word = _WORDS[name]
                return lambda _: word
            raise ParameterError(
                f"{name} is not a parameter of the space{did_you_mean(name, self._allowed)}; "
                f"it has: {', '.join(sorted(self._allowed))}"
            )
        self.found.add(name)
        return lambda values: values[name]

    def _arithmetic(self, operation: Callable[[float, float], float], left: ast.expr, right: ast.expr) -> _Term:
        one, other = self._term(left), self._term(right)
        return lambda values: operation(_number(one(values)), _number(other(values)))

    def _function(self, name: str, arguments: list[ast.expr]) -> _Term:
        least, most, function = _FUNCTIONS[name]
        if not least <= len(arguments) <= most:
            raise ParameterError(f"{name} takes {least} to {most} arguments, found {len(arguments)}")
        terms = [self._term(argument) for argument in arguments]
        return lambda values: function([term(values) for term in terms])

    def _comparison(self, left: ast.expr, ops: list[ast.cmpop], comparators: list[ast.expr]) -> _Term:
        links = list[Callable[[Values], bool]]()
        for one, op, other in zip([left, *comparators], ops, comparators, strict=False):
            links.append(self._link(one, op, other))
        return lambda values: all(link(values) for link in links)

    def _link(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Callable[[Values], bool]:
        one = self._term(left)
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.List | ast.Tuple):
                raise ParameterError(f"in needs a list such as [32, 64] after it, found {show(ast.unparse(right))}")
            terms, wanted = [self._term(item) for item in right.elts], isinstance(op, ast.In)
            return lambda values: any(_same(one(values), term(values)) for term in terms) is wanted
        other = self._term(right)
        if isinstance(op, ast.Eq | ast.NotEq):
            equal = isinstance(op, ast.Eq)
            return lambda values: _same(one(values), other(values)) is equal
        if type(op) not in _COMPARISONS:
            raise ParameterError("is and is not are not allowed; write == or !=")
        compare = _COMPARISONS[type(op)]
        return lambda values: compare(_number(one(values)), _number(other(values)))
