"""Starts a cluster in a data directory in one of four ways, continues its experiments, and ends every process of it."""

from __future__ import annotations

import enum
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import psutil
from observation.marked_processes import MarkedProcesses
from observation.service_logs import TRACEBACK

from damage_cases.specs import CHAIN, CODE, LAST, SLOTS, TREE, spec

MARK: Final = "DAMAGE_CASE"
"""Environment variable of every process of a case; its value names the case."""

RELEASED: Final = "DAMAGE_RELEASED"
ENOUGH: Final = "DAMAGE_ENOUGH"
"""Environment variables of training processes: a file that lets them train beyond the middle, and one that ends their slow part."""

REPOSITORY: Final = Path(__file__).parents[2]
POLL_SECONDS: Final = 0.05
STOP_SECONDS: Final = 40.0
"""Maximum time that a cluster may take to stop."""

LINGER_SECONDS: Final = 10.0
"""Maximum time after the end of a command until its services and training processes have ended."""


class Way(enum.Enum):
    """A way to start a cluster in an existing data directory."""

    RUN = "run"
    RESUME = "resume"
    UP = "up"
    LOCAL = "Client.local"


@dataclass
class Attempt:
    """What happened when a cluster was started and its experiments were continued.

    Attributes:
        refused: What commands and calls refused, each as one message.
        crashes: Tracebacks, bugs and signals that ended a command.
        hung: Whether the time limit was exceeded.
        left: Processes that outlived their command.
    """

    refused: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    hung: bool = False
    left: list[str] = field(default_factory=list)


