"""One cluster for a data directory: a lock that says who holds it; the kernel releases it when its holders are gone."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from hopyard.errors import Conflict

_POLL_SECONDS: Final = 0.1


class DataLock:
    """Holds a data directory; see `acquire`.

    Attributes:
        descriptor: To be inherited by child processes, so that the directory stays locked until the last of them has
            ended.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def acquire(cls, data: Path, purpose: str) -> Self:
        """Lock a data directory, making it where it is missing.

        Args:
            data: The directory.
            purpose: For the message that others get, such as "hopyard run".

        Raises:
            Conflict: Another cluster holds it; the message says which process.
            OSError: It cannot be written; the file is named.
        """
        data.mkdir(parents=True, exist_ok=True)
        path = data / "cluster.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise Conflict(_held(data, lock_holder(data))) from None
        except BaseException:
            os.close(descriptor)
            raise
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "purpose": purpose}).encode(), 0)
        except OSError as error:
            os.close(descriptor)
            raise OSError(error.errno, error.strerror, str(path)) from error
        return cls(path, descriptor)

    def release(self) -> None:
        """Give it back. Safe to call twice."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


async def acquire_when_free(
    data: Path, purpose: str, *, patience: float, note: Callable[[str], None] = lambda text: None
) -> DataLock:
    """Lock a data directory; one that is only held by services whose starter is gone is waited for.

    Services that lose the process that started them (it was killed) stop in order, which takes some seconds.

    Args:
        data: The directory.
        purpose: For the message that others get.
        patience: Seconds to wait for such services.
        note: Told once that they are waited for.

    Raises:
        Conflict: A living cluster holds the directory, or those services have not ended in time.
    """
    end = time.monotonic() + patience
    noted = False
    while True:
        try:
            return DataLock.acquire(data, purpose)
        except Conflict:
            holder = lock_holder(data)
            if holder is None or _lives(holder[0]) or time.monotonic() >= end:
                raise
        if not noted:
            noted = True
            note(f"waiting for the services that {holder[1]} (process {holder[0]}, gone) started to end")
        await asyncio.sleep(_POLL_SECONDS)


def lock_holder(data: Path) -> tuple[int, str] | None:
    """Process id and purpose of whoever last locked the directory; None: nobody ever did, or it cannot be told."""
    try:
        found: Any = json.loads((data / "cluster.lock").read_text(encoding="utf-8"))
        return int(found["pid"]), str(found["purpose"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_locked(data: Path) -> bool:
    """Whether a cluster holds the directory just now."""
    try:
        descriptor = os.open(data / "cluster.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _held(data: Path, holder: tuple[int, str] | None) -> str:
    if holder is None:
        return f"{data}: another cluster is using this data directory; stop it, or choose another with --data"
    pid, purpose = holder
    if not _lives(pid):
        return (
            f"{data}: services that {purpose} (process {pid}, gone) started are still shutting down; try again shortly"
        )
    return f"{data}: {purpose} (process {pid}) is using this data directory; stop it, or choose another with --data"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # as somebody else's
    return True
