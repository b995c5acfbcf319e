"""Checks of the hopyard commands that a page names without running them: the commands and their options must exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Final, cast

import click

from hopyard._common.plugins import COMMANDS
from hopyard.cli.app import build, load_command
from tests.docs.pages import Block

_INLINE: Final = re.compile(r"`(hopyard [a-z][^`\n]*)`")
_OPTION: Final = re.compile(r"--?[A-Za-z][\w-]*")


def mistakes(text: str, blocks: Sequence[Block]) -> Iterator[str]:
    """Yield the errors in the commands of a page's text and of its blocks that are not run."""
    for found in _INLINE.finditer(text):
        yield from _of(found[1])
    for block in blocks:
        if "not run" in block.marks:
            for line in block.commands.splitlines():
                if line.strip().startswith("hopyard "):
                    yield from _of(line.strip())


def _of(line: str) -> Iterator[str]:
    try:
        words = shlex.split(line, comments=True)[1:]
    except ValueError:
        words = line.split()[1:]
    names = words[0].split("|") if "|" in words[0] else [words[0]]
    if names[0].startswith("-"):
        return
    for name in names:
        command = _command(name)
        if command is None:
            yield f"`{line}`: there is no command {name}"
            continue
        rest = words[1:]
        inside: Mapping[str, click.Command] = getattr(command, "commands", {})  # typer has its own copy of click.
        if inside and rest and not rest[0].startswith("-"):
            inner = inside.get(rest[0])
            if inner is None and "|" not in rest[0]:
                yield f"`{line}`: {name} has no command {rest[0]}"
            if inner is None:
                continue
            command, rest = inner, rest[1:]
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for word in rest:
            if (found := _OPTION.match(word)) and found[0] not in known | {"--help", "-h"}:
                yield f"`{line}`: {name} has no option {found[0]}"


@cache
def _command(name: str) -> click.Command | None:
    """Return a command by its name, also one of a service; None: there is none."""
    entry = next(iter(entry_points(group=COMMANDS, name=name)), None)
    if entry is not None:
        return cast("click.Command", load_command(name, entry))
    return cast("click.Group", build([name])).commands.get(name)
