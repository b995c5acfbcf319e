"""Generate docs/experiment-file.md from the models of the experiment file.

Names, types, defaults, bounds and descriptions come from `hopyard.spec` and `hopyard.space`. Examples come from the experiment files in
scripts/spec_reference, which are validated, and which together must use every field and option. With --check nothing is written: the
page is generated and compared.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import annotated_types
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hopyard import space
from hopyard.space import KINDS, Parameter
from hopyard.spec import ExperimentSpec, fields, load_spec

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "experiment-file.md"
EXAMPLES: Final = ROOT / "scripts" / "spec_reference"

_MODES: Final = {
    "trainer": "a `Trainer` class; its process stays on its slot and is reused for later runs.",
    "script": "a script with one `hopyard.report(...)` line.",
    "log": "any program; metrics are read from its output.",
    "requests": "a `Trainer` whose configurations clients request one by one (docs/studies.md).",
}
_WORDS: Final[Mapping[object, str]] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    Any: "any JSON value",
}
_HEAD: Final = """<!-- Written by scripts/generate_spec_reference.py: change the models or that script, not this page. -->

# The experiment file

The input of `hopyard run FILE`, in YAML 1.2 or JSON. Times are `30s`, `15m`, `2h`, `1d` or sums such as `1h30m`. Numbers of
bytes are `500MB` (powers of 1000) or `10GiB` (powers of 1024). All errors are reported at once, each with file, line, field, the
value found and the values allowed; an unknown field is an error. `hopyard init` writes a file with comments for your script.

Exactly one of `trainer`, `command` and `log` defines the program.
"""


class ReferenceError(Exception):
    """Raised when the page cannot be generated; the message says what is missing, and where."""


class Examples:
    """The experiment files that contain the page's examples. The constructor loads and validates all of them."""

    def __init__(self, folder: Path) -> None:
        self.texts = {name: (folder / f"{name}.yaml").read_text() for name in _MODES}
        self.data = [yaml.safe_load(text) for text in self.texts.values()]
        for name, text in self.texts.items():
            load_spec(text, f"{name}.yaml")

    def value(self, path: Sequence[str]) -> object:
        """Return the first value in the files at a path of keys.

        Raises:
            ReferenceError: No file has a value there.
        """
        for data in self.data:
            for key in path:
                if not isinstance(data, Mapping) or key not in data:
                    break
                data = data[key]
            else:
                return data
        raise ReferenceError(f"no example uses {'.'.join(path)}: add it to a file in scripts/spec_reference")

    def parameter(self, kind: str, option: str | None) -> str:
        """Return the first hyperparameter in the files that has a kind and uses an option, as it is written there.

        Args:
            kind: The kind, such as `uniform`.
            option: The option; None: any hyperparameter of the kind.

        Raises:
            ReferenceError: No file has one.
        """
        for data in self.data:
            for name, written in data["space"].items():
                keys = written if isinstance(written, Mapping) else {"constant"}
                if kind in keys and (option is None or option in keys):
                    return _flow({name: written})
        raise ReferenceError(
            f"no example has {kind} with {option or 'its values'}: add one to a file in scripts/spec_reference"
        )


def page(examples: Examples) -> str:
    """Return the text of the page."""
    parts = [_HEAD]
    for name, text in examples.texts.items():
        parts.append(f"**{name}**: {_MODES[name]}\n\n```yaml\n{text}```\n")
    parts.append("## Fields\n")
    parts.append(_table(ExperimentSpec, (), examples))
    for path, model in _sections(ExperimentSpec, ()):
        parts.append(f"## `{'.'.join(path)}`\n\n{inspect.getdoc(model)}\n")
        parts.append(_table(model, path, examples))
    parts.append(_space(examples))
    return "\n".join(parts)


