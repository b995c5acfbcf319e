"""A log file of the commands from the scheduler that agents of a node have executed. It survives restarts of the agent."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hopyard._net.rpc.values import run_key_from_proto
from hopyard.v1 import resource_manager_pb2

_log = logging.getLogger(__name__)

MAX_BYTES: Final = 16 << 20
"""Size of the log in bytes at which it is renamed, replacing the previous renamed log, and a new one begins."""


class CommandRecord:
    """A log file to which each command for a run is appended before it is executed, as one line of JSON.

    A line has the keys `at` (seconds since the Unix epoch), `run` (the parts of the run's key), `sequence` (the number of the command
    in the run's channel), `kind` and `epoch` (of the scheduler that sent the command).

    People and tests compare the file with the journal; Hopyard itself does not read it. Written lines survive any end of the agent; a
    power failure may lose the last lines.

    Args:
        path: The log file; its folder must exist.
        max_bytes: Size in bytes at which the file is renamed to `path` with the suffix `.1`, which replaces an earlier such file.
        clock: Returns seconds since the Unix epoch.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._clock = clock

    def add(self, command: resource_manager_pb2.RunCommand) -> None:
        """Append a command that is about to be executed. Write errors are logged and otherwise ignored."""
        line = {
            "at": self._clock(),
            "run": list(run_key_from_proto(command.run)),
            "sequence": command.sequence,
            "kind": command.WhichOneof("body"),
            "epoch": command.epoch,
        }
        try:
            # One unbuffered write for each line, so that a killed agent leaves complete lines.
            with self._path.open("ab", buffering=0) as file:
                file.write(json.dumps(line).encode() + b"\n")
                full = file.tell() >= self._max_bytes
            if full:
                os.replace(self._path, self._path.with_name(self._path.name + ".1"))
        except OSError as error:
            _log.error("%s: command %d is not recorded: %s", self._path, command.sequence, error)
