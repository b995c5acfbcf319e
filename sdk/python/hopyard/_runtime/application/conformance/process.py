"""The process of a client under test: started as an agent starts a command, ended as an agent ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hopyard._common import command_template

_LOOK_SECONDS: Final = 0.02
_LAST_LINES: Final = 12
_LAST_BYTES: Final = 4000


class CannotStart(Exception):
    """There is no such program; the message says what was found."""


@dataclass(frozen=True, slots=True)
class ClientUnderTest:
    """What is tried.

    Attributes:
        command: The program and its arguments, with `{name}` for values of hyperparameters, as in an experiment file.
        folder: Where it is started.
        trainer: The trainer that a start names, for a process that asks for one, such as `python -m hopyard._runtime.runner`; empty:
            none.
    """

    command: tuple[str, ...]
    folder: Path
    trainer: str = ""


def environment(client: ClientUnderTest, hyperparameters: Mapping[str, Any], agent: str, token: str) -> dict[str, str]:
    """What the process finds in its environment."""
    variables = {name: text for name, text in os.environ.items() if not name.startswith("HOPYARD_")}
    variables |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1"}
    variables |= {"HOPYARD_AGENT": agent, "HOPYARD_TOKEN": token, "HOPYARD_AGENT_PID": str(os.getpid())}
    if not client.trainer:
        variables |= {
            "HOPYARD_EXPERIMENT": "conformance",
            "HOPYARD_JOB": "1",
            "HOPYARD_HYPERPARAMETERS": json.dumps(hyperparameters, sort_keys=True),
            "HOPYARD_SEED": "7",
        }
    return variables


class ProcessUnderTest:
    """A process under way."""

    def __init__(
        self, client: ClientUnderTest, hyperparameters: Mapping[str, Any], agent: str, token: str, log: Path
    ) -> None:
        """Start it, in a session of its own; what it prints goes to `log`.

        Raises:
            CannotStart: It cannot be.
        """
        self.token = token
        self._log = log
        command: Sequence[str] = ()
        try:
            command = command_template.filled(client.command, hyperparameters)
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    command,
                    cwd=client.folder,
                    env=environment(client, hyperparameters, agent, token),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        except command_template.PlaceholderError as error:
            raise CannotStart(f"command: {error}") from error
        except OSError as error:
            raise CannotStart(f"{command[0]} cannot be started in {client.folder}: {error.strerror}") from error

    @property
    def exit_code(self) -> int | None:
        """How it has ended, negative for a signal; None: it has not."""
        return self._process.poll()

    def wait(self, seconds: float) -> int | None:
        """Its exit code, as soon as it has one; None: it has not ended within so many seconds."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def kill(self) -> None:
        """End it and its group at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def left(self, seconds: float) -> list[int]:
        """The processes that live on with its token in their environment, if they are not gone within so many seconds."""
        until = time.monotonic() + seconds
        while (found := _holders(self.token)) and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        return found

    def end_left(self) -> None:
        """End it, and what it has left."""
        self.kill()
        for process in _holders(self.token):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def printed(self) -> str:
        """The last lines of what it has printed."""
        with self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - _LAST_BYTES))
            text = file.read().decode(errors="replace")
        return "\n".join(text.rstrip().splitlines()[-_LAST_LINES:])

    def said(self) -> str:
        """Everything that it has printed."""
        return self._log.read_text(errors="replace")


def _holders(token: str) -> list[int]:
    """The processes of this computer that were given a token."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"HOPYARD_TOKEN={token}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
