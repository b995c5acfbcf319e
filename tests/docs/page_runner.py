"""Runs the blocks of a page."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Final

import yaml

from hopyard.spec import load_spec
from tests.docs.pages import ROOT, Block
from tests.ports import free_port

LIMIT: Final = 300.0
"""Seconds that a block may take on a loaded machine."""

_JOBS: Final = re.compile(r"(\bjobs: )(\d+)")
_ITERATIONS: Final = re.compile(r"(\bmax_iterations: )(\d+)")
_TARGET: Final = re.compile(r", target: [\d.e-]+")


class Failed(Exception):
    """A block that did not do what the page says; the message names its place and shows its output."""


def smaller(experiment: str) -> str:
    """Return an experiment file with at most two jobs of two iterations and no target, otherwise unchanged."""
    text = _JOBS.sub(lambda found: found[1] + str(min(int(found[2]), 2)), experiment)
    text = _ITERATIONS.sub(lambda found: found[1] + str(min(int(found[2]), 2)), text)
    return _TARGET.sub("", text)


class Command:
    """A running script in its own process group, so that it can be interrupted like in a terminal."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("HOPYARD_", "PYTEST_"))
        }
        bin_folder = str(Path(sys.executable).parent)
        self._process = subprocess.Popen(
            # Programs that a shell starts in the background ignore SIGINT, and their children would ignore it too.
            ["env", "--default-signal=INT", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env={
                **environment,
                "PATH": f"{bin_folder}{os.pathsep}{environment['PATH']}",
                "COLUMNS": "120",
                "PYTHONPATH": str(ROOT),
            },
        )
        self._said: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def said(self) -> str:
        """Return the output so far."""
        return "".join(self._said)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as out:
            for line in out:
                with self._changed:
                    self._said.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for(self, text: str) -> bool:
        """Wait until the output contains `text`; return False if the script ended or the time limit passed before."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or text in self.said, LIMIT)
            return text in self.said

    def interrupt(self) -> None:
        """Send the signal that Ctrl-C sends."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)

    def end(self) -> int | None:
        """Wait for the end and return the exit code; None: the script had to be killed."""
        try:
            return self._process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill all remaining processes of the script."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(10)


class Run:
    """Runs one page in its own folder.

    Attributes:
        seconds: How long each block took, by place.
    """

    def __init__(self, folder: Path, page: str = "") -> None:
        self.seconds: dict[str, float] = {}
        # The README of an example is run in the example's folder, all other pages at the top.
        self._folder = folder / Path(page).parent if page.startswith("examples/") else folder
        self._replaced: list[tuple[str, str]] = []
        self._background: list[tuple[Block, Command]] = []
        shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        for file in folder.glob("examples/*/experiment.yaml"):
            file.write_text(smaller(file.read_text()))
        self._port = str(free_port())

    def blocks(self, blocks: list[Block]) -> None:
        """Run these blocks in order.

        Raises:
            Failed: A block did not do what the page says.
        """
        try:
            for block in blocks:
                began = time.monotonic()
                self._block(block)
                self.seconds[block.place] = time.monotonic() - began
            while self._background:
                block, command = self._background.pop()
                command.interrupt()
                if (code := command.end()) not in (0, 130):
                    raise Failed(f"{block.place}: ended with {code} when it was interrupted:\n{command.said}")
        finally:
            for _, command in self._background:
                command.kill()

    def _block(self, block: Block) -> None:
        if (same := block.marks.get("same as")) and (ROOT / same).read_text() != block.text:
            raise Failed(f"{block.place}: differs from {same}")
        if block.file:
            path = self._folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            shrunk = block.language == "yaml" and "whole" not in block.marks
            path.write_text(smaller(block.text) if shrunk else block.text)
        if "not run" in block.marks:
            return
        match block.language:
            case "is":
                old, new = re.findall(r'"([^"]*)"', block.text)
                self._replaced.append((old, new.replace("{port}", self._port)))
            case "bash" | "console" | "before":
                self._shell(block)
            case "python":
                self._python(block)
            case "yaml":
                _check_yaml(block)
            case "json":
                json.loads(block.text)
            case "toml":
                tomllib.loads(block.text)

    def _shell(self, block: Block) -> None:
        script = block.commands
        for old, new in self._replaced:
            script = script.replace(old, new)
        self._run(block, ["bash", "-euo", "pipefail", "-c", script])

    def _python(self, block: Block) -> None:
        try:
            ast.parse(block.text)
        except SyntaxError as error:
            raise Failed(f"{block.place}: does not compile: {error}") from None
        if Path(block.file).name.startswith("test_"):
            self._run(block, [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", block.file])
        elif "run" in block.marks:
            self._run(block, [sys.executable, "-c", block.text])

    def _run(self, block: Block, arguments: list[str]) -> None:
        command = Command(arguments, self._folder)
        marks = block.marks
        if awaited := marks.get("background") or marks.get("interrupt"):
            if not command.wait_for(awaited):
                command.kill()
                raise Failed(f"{block.place}: never said {awaited!r}:\n{command.said}")
            if "background" in marks:
                self._background.append((block, command))
                return
            command.interrupt()
        code = command.end()
        allowed = (0, 130) if "interrupt" in marks else (int(marks.get("exit", "0")),)
        if code not in allowed:
            ended = "took too long" if code is None else f"ended with {code}"
            raise Failed(f"{block.place}: {ended}:\n{command.said}")
        if (wanted := marks.get("shows")) and wanted not in command.said:
            raise Failed(f"{block.place}: does not show {wanted!r}:\n{command.said}")
        if "compared" in marks:
            _compare(block, command.said)


def _compare(block: Block, said: str) -> None:
    samples = " ".join(line for line in block.text.splitlines() if not line.startswith("$ "))
    parts = [r"\s+".join(map(re.escape, part.split())) for part in samples.split("...")]
    if not re.search(".*?".join(parts), said, re.DOTALL):
        raise Failed(f"{block.place}: the sample is not what is printed:\n{said}")


def _check_yaml(block: Block) -> None:
    data = yaml.safe_load(block.text)
    if isinstance(data, dict) and {"metric", "space"} <= data.keys():
        load_spec(block.text, block.place)