def _sections(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    for name, hint in _hints(model).items():
        for inner in _models(hint):
            yield (*path, name), inner
            yield from _sections(inner, (*path, name))


def _table(model: type[BaseModel], path: tuple[str, ...], examples: Examples) -> str:
    rows = ["| field | what | type | default | example |", "|---|---|---|---|---|"]
    hints = _hints(model)
    for name, field in model.model_fields.items():
        place = (*path, name)
        nested = any(True for _ in _models(hints[name])) or name == "space"
        value = examples.value(place)
        example = "below" if nested else f"`{_flow({name: value})}`"
        row = (f"`{name}`", field.description, _type(hints[name], field), _default(field, nested), example)
        if not field.description:
            raise ReferenceError(f"the field {'.'.join(place)} has no description")
        rows.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |")
    if model.model_config.get("extra") == "allow":
        rows.append("| *any other* | A parameter of the plugin; `hopyard plugins` lists them. | any JSON value | | |")
    return "\n".join(rows) + "\n"


def _hints(model: type[BaseModel]) -> dict[str, Any]:
    hints = typing.get_type_hints(model, include_extras=True)
    return {name: hints[name] for name in model.model_fields}


def _models(hint: object) -> Iterator[type[BaseModel]]:
    """Yield the models (sections of the experiment file) in a type."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for argument in typing.get_args(hint):
        if not isinstance(argument, str):
            yield from _models(argument)


def _type(hint: object, field: FieldInfo) -> str:
    return ", ".join([_words(hint), *_bounds(field)])


def _words(hint: object) -> str:
    """Return the description of a type for readers who write YAML.

    Raises:
        ReferenceError: No description is defined for the type.
    """
    if (alias := next((name for name, value in vars(fields).items() if value == hint), None)) in _alias_docs():
        return _alias_docs()[str(alias)]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        inner = _words(arguments[0])
        return f"text, or {inner}" if fields.NameOrMapping in arguments[1:] else inner
    if origin in (typing.Union, types.UnionType):
        # None is omitted here: the column of the default shows it.
        return " or ".join(_words(argument) for argument in arguments if argument is not type(None))
    if origin is typing.Literal:
        return "one of " + ", ".join(f"`{argument}`" for argument in arguments)
    if origin in (dict, Mapping):
        return f"mapping of {_words(arguments[0])} to {_words(arguments[1])}"
    if origin in (tuple, list):
        return f"list of {_words(arguments[0])}"
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return "mapping"
    if hint in _WORDS:
        return _WORDS[hint]
    raise ReferenceError(f"the type {hint} has no words: add some to scripts/generate_spec_reference.py")


def _alias_docs() -> dict[str, str]:
    """Return the docstring of each type alias of `hopyard.spec.fields`, by name, without full stop and with a small first letter."""
    body = ast.parse(inspect.getsource(fields)).body
    docs = dict[str, str]()
    for pair in itertools.pairwise(body):
        match pair:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                text = " ".join(text.split()).removesuffix(".")
                docs[name] = text[0].lower() + text[1:]
    return docs


def _bounds(field: FieldInfo) -> Iterator[str]:
    for bound in field.metadata:
        match bound:
            case annotated_types.Ge(ge=least):
                yield f"{least} or more"
            case annotated_types.Gt(gt=least):
                yield f"above {least}"
            case annotated_types.Le(le=most):
                yield "at most 2^63 - 1" if most == 2**63 - 1 else f"at most {most}"
            case annotated_types.Lt(lt=most):
                yield f"below {most}"
            case annotated_types.MinLen(min_length=1):
                yield "not empty"


def _default(field: FieldInfo, nested: bool) -> str:
    if field.is_required():
        return "**required**"
    default = field.get_default(call_default_factory=True)
    if nested and isinstance(default, BaseModel):
        name = getattr(default, "name", None)
        return f"`{name}`" if name else "as below"
    if default is None:
        return "none"
    return f"`{_flow(default)}`"


def _space(examples: Examples) -> str:
    parts = [
        "## `space`\n",
        "A mapping of names to parameters. A parameter is a mapping with one of the kinds below and its options; a text, number "
        "or truth value alone is a constant.\n",
    ]
    for name, kind in KINDS.items():
        summary, attributes = _documented(kind)
        parts.append(f"### `{name}`\n\n{summary} Written `{examples.parameter(name, None)}`.\n")
        if attributes:
            rows = ["| | what | example |", "|---|---|---|"]
            for attribute, text in attributes.items():
                beside = attribute in kind.options
                # A single value is written directly under the kind, without a name; `low` and `high` are two list entries.
                label = f"{name}: [...]" if not beside and len(set(attributes) - set(kind.options)) == 1 else attribute
                example = f"`{examples.parameter(name, attribute)}` |" if beside else "|"
                rows.append(f"| `{label}` | {text} | {example}")
            parts.append("\n".join(rows) + "\n")
        if undocumented := set(kind.options) - set(attributes):
            raise ReferenceError(f"{kind.__name__} does not document {', '.join(sorted(undocumented))}")
    parts.append("### Conditions and groups\n")
    for key in ("when", "space"):
        parts.append(f"* {_form(key)} For instance `{examples.parameter(key, None)}`.")
    return "\n".join(parts) + "\n"


def _form(key: str) -> str:
    """Return what the docstring of `hopyard.space` says about the written form with this key.

    Raises:
        ReferenceError: The docstring does not describe the key.
    """
    bullets = re.findall(r"^- (`\{.*?)(?=^- |^$)", inspect.getdoc(space) or "", re.DOTALL | re.MULTILINE)
    for bullet in bullets:
        if f"{key}:" in bullet.partition("`:")[0]:
            return " ".join(str(bullet).split())
    raise ReferenceError(f"hopyard.space does not say how {key} is written")


def _documented(kind: type[Parameter]) -> tuple[str, dict[str, str]]:
    """Return the summary of a class and the description of each of its attributes, from its docstring in Google style."""
    summary, _, rest = (inspect.getdoc(kind) or "").partition("Attributes:")
    attributes, name = dict[str, str](), ""
    for line in rest.splitlines():
        if line.startswith("    ") and not line.startswith("     "):
            name, _, text = line.strip().partition(": ")
            attributes[name] = text
        elif line.strip():
            attributes[name] += " " + line.strip()
    return " ".join(summary.split()), attributes


def _flow(value: object) -> str:
    """Return a value as YAML on one line, as a person would write it."""
    text = yaml.safe_dump(value, default_flow_style=True, width=float("inf"), sort_keys=False).strip()
    text = text.removesuffix("\n...").removesuffix("...").strip()
    return text[1:-1] if isinstance(value, Mapping) and len(value) == 1 else text


def main(arguments: Sequence[str] | None = None) -> int:
    """Generate the page, or compare it with --check. Return the exit code."""
    parser = argparse.ArgumentParser(description="Write docs/experiment-file.md from the models.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the page is not current")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the page lies")
    options = parser.parse_args(arguments)
    try:
        text = page(Examples(EXAMPLES))
    except ReferenceError as error:
        print(error, file=sys.stderr)
        return 1
    if options.check:
        if not options.page.exists() or options.page.read_text() != text:
            print(f"{options.page} is not current: run python scripts/generate_spec_reference.py and commit the result")
            return 1
        return 0
    options.page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