class CaseCluster:
    """The processes of one case.

    Args:
        name: Name of the case, which marks its processes.
        folder: Folder of its files: the data directory `data`, and the output of commands.

    Attributes:
        processes: The processes of this case.
        said: The exit codes and outputs of all commands.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.data = folder / "data"
        self.released = folder / "released"
        self.enough = folder / "enough"
        self.processes = MarkedProcesses(MARK, name)
        self.said: list[str] = []

    # ------------------------------------------------------------------------------------------------------- processes

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start a command whose output goes to files, or to pipes if `options` say so."""
        environment = {**os.environ, MARK: self.name, "COLUMNS": "300"}
        environment |= {RELEASED: str(self.released), ENOUGH: str(self.enough)}
        path = [str(REPOSITORY), str(REPOSITORY / "benchmarks"), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        return subprocess.Popen(command, text=True, env=environment, cwd=self.folder, start_new_session=True, **options)

    def kill_runner(self) -> None:
        """Kill one training process, if there is one."""
        for process in self.processes.running():
            with suppress(psutil.Error):
                if "hopyard._runtime.runner" in process.cmdline():
                    process.kill()
                    return

    # -------------------------------------------------------------------------------------------------------- commands

    def finish(self, way: Way, limit: float, disturb: Callable[[], None] | None = None) -> Attempt:
        """Start the cluster, continue all experiments until each has ended or is paused again, and stop it.

        Args:
            way: How to start it.
            limit: Maximum time in seconds.
            disturb: Called when the first command has started; None: nothing is disturbed.
        """
        attempt = Attempt()
        end = time.monotonic() + limit
        match way:
            case Way.UP:
                self._finish_up(attempt, end, disturb)
            case Way.LOCAL:
                self._watched(attempt, _session("finish", self.data, "local"), end, disturb)
            case Way.RUN | Way.RESUME:
                again = self._has_last()
                names = (CHAIN, TREE, LAST) if again else (CHAIN, TREE)
                commands = [_hopyard("resume", name, *self._local) for name in names]
                if way is Way.RUN and not again:
                    (self.folder / "last.json").write_text(json.dumps(spec(LAST)))
                    code = ("--folder", str(CODE))
                    commands.insert(0, _hopyard("run", str(self.folder / "last.json"), *code, *self._local))
                for command in commands:
                    self._watched(attempt, command, end, disturb)
                    disturb = None  # The first command's cluster continues all experiments that are not paused.
        attempt.left += self.processes.left(LINGER_SECONDS)
        return attempt

    def _has_last(self) -> bool:
        """Return whether an earlier call of `finish` has created the experiment LAST; False if the database cannot be read."""
        if not self.said:  # The first start after the damage: no other connection may touch the database before it.
            return False
        try:
            with closing(sqlite3.connect(f"file:{self.data / 'appstat.sqlite'}?mode=ro", uri=True)) as database:
                found = database.execute("SELECT 1 FROM experiments WHERE id LIKE ?", (f"{LAST}-%",)).fetchone()
        except sqlite3.Error:
            return False
        return found is not None

    @property
    def _local(self) -> tuple[str, ...]:
        return ("--data", str(self.data), "--slots", str(SLOTS))

    def up(self) -> subprocess.Popen[str]:
        """Start `hopyard up`; its messages go to the file `up.txt`."""
        passed = [f"--pass-env={name}" for name in (MARK, RELEASED, ENOUGH)]
        command = _hopyard("up", "--data", str(self.data), "--slots", str(SLOTS), *passed)
        with (self.folder / "up.txt").open("w") as output:
            return self.start(command, stdout=output, stderr=subprocess.STDOUT)

    def _finish_up(self, attempt: Attempt, end: float, disturb: Callable[[], None] | None) -> None:
        process = self.up()
        said = self.folder / "up.txt"
        while "the cluster is up" not in said.read_text() and process.poll() is None and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        if process.poll() is None and time.monotonic() < end:
            session = _session("finish", self.data, "connect")
            self._watched(attempt, session, end, disturb, alive=lambda: process.poll() is None)
        if process.poll() is None:
            attempt.hung = attempt.hung or time.monotonic() >= end
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                attempt.hung = True
                self.processes.kill()
                process.wait()
                self.said.append(
                    f"hopyard up: did not stop within {STOP_SECONDS:g} s after SIGINT\n{said.read_text()[-4000:]}"
                )
                return  # Its exit code is that of the kill, and says nothing.
        self._judge(attempt, "hopyard up", process.wait(), said.read_text())

    def _watched(
        self,
        attempt: Attempt,
        command: Sequence[str],
        end: float,
        disturb: Callable[[], None] | None,
        alive: Callable[[], bool] = lambda: True,
    ) -> None:
        """Run a command to its end, at most until the time `end`, or until the cluster that it uses is not `alive` any more."""
        output = self.folder / "output.txt"
        with output.open("w") as file:
            process = self.start(command, stdout=file, stderr=subprocess.STDOUT)
        if disturb is not None:
            disturb()
        while process.poll() is None and time.monotonic() < end and alive():
            time.sleep(POLL_SECONDS)
        if process.poll() is None:
            attempt.hung = attempt.hung or alive()
            process.kill()
            process.wait()
            if "connect" not in command:
                self.processes.kill()  # the services that the command has started
            return
        text = output.read_text()
        hopyard = command[1] == "-m"
        self._judge(attempt, f"hopyard {' '.join(command[3:5])}" if hopyard else "session", process.returncode, text)
        for line in [] if hopyard else text.splitlines():
            if line.startswith('{"refused"'):
                attempt.refused += [f"{name}: {why}" for name, why in json.loads(line)["refused"].items()]

    def _judge(self, attempt: Attempt, name: str, code: int, text: str) -> None:
        self.said.append(f"{name}: exit code {code}\n{text[-4000:]}")
        if TRACEBACK in text or "a bug in Hopyard" in text or code < 0:
            attempt.crashes.append(f"{name}: exit code {code}: {last_line(text)}")
        elif code:
            errors = [line for line in text.splitlines() if line.startswith("error:")]
            attempt.refused.append(f"{name}: exit code {code}: {errors[0] if errors else last_line(text)}")

    # ----------------------------------------------------------------------------------------------------------- reads

    def read(self, limit: float) -> dict[str, Any]:
        """Return what `session.py read` prints; under "crash" is what it says if it crashes or exceeds `limit` seconds."""
        output, errors = self.folder / "tables.json", self.folder / "tables.txt"
        with output.open("w") as file, errors.open("w") as error_file:
            process = self.start(_session("read", self.data), stdout=file, stderr=error_file)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return {"crash": f"reading the data takes longer than {limit:g} s"}
        if code:
            return {"crash": last_line(errors.read_text())}
        found: dict[str, Any] = json.loads(output.read_text())
        return found

    def doctor(self, limit: float) -> list[str]:
        """Return the problems that `hopyard doctor` finds beyond those of this computer."""
        host = {name for name, _ in self._problems(limit, "--quick", "--data", str(self.folder / "none"))}
        return [
            f"hopyard doctor: {d}" for name, d in self._problems(limit, "--data", str(self.data)) if name not in host
        ]

    def _problems(self, limit: float, *options: str) -> list[tuple[str, str]]:
        """Return name and detail of each check of `hopyard doctor` that fails."""
        _, text = self._output(limit, "doctor", *options, "--json")
        found = json.loads(text)["findings"] if text.startswith("{") else []
        return [(one["name"], one["detail"]) for one in found if one["needed"] and one["health"] != "ok"]

    def rebuild(self, limit: float) -> bool:
        """Write the rows again from the journal with `hopyard doctor --rebuild`; return whether that succeeded."""
        code, _ = self._output(limit, "doctor", "--rebuild", "--yes", "--data", str(self.data))
        return code == 0

    def _output(self, limit: float, *arguments: str) -> tuple[int, str]:
        """Return the exit code and the output of a command; -1: it exceeded `limit` seconds."""
        output = self.folder / "output.txt"
        with output.open("w") as file, (self.folder / "errors.txt").open("w") as errors:
            process = self.start(_hopyard(*arguments), stdout=file, stderr=errors)
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                code = -1
        text = output.read_text()
        self.said.append(f"{' '.join(arguments)}: exit code {code}\n{text}{(self.folder / 'errors.txt').read_text()}")
        return code, text

    def create(
        self, way: Way, code: Path
    ) -> tuple[subprocess.Popen[str] | None, subprocess.Popen[str], dict[str, str]]:
        """Start a cluster in which all experiments are in the middle of their training.

        Returns:
            The process of `hopyard up`, the process of the session, and the ids of the experiments by name.
        """
        up = self.up() if way is Way.UP else None
        if up is not None:
            while "the cluster is up" not in (self.folder / "up.txt").read_text():
                if up.poll() is not None:
                    raise RuntimeError((self.folder / "up.txt").read_text())
                time.sleep(POLL_SECONDS)
        how = "local" if up is None else "connect"
        with (self.folder / "create.txt").open("w") as errors:
            session = self.start(
                [*_session("create", self.data, how), str(code)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        out: IO[str] = session.stdout  # type: ignore[assignment]
        line = out.readline()
        if not line:
            with session:  # closes its pipes
                session.wait()
            raise RuntimeError((self.folder / "create.txt").read_text())
        return up, session, json.loads(line)


def _session(action: str, data: Path, *rest: str) -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("session.py")), action, str(data), *rest]


def _hopyard(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "hopyard.cli.main", *arguments]


def last_line(text: str) -> str:
    """Return the last line of a text that is not blank, at most 400 characters of it."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:400] if lines else ""
