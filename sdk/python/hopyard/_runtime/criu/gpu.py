"""Suspends processes that use GPUs: moves their GPU memory into main memory and back, so that CRIU can dump them.

The CUDA driver (R570 or newer) does this for one process at a time; a job has several. A process is first locked (its
CUDA calls block), then checkpointed (its memory is moved and the GPU released). To resume, it is restored, which
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
    """One process in the CUDA driver's checkpoint interface; each method raises the driver's errors."""

    def lock(self, timeout_ms: int = 0) -> None:
        """Block the CUDA calls of the process, after waiting for pending GPU work.

        Args:
            timeout_ms: Maximum time to wait in milliseconds; 0: unlimited.
        """

    def checkpoint(self) -> None:
        """Move the GPU memory of the locked process into main memory and release the GPU."""

    def restore(self) -> None:
        """Acquire a GPU again and move the memory back; the process stays locked."""

    def unlock(self) -> None:
        """Unblock the CUDA calls of the process."""


Driver = Callable[[int], CudaProcess]
"""A function that returns the CUDA process with a given process id."""


class GpuLostError(ProcessSnapshotError):
    """Raised if a process could not get its GPU back; it is unusable, and the caller should end the job."""


def driver() -> Driver:
    """Return a function that gives access to a process by its id through this host's CUDA driver.

    Raises:
        DumpRefusedError: The package cuda-core or its bindings are not installed.
    """
    try:
        checkpoint = need("cuda.core.checkpoint", "gpu")
    except (Unsupported, ImportError) as error:  # cuda-core raises ImportError if its bindings are missing or too old.
        raise DumpRefusedError(f"a process that uses a GPU cannot be dumped here: {error}") from error
    made: Driver = checkpoint.Process
    return made


def users(pids: Iterable[int]) -> list[int]:
    """Return the ids in `pids` of processes that have an Nvidia GPU device file open."""
    return [pid for pid in pids if any(file.startswith(_DEVICE) for file in open_files(pid))]


class GpuSuspension:
    """The processes of one job that use GPUs; they can be made to release their GPUs and to continue.

    Args:
        pids: Ids of the running processes.
        driver: Gives access to a process by its id, as the function `driver` returns it.
    """

    def __init__(self, pids: Sequence[int], driver: Driver) -> None:
        self.pids = tuple(pids)
        self._processes = [driver(pid) for pid in pids]

    def suspend(self) -> None:
        """Make all processes release their GPUs; if this fails for one, all continue as before.

        Raises:
            DumpFailedError: The driver refused for a process, which the message names; all processes continue.
            GpuLostError: After such a refusal, a process could not get its GPU back; the message names it.
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
        """Give all processes their GPUs back and unblock their CUDA calls.

        Raises:
            GpuLostError: The driver refused for a process, which the message names; some processes stay suspended.
        """
        steps: list[tuple[int, Callable[[], None]]] = []
        steps += [(pid, one.unlock) for pid, one in zip(self.pids, self._processes, strict=True)]
        steps += [(pid, one.restore) for pid, one in zip(self.pids, self._processes, strict=True)]
        _undo(steps)


def _undo(done: list[tuple[int, Callable[[], None]]]) -> None:
    """Remove and execute the steps in reverse order.

    Args:
        done: Pairs of a process id and the step for this process.

    Raises:
        GpuLostError: A step failed; the steps before it in the list were not executed.
    """
    while done:
        pid, step = done.pop()
        try:
            step()
        except Exception as error:
            raise GpuLostError(f"{name(pid)} does not get its GPU back: {error}") from error
