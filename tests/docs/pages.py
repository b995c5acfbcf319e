"""Reads a page of the documentation as blocks to run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

_FENCE: Final = re.compile(r"(?P<indent> *)(?P<fence>```+)(?P<language>[\w-]*)\s*")
_COMMENT: Final = re.compile(r"<!-- docs: (?P<words>.*?) ?-->", re.DOTALL)
_FILE: Final = re.compile(r"`(?P<name>[\w./-]+\.\w+)`( \([^)`]*\))?:(\s|$)")
_COMMAND: Final = re.compile(r"\s*(\$ )?(hopyard|python3?|pip|pytest|make|sudo|perl|buf) [\w./-]")
_FORMS: Final = {
    "not run": re.compile(r"not run: (.+)", re.DOTALL),
    "interrupt": re.compile(r'Ctrl-C after "(.+)"'),
    "background": re.compile(r'background until "(.+)"'),
    "exit": re.compile(r"exit (\d+)"),
    "shows": re.compile(r'shows "(.+)"'),
    "compared": re.compile(r"(compared)"),
    "run": re.compile(r"(run)"),
    "whole": re.compile(r"(whole)"),
    "same as": re.compile(r"same as (\S+)"),
    "is": re.compile(r'in tests ("[^"]+" is "[^"]*")'),
    "before": re.compile(r"before\n(.+)", re.DOTALL),
}
_ALONE: Final = ("is", "before")


class PageError(Exception):
    """A page that cannot be read; the message names file and line."""


@dataclass(frozen=True)
class Block:
    """One block of a page.

    Attributes:
        page: The page's path from the repository's root.
        line: The line on which its text begins, counted from 1.
        language: The language of the fence; `before` and `is` for comments that need no block.
        text: The text of the block.
        marks: Arguments of the comments before the block, by form of the comment.
        file: The file that the block is written into; empty: none.
    """

    page: str
    line: int
    language: str
    text: str
    marks: dict[str, str]
    file: str = ""

    @property
    def place(self) -> str:
        """Return page and line, for messages."""
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> str:
        """Return the shell script of the block."""
        if self.language != "console":
            return self.text
        return "".join(line[2:] + "\n" for line in self.text.splitlines() if line.startswith("$ "))


def pages() -> list[Path]:
    """Return every page, as paths from the repository's root; new pages are found too."""
    found = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted(ROOT.glob("docs/*.md")),
        ROOT / "examples" / "README.md",
        *sorted(ROOT.glob("examples/*/README.md")),
    ]
    return [path.relative_to(ROOT) for path in found]


def read_page(text: str, page: str) -> list[Block]:
    """Return the blocks of a page in order.

    Raises:
        PageError: A fence does not end, a comment is not understood or has no block, or a command is outside of fences that are
            run.
    """
    reader = _Reader(page, text.splitlines())
    reader.read()
    return reader.blocks


class _Reader:
    def __init__(self, page: str, lines: list[str]) -> None:
        self.blocks: list[Block] = []
        self._page = page
        self._lines = lines
        self._at = 0
        self._marks: dict[str, str] = {}
        self._paragraph: list[str] = []

    def read(self) -> None:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if fence := _FENCE.fullmatch(line):
                self._fenced(fence)
            elif line.startswith("<!-- docs:"):
                self._comment()
            else:
                self._prose(line)
                self._at += 1
        if self._marks:
            raise self._error("the comment before has no block")

    def _prose(self, line: str) -> None:
        if not line.strip():
            self._paragraph.append("")
            return
        if self._marks:
            raise self._error("the comment before is not right before a block")
        if line.startswith("    ") and _COMMAND.match(line):
            raise self._error("a command outside of a fence: put it into ```bash, where it is run")
        if self._paragraph and not self._paragraph[-1]:
            self._paragraph = []
        self._paragraph.append(line)

    def _fenced(self, fence: re.Match[str]) -> None:
        first = self._at + 1
        end = next((n for n in range(first, len(self._lines)) if self._lines[n].strip() == fence["fence"]), None)
        if end is None:
            raise self._error("this fence does not end")
        lines = [line.removeprefix(fence["indent"]) for line in self._lines[first:end]]
        language = fence["language"]
        if language not in ("bash", "console", "python", "yaml") and "not run" not in self._marks:
            for number, line in enumerate(lines):
                if _COMMAND.match(line):
                    self._at = first + number
                    raise self._error("a command in a block that is not run: make it ```bash or ```console")
        name = _FILE.match(self._paragraph[0]) if self._paragraph and self._paragraph[0] else None
        text = "".join(line + "\n" for line in lines)
        file = name["name"] if name and not self._marks.get("same as") else ""
        self.blocks.append(Block(self._page, first + 1, language, text, self._marks, file))
        self._marks, self._paragraph, self._at = {}, [], end + 1

    def _comment(self) -> None:
        end = next((n for n in range(self._at, len(self._lines)) if "-->" in self._lines[n]), None)
        if end is None:
            raise self._error("this comment does not end")
        found = _COMMENT.fullmatch("\n".join(self._lines[self._at : end + 1]).strip())
        words = found["words"].strip() if found else ""
        form, match = next(((f, m) for f, p in _FORMS.items() if (m := p.fullmatch(words))), ("", None))
        if match is None:
            raise self._error(f"not understood; tests/docs says which comments there are: {words!r}")
        if form in _ALONE:
            self.blocks.append(Block(self._page, self._at + 1, form, match[1] + "\n", {}))
        else:
            self._marks = {**self._marks, form: " ".join(match[1].split())}
        self._at = end + 1

    def _error(self, message: str) -> PageError:
        return PageError(f"{self._page}:{self._at + 1}: {message}")
