"""A generator that harms its process at the second proposal. What it takes from the computer is bounded."""

from __future__ import annotations

import os
import signal
import stat
import time
from pathlib import Path
from typing import Any

from hopyard.space import Configuration, Space
from tests.unit.hpgen.broken import Wrapped


class Unprintable(Exception):
    """An exception that cannot be printed."""

    def __str__(self) -> str:
        raise ValueError


class Hostile(Wrapped):
    """A generator that does what `how` says, until the file `behaves` exists in the folder `where`.

    It writes the id of each process that imports it to the folder.

    Args:
        space: The search space.
        seed: The seed.
        how: The name of the method that harms.
        where: The folder.
    """

    def __init__(self, space: Space, seed: int, *, how: str, where: str, **rest: Any) -> None:
        super().__init__(space, seed, **rest)
        self._how = how
        self._where = Path(where)
        (self._where / f"{os.getpid()}.pid").touch()

    def create(self, job: str, ordinal: int) -> Configuration | None:
        """Harm the process at the second call; else propose a random configuration."""
        if ordinal == 1 and not (self._where / "behaves").exists():
            return getattr(self, f"_{self._how}")()  # type: ignore[no-any-return]
        return super().create(job, ordinal)

    def _exit(self) -> None:
        os._exit(0)

    def _crash(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    def _loop(self) -> None:
        while True:
            pass

    def _memory(self) -> None:
        held = [b"x" * (32 << 20) for _ in range(32)]
        time.sleep(600 + len(held))

    def _forks(self) -> None:
        for _ in range(300):
            if os.fork() == 0:
                os.setsid()
                time.sleep(600)
                os._exit(0)
        time.sleep(600)

    def _raises(self) -> None:
        raise RuntimeError("out of ideas")

    def _huge(self) -> Any:
        return {"lr": "x" * 2_000_000}

    def _alien(self) -> Any:
        return {"lr": object()}

    def _interrupt(self) -> None:
        raise KeyboardInterrupt

    def _unprintable(self) -> None:
        raise Unprintable

    def _child(self) -> None:
        """End the process, while a child has its output open."""
        if os.fork() == 0:
            time.sleep(600)
        os._exit(7)

    def _garbage(self) -> None:
        """Send something that is no frame on every pipe."""
        for handle in map(int, os.listdir("/proc/self/fd")):
            try:
                if stat.S_ISFIFO(os.fstat(handle).st_mode) or stat.S_ISSOCK(os.fstat(handle).st_mode):
                    os.write(handle, b"\x00\x00\x00\x05[1,2]" * 20)
            except OSError:
                continue
        time.sleep(600)


class Ends(Wrapped):
    """Ends its process while it is made."""

    def __init__(self, space: Space, seed: int, **parameters: Any) -> None:
        os._exit(3)
