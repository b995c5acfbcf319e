"""The process of a client under test, which is started like a node agent starts a run's process, and killed at the end.

It starts in a new session, with the environment variables of docs/protocol.md.
"""

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


class StartError(Exception):
    """Raised if the client's command cannot be started; the message says why."""


@dataclass(frozen=True, slots=True)
class ClientUnderTest:
    """The program whose conformance is tested.

    Attributes:
        command: The program and its arguments; `{name}` is replaced by a hyperparameter's value, as in an experiment file.
        folder: Folder in which it is started.
        trainer: Trainer in the start message, such as `FILE.py:CLASS`, if the command is the runner
            (`python -m hopyard._runtime.runner`); empty: none, as for programs that implement the protocol themselves.
    """

    command: tuple[str, ...]
    folder: Path
    trainer: str = ""


def environment(client: ClientUnderTest, hyperparameters: Mapping[str, Any], agent: str, token: str) -> dict[str, str]:
    """Return the environment variables of a client's process: those of this process, with the variables of docs/protocol.md.

    Variables of this process that begin with `HOPYARD_` are omitted.

    Args:
        client: The client.
        hyperparameters: Hyperparameters of the job.
        agent: Address of the simulated agent.
        token: Token that identifies the process.
    """
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
    """A process of the client under test, which the constructor starts in a new session.

    The owner must end it with `kill` or `end_left`.

    Args:
        client: The client.
        hyperparameters: Hyperparameters of the job.
        agent: Address of the simulated agent.
        token: Token that identifies the process and its child processes.
        log: File to which the output is appended.

    Raises:
        StartError: The process cannot be started.
    """

    def __init__(
        self, client: ClientUnderTest, hyperparameters: Mapping[str, Any], agent: str, token: str, log: Path
    ) -> None:
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
            raise StartError(f"command: {error}") from error
        except OSError as error:
            raise StartError(f"{command[0]} cannot be started in {client.folder}: {error.strerror}") from error

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None: the process has not ended."""
        return self._process.poll()

    def wait(self, seconds: float) -> int | None:
        """Wait for the end of the process, at most `seconds`; return its exit code, or None if it has not ended."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def kill(self) -> None:
        """Kill the process and its process group, and wait for the end of the process."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def left(self, seconds: float) -> list[int]:
        """Return the ids of the running processes that have the token in their environment.

        Wait first up to `seconds` until there are none.
        """
        until = time.monotonic() + seconds
        while (found := _holders(self.token)) and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        return found

    def end_left(self) -> None:
        """Kill the process and all processes that have the token in their environment."""
        self.kill()
        for process in _holders(self.token):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def printed(self) -> str:
        """Return the end of the process's output so far, at most 12 lines and 4000 bytes; empty if there is none."""
        with self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - _LAST_BYTES))
            text = file.read().decode(errors="replace")
        return "\n".join(text.rstrip().splitlines()[-_LAST_LINES:])

    def said(self) -> str:
        """Return the whole output of the process."""
        return self._log.read_text(errors="replace")


def _holders(token: str) -> list[int]:
    """Return the ids of this host's processes that have the token in their environment (`HOPYARD_TOKEN`)."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"HOPYARD_TOKEN={token}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
