"""Suspends processes that use GPUs: moves their GPU memory into main memory and back, so that they can be dumped.

The CUDA driver (R570 or newer) does this for one process at a time; a job has several. A process is first locked (its
CUDA calls block), then checkpointed (its memory is moved and the GPU released). In reverse, it is restored, which
leaves it locked, and then unlocked. All processes are locked before the first is checkpointed, so that none waits for a
GPU that another has released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from hopyard._common.optional_import import need
from hopyard._runtime.criu.errors import DumpFailedError, DumpRefusedError, ProcessSnapshotError
from hopyard._runtime.criu.procfs import name, open_files
from hopyard.errors import Unsupported

_LOCK_MILLISECONDS: Final = 10_000
"""Maximum time for a process to finish its pending GPU work, in milliseconds."""

_DEVICE: Final = "/dev/nvidia"


class CudaProcess(Protocol):
    """One process in the CUDA driver's interface; each method raises the driver's errors."""

    def lock(self, timeout_ms: int = 0) -> None:
        """Blocks the CUDA calls of the process, after waiting up to `timeout_ms` for pending GPU work."""

    def checkpoint(self) -> None:
        """Moves the GPU memory of the locked process into main memory and releases the GPU."""

    def restore(self) -> None:
        """Acquires a GPU again and moves the memory back; the process stays locked."""

    def unlock(self) -> None:
        """Unblocks the CUDA calls of the process."""


Driver = Callable[[int], CudaProcess]
"""A function that returns the CUDA process with a given process id."""


class GpuLostError(ProcessSnapshotError):
    """A process could not get its GPU back and is unusable; end the job."""


def driver() -> Driver:
    """Returns the CUDA driver of this host.

    Raises:
        DumpRefusedError: cuda-core or its bindings are not installed.
    """
    try:
        checkpoint = need("cuda.core.checkpoint", "gpu")
    except (Unsupported, ImportError) as error:  # cuda-core raises ImportError if its bindings are missing or too old.
        raise DumpRefusedError(f"a process that uses a GPU cannot be dumped here: {error}") from error
    made: Driver = checkpoint.Process
    return made


def users(pids: Iterable[int]) -> list[int]:
    """Returns those of the processes that have a GPU open."""
    return [pid for pid in pids if any(file.startswith(_DEVICE) for file in open_files(pid))]


class GpuSuspension:
    """The CUDA processes of one job, which can release their GPUs and get them back."""

    def __init__(self, pids: Sequence[int], driver: Driver) -> None:
        """Takes the ids of running processes and the driver."""
        self.pids = tuple(pids)
        self._processes = [driver(pid) for pid in pids]

    def suspend(self) -> None:
        """Makes all processes release their GPUs; if this fails for one, all continue as before.

        Raises:
            DumpFailedError: The driver refused for a process, which the message names.
            GpuLostError: The driver refused for a process and then did not give another one its GPU back.
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
            raise DumpFailedError(f"{name(pid)} cannot release its GPU: {error}") from error

    def resume(self) -> None:
        """Gives the processes their GPUs back and lets them continue.

        Raises:
            GpuLostError: The driver refused for a process, which the message names.
        """
        steps: list[tuple[int, Callable[[], None]]] = []
        steps += [(pid, one.unlock) for pid, one in zip(self.pids, self._processes, strict=True)]
        steps += [(pid, one.restore) for pid, one in zip(self.pids, self._processes, strict=True)]
        _undo(steps)


def _undo(done: list[tuple[int, Callable[[], None]]]) -> None:
    """Executes and removes the steps, last one first."""
    while done:
        pid, step = done.pop()
        try:
            step()
        except Exception as error:
            raise GpuLostError(f"{name(pid)} does not get its GPU back: {error}") from error
