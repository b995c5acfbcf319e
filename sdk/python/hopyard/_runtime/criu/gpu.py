"""Processes that use GPUs: their GPU memory moved into main memory and back, so that they wait without a GPU, or can be dumped.

The CUDA driver (R570 or newer) does it for one process at a time; a job has several. A process is locked first (its calls of
CUDA wait), then checkpointed (its memory is moved, the GPU let go); on the way back it is restored, which leaves it locked, and
unlocked. All are locked before the first is checkpointed, so that none waits for a GPU that another has let go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from hopyard._common.optional_import import need
from hopyard._runtime.criu.errors import DumpFailedError, DumpRefusedError, ProcessSnapshotError
from hopyard._runtime.criu.procfs import name, open_files
from hopyard.errors import Unsupported

_LOCK_MILLISECONDS: Final = 10_000
"""How long a process may take to come to the end of what it has begun on the GPU."""

_DEVICE: Final = "/dev/nvidia"


class CudaProcess(Protocol):
    """One process, as the driver handles it; each call raises what the driver says."""

    def lock(self, timeout_ms: int = 0) -> None:
        """Have its calls of CUDA wait."""

    def checkpoint(self) -> None:
        """Move its GPU memory into main memory and let the GPU go; it is locked."""

    def restore(self) -> None:
        """Take a GPU again; it stays locked."""

    def unlock(self) -> None:
        """Let its calls of CUDA go on."""


Driver = Callable[[int], CudaProcess]
"""Gives a process by its id."""


class GpuLostError(ProcessSnapshotError):
    """A process could not be given its GPU back, and is of no more use: end the job."""


def driver() -> Driver:
    """The CUDA driver of this computer.

    Raises:
        DumpRefusedError: cuda-core or its bindings are not installed.
    """
    try:
        checkpoint = need("cuda.core.checkpoint", "gpu")
    except (Unsupported, ImportError) as error:  # It raises the latter where its bindings are missing, or too old.
        raise DumpRefusedError(f"a process that uses a GPU cannot be dumped here: {error}") from error
    made: Driver = checkpoint.Process
    return made


def users(pids: Iterable[int]) -> list[int]:
    """Those of some processes that have a GPU open."""
    return [pid for pid in pids if any(file.startswith(_DEVICE) for file in open_files(pid))]


class GpuSuspension:
    """The CUDA processes of one job, with their GPUs or without."""

    def __init__(self, pids: Sequence[int], driver: Driver) -> None:
        """They run."""
        self.pids = tuple(pids)
        self._processes = [driver(pid) for pid in pids]

    def suspend(self) -> None:
        """Let the GPUs go. When it fails all processes go on as before.

        Raises:
            DumpFailedError: The driver refuses for a process, which is named.
            GpuLostError: It does, and then does not give another one its GPU back.
        """
        done: list[tuple[int, Callable[[], None]]] = []
        pid = 0
        try:
            for pid, process in zip(self.pids, self._processes, strict=True):
                process.lock(_LOCK_MILLISECONDS)
                done.append((pid, process.unlock))
            for pid, process in zip(self.pids, self._processes, strict=True):
                process.checkpoint()
                done.append((pid, process.restore))
        except Exception as error:
            _undo(done)
            raise DumpFailedError(f"{name(pid)} cannot let its GPU go: {error}") from error

    def resume(self) -> None:
        """Give the GPUs back, and let the processes go on.

        Raises:
            GpuLostError: The driver refuses for a process, which is named.
        """
        steps: list[tuple[int, Callable[[], None]]] = []
        steps += [(pid, one.unlock) for pid, one in zip(self.pids, self._processes, strict=True)]
        steps += [(pid, one.restore) for pid, one in zip(self.pids, self._processes, strict=True)]
        _undo(steps)


def _undo(done: list[tuple[int, Callable[[], None]]]) -> None:
    """The last step first."""
    while done:
        pid, step = done.pop()
        try:
            step()
        except Exception as error:
            raise GpuLostError(f"{name(pid)} does not get its GPU back: {error}") from error
