"""What agents of a node have carried out: one line a command, kept over their deaths."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hopyard.v1 import resource_manager_pb2
from hopyard_nodeagent.runs.run_key import RunKey

_log = logging.getLogger(__name__)

MAX_BYTES: Final = 16 << 20
"""When the record is so long, it becomes the older one, in place of the one before it."""


class CommandRecord:
    """Appends each command to a file before it is carried out: JSON Lines with at, run, sequence, kind and epoch.

    It is for people and tests, who compare it with what the journal says was sent: nothing is read from it again. Whatever
    kills the agent, a line that was written stays; a computer that loses its power may lose the last ones.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, clock: Callable[[], float] = time.time) -> None:
        """Write to `path`, whose folder exists; the older record is beside it, with `.1` behind its name."""
        self._path = path
        self._max_bytes = max_bytes
        self._clock = clock

    def add(self, command: resource_manager_pb2.RunCommand) -> None:
        """A command is about to be carried out. A disk that takes no more is logged, and costs the record only."""
        line = {
            "at": self._clock(),
            "run": list(RunKey.of(command.run)),
            "sequence": command.sequence,
            "kind": command.WhichOneof("body"),
            "epoch": command.epoch,
        }
        try:
            # One write a line, with nothing kept back: a killed agent leaves whole lines.
            with self._path.open("ab", buffering=0) as file:
                file.write(json.dumps(line).encode() + b"\n")
                full = file.tell() >= self._max_bytes
            if full:
                os.replace(self._path, self._path.with_name(self._path.name + ".1"))
        except OSError as error:
            _log.error("%s: command %d is not recorded: %s", self._path, command.sequence, error)
