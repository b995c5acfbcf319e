"""The processes of a job, started so that they can be dumped and restored on another host.

The program is process 1 of a separate PID namespace: its process ids are free on each host, and all its child processes
end with it. It sees its folder at `MOUNT` on each host, through a mount that is visible only to its processes and to
the CRIU that handles them. Its output is appended to a file in that folder. A time namespace lets its monotonic clock
continue after a restore from its value at the dump.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hopyard._runtime.criu import archive, compatibility, gpu, procfs
from hopyard._runtime.criu.binary import Criu
from hopyard._runtime.criu.commands import Calls
from hopyard._runtime.criu.errors import DumpFailedError, ProcessSnapshotError, RestoreFailedError
from hopyard._runtime.criu.image_storage import ImageFolders
from hopyard._runtime.criu.preconditions import refuse
from hopyard._runtime.snapshot_file import SnapshotFileInfo

MOUNT: Final = "/run/hopyard/job"
"""Path at which a job's processes see their working folder."""

OUTPUT: Final = "output"
"""Name of the file in the working folder to which the program's output is appended."""

_FLAGS: Final = ("--tcp-close", "--ext-unix-sk", "--file-locks", "--link-remap", "--manage-cgroups=ignore")
"""Options of CRIU. Restored processes are in the control group of the runner, not in a copy of the one where they were dumped."""
_GHOSTS: Final = ("--ghost-limit", str(1 << 30))
"""Size limit for unlinked files in the image: data loaders share memory with their workers through such files."""
_SYSTEM: Final = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin"
"""Search path for system tools, independent of the program's PATH."""
_PRIVATE: Final = ("--mount", "--propagation", "slave")
_BEGIN: Final = '"$1" --bind "$2" "$3" && cd "$4" && begin=$5 && out=$6 && shift 6 && exec "$begin" -- "$@" </dev/null >>"$out" 2>&1'
_AGAIN: Final = '"$1" --bind "$2" "$3" && shift 3 && exec "$@"'
_DUMP_SECONDS: Final = 600.0
_RESTORE_SECONDS: Final = 600.0
_END_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 0.002
_MOST_THREADS: Final = 4
_SHRINKS: Final = 4
"""Approximate factor by which packing shrinks images."""


@dataclass(slots=True)
class Timings:
    """Measurements of the last dump and the last restore of a job; 0 before the first.

    Attributes:
        dump: Seconds that CRIU and the release of the GPUs took.
        pack: Seconds to pack the images into the snapshot.
        unpack: Seconds to unpack the snapshot.
        restore: Seconds to restore the processes, including their GPUs.
        raw: Size of the dumped images in bytes.
        packed: Size of the packed snapshot in bytes.
    """

    dump: float = 0.0
    pack: float = 0.0
    unpack: float = 0.0
    restore: float = 0.0
    raw: int = 0
    packed: int = 0


class DumpableJob:
    """The processes of one run, which can be started, dumped into a snapshot and restored from one with CRIU.

    Args:
        criu: The CRIU program to use.
        folder: Working folder of the processes on this host. `restore` creates it; before `start` it must exist. Its name must differ
            from those of all other jobs' working folders on this host, because `kill` finds the job's processes by it.
        rooms: Provides folders for images before they are packed or while they are restored.
        driver: Driver of the GPUs; None: the host's driver, if a GPU is used.
    """

    def __init__(self, criu: Criu, folder: Path, rooms: ImageFolders, driver: gpu.Driver | None = None) -> None:
        self.folder = folder
        self.timings = Timings()
        self._criu = criu
        self._rooms = rooms
        self._driver = driver
        self._starter: subprocess.Popen[bytes] | None = None
        self._restored = 0
        self._code: int | None = None
        self._calls = Calls()
        self._gpus: gpu.GpuSuspension | None = None
        """The processes that are stopped and whose GPUs were released; None: there are none."""

    def start(self, command: Sequence[str], working: str, environment: Mapping[str, str]) -> None:
        """Start the program as the first process of the job.

        Args:
            command: Program and arguments.
            working: Working folder: an absolute path, usually `MOUNT` (where the program sees its job's folder) or below it.
            environment: All environment variables of the program.

        Raises:
            OSError: A required system tool is missing. If the program itself cannot be started, no error is raised: `poll` then
                returns a nonzero exit code.
        """
        os.makedirs(MOUNT, exist_ok=True)
        (self.folder / OUTPUT).touch()
        places = (_system("mount"), str(self.folder), MOUNT, working, _system("setsid"), f"{MOUNT}/{OUTPUT}")
        private = (_system("unshare"), *_PRIVATE, "--pid", "--time", "--fork", "--")
        self._starter = subprocess.Popen(
            [*private, "/bin/sh", "-c", _BEGIN, "sh", *places, *command],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
        )

    def poll(self) -> int | None:
        """Return the exit code of the program, negative for a signal; None if it has not ended."""
        if self._code is None:
            if self._restored:
                with suppress(ChildProcessError):
                    pid, status = os.waitpid(self._restored, os.WNOHANG)
                    self._code = os.waitstatus_to_exitcode(status) if pid else None
            elif self._starter is not None:
                self._code = self._starter.poll()
        return self._code

    def pid(self) -> int:
        """Return the program's process id on this host; 0 if it does not run."""
        if self._restored or self._starter is None:
            return self._restored
        below = procfs.tree(self._starter.pid)[1:]
        return below[0] if below else 0

    def signal(self, number: signal.Signals) -> None:
        """Send the signal `number` to the program and all its descendants; do nothing if the program has ended."""
        if self.poll() is None and (pid := self.pid()):
            procfs.kill(procfs.tree(pid), number)

    def kill(self) -> None:
        """Kill the program, all its descendants, and a running dump or restore; safe to call at any time."""
        self._calls.end()
        marker = self.folder.name
        procfs.end(lambda: procfs.mounted(MOUNT, marker), _END_SECONDS)

    def close(self) -> None:
        """Kill the program and all its descendants, wait for their end, and delete image folders.

        The program is the first process of a PID namespace. The kernel ends all other processes of the namespace with it and reports
        its end only after theirs, so this method need not search for descendants.
        """
        began = self._restored or (self._starter.pid if self._starter is not None else 0)
        while began and self.poll() is None and os.path.exists(f"/proc/{began}"):
            if pid := self.pid():  # 0 while the starting process has not created the program yet.
                procfs.kill([pid])
            time.sleep(_CLOSE_SECONDS)
        self._rooms.close()

    def dump(
        self, file: Path, kept: Mapping[str, Any], *, stopped: bool, pending: Mapping[str, int]
    ) -> SnapshotFileInfo:
        """Write a snapshot of the processes to a file, and return its hash and size.

        Afterwards the processes are stopped and have no GPUs until `proceed`. If the dump fails, the surviving processes are in
        the same state as before. If the program has already ended, the snapshot contains its exit code and folder.

        Args:
            file: Path of the snapshot. If there is space in memory, it becomes a link to a file there, to avoid waiting for a
                disk.
            kept: JSON values that are stored with the snapshot and that `restore` returns.
            stopped: Whether the processes are already stopped.
            pending: Offset in bytes by file name: of these files in the folder, only the part after the offset is stored.

        Raises:
            DumpRefusedError: The processes use something that cannot be dumped.
            DumpFailedError: The dump failed, and the surviving processes are usable; the message says why.
            GpuLostError: The dump failed, and a process did not get its GPU back; the processes are unusable.
        """
        began = time.monotonic()
        manifest: dict[str, Any] = {
            "criu": self._criu.shown,
            "stopped": stopped,
            "ended": self.poll(),
            "gpus": [],
            "processes": {},
            "kept": dict(kept),
        }
        images: Path | None = None
        if manifest["ended"] is None:
            try:
                images = self._dump(manifest)
            except DumpFailedError:
                code = manifest["ended"] = self.poll()
                if code is None or code < 0:
                    raise
        self.timings.dump, began = time.monotonic() - began, time.monotonic()
        self.timings.raw = _bytes_in(images) if images is not None else 0
        try:
            info = self._pack(file, manifest, images, pending)
        except OSError as error:
            if not stopped:
                self.proceed()
            raise DumpFailedError(f"the snapshot cannot be written: {error}") from error
        finally:
            if images is not None:
                self._rooms.free(images)
        self.timings.pack, self.timings.packed = time.monotonic() - began, info.size
        return info

    def _pack(
        self, file: Path, manifest: Mapping[str, Any], images: Path | None, pending: Mapping[str, int]
    ) -> SnapshotFileInfo:
        """Pack a snapshot into a file in memory and make `file` a link to it; if memory has no space, pack it into `file`.

        Args:
            file: Path of the snapshot.
            manifest: Metadata to store in the snapshot.
            images: Folder of CRIU's images; None: the program has ended.
            pending: Offset in bytes by file name: of these files in the working folder, only the part after the offset is stored.

        Returns:
            Hash and size of the snapshot.
        """
        instead = {name: _from(self.folder / name, offset) for name, offset in pending.items()}
        threads = min(os.cpu_count() or 1, _MOST_THREADS)
        memory = self._rooms.lasting(self.timings.raw) if images is not None else None
        if memory is not None:
            with suppress(OSError):
                info = archive.pack(memory, manifest, images, self.folder, instead=instead, threads=threads)
                file.symlink_to(memory)
                return info
            memory.unlink(missing_ok=True)
        return archive.pack(file, manifest, images, self.folder, instead=instead, threads=threads)

    def proceed(self) -> None:
        """Let stopped processes continue, with their GPUs.

        Raises:
            GpuLostError: A process did not get its GPU back; the processes are unusable.
        """
        self.signal(signal.SIGCONT)
        if self._gpus is not None:
            gpus, self._gpus = self._gpus, None
            gpus.resume()

    def restore(
        self, file: Path, sha256: str, accept: Callable[[Mapping[str, Any]], None] = lambda kept: None
    ) -> tuple[dict[str, Any], bool]:
        """Restore the folder and the processes of a snapshot.

        Args:
            file: The snapshot.
            sha256: Expected hash of the file.
            accept: Called with the kept data before the restore; may raise to refuse it.

        Returns:
            The data passed to `dump` as `kept`, and whether the processes are stopped, as they were at the dump; `proceed` lets
            stopped ones continue.

        Raises:
            SnapshotFileError: The file is damaged or not a process snapshot.
            RestoreMismatchError: This host lacks a requirement of the snapshot.
            RestoreFailedError: The restore failed; none of the restored processes remains.
            OSError: There is no space for the images.
        """
        os.makedirs(MOUNT, exist_ok=True)
        began = time.monotonic()
        images, manifest = self._unpack(file, sha256)
        try:
            accept(manifest["kept"])
            self._code = manifest["ended"]
            self.timings.unpack, began = time.monotonic() - began, time.monotonic()
            if self._code is None:
                compatibility.check(manifest["needs"])
                self._restored = self._restore(images)
                if manifest["stopped"]:
                    self._need(manifest.get("processes", {}))
                self._take_gpus(manifest["gpus"])
                if not manifest["stopped"]:
                    self.proceed()
            self.timings.restore = time.monotonic() - began
        except BaseException:
            self.kill()
            raise
        finally:
            self._rooms.free(images)
        return manifest["kept"], bool(manifest["stopped"])

    def _unpack(self, file: Path, sha256: str) -> tuple[Path, dict[str, Any]]:
        """Unpack a snapshot's images into memory, or to the disk if memory has no space; return their folder and the manifest.

        Args:
            file: The snapshot.
            sha256: Expected hash of the file.

        Raises:
            SnapshotFileError: The file is damaged or not a process snapshot.
            OSError: Neither memory nor the disk has space.
        """
        full: OSError | None = None
        for images in self._rooms.choices(_SHRINKS * file.stat().st_size):
            images.rmdir()
            try:
                return images, archive.unpack(file, sha256, images, self.folder)
            except OSError as error:
                full = error
                self._rooms.free(images)
            except BaseException:
                self._rooms.free(images)
                raise
        raise full or RestoreFailedError("there is no room for an image")

    def _dump(self, manifest: dict[str, Any]) -> Path:
        """Dump the running processes, and return the folder of the images.

        Args:
            manifest: Metadata of the snapshot, to which the requirements and ids of the processes are added.

        Raises:
            DumpRefusedError: The processes use something that cannot be dumped.
            DumpFailedError: The dump failed, or the program does not run.
        """
        pid = self.pid()
        if not pid:
            raise DumpFailedError("the program has not begun, or just ended")
        pids = procfs.tree(pid)
        users = refuse(pids, self._criu)
        if users:
            self.proceed()  # Stopped processes cannot release their GPUs.
            manifest["stopped"] = False
            self._gpus = gpu.GpuSuspension(users, self._driver or gpu.driver())
            manifest["gpus"] = [procfs.namespace_pid(user) for user in users]
            self._gpus.suspend()
        try:
            images = self._images(pid, procfs.own_bytes(pids))
        except BaseException:
            if not manifest["stopped"]:
                self.proceed()
            raise
        manifest["processes"] = procfs.members(pid)  # The dump has stopped them.
        manifest["needs"] = compatibility.needs(pids, MOUNT)
        return images

    def _images(self, pid: int, size: int) -> Path:
        """Dump the process `pid` and its descendants into memory, or to the disk if memory has no space.

        Args:
            pid: Process id on this host.
            size: Expected size of the images in bytes.

        Returns:
            The folder of the images.

        Raises:
            DumpFailedError: The dump failed in memory and on the disk.
        """
        error: DumpFailedError | None = None
        for images in self._rooms.choices(size):
            command = [
                _system("nsenter"),
                f"--mount=/proc/{pid}/ns/mnt",
                "--",
                str(self._criu.path),
                "dump",
                "-t",
                str(pid),
            ]
            command += ["-D", str(images), *_FLAGS, *_GHOSTS, "--leave-stopped", "-o", "dump.log"]
            try:
                self._calls.run(command, images / "dump.log", _DUMP_SECONDS)
                return images
            except ProcessSnapshotError as failure:
                error = DumpFailedError(f"the dump failed: {failure}")
                self._rooms.free(images)
                if self.poll() is not None:
                    raise DumpFailedError(f"the dump failed and ended the program: {failure}") from failure
        raise error or DumpFailedError("there is no room for an image")

    def _restore(self, images: Path) -> int:
        """Restore processes from images, and return the program's process id.

        Raises:
            RestoreFailedError: CRIU failed; none of the restored processes remains.
        """
        number = images.with_name(f"{images.name}.pid")  # CRIU fails if the file exists.
        command = [_system("unshare"), *_PRIVATE, "--", "/bin/sh", "-c", _AGAIN, "sh", _system("mount")]
        command += [str(self.folder), MOUNT, str(self._criu.path), "restore", "-D", str(images), *_FLAGS]
        command += ["-d", "--restore-sibling", "--pidfile", str(number), "-o", "restore.log"]
        before = set(procfs.tree(os.getpid()))
        try:
            self._calls.run(command, images / "restore.log", _RESTORE_SECONDS)
            return int(number.read_text())
        except (ProcessSnapshotError, OSError, ValueError) as error:
            self.kill()
            _reap(set(procfs.tree(os.getpid())) - before)
            raise RestoreFailedError(f"the process could not be restored: {error}") from error
        finally:
            number.unlink(missing_ok=True)

    def _need(self, processes: Mapping[str, str]) -> None:
        """Check that all restored processes exist, because CRIU does not report a process that ended right after the restore.

        Args:
            processes: Command name by process id in the PID namespace, as recorded at the dump.

        Raises:
            RestoreFailedError: A process is missing.
        """
        there = procfs.members(self._restored)
        missing = [f"process {number} ({name})" for number, name in processes.items() if number not in there]
        if missing:
            are = "is" if len(missing) == 1 else "are"
            raise RestoreFailedError(f"the process could not be restored: {', '.join(missing)} {are} missing")

    def _take_gpus(self, numbers: Sequence[int]) -> None:
        """Record which restored processes need their GPUs back; `proceed` then returns them.

        Args:
            numbers: Their process ids in the PID namespace.
        """
        if numbers:
            by_number = {procfs.namespace_pid(pid): pid for pid in procfs.tree(self._restored)}
            pids = [by_number[number] for number in numbers if number in by_number]
            self._gpus = gpu.GpuSuspension(pids, self._driver or gpu.driver())


def _system(tool: str) -> str:
    return shutil.which(tool, path=_SYSTEM) or tool


def _reap(pids: Iterable[int]) -> None:
    """Reap those of the processes `pids` that have ended; a restore started them as children of this process."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _from(file: Path, offset: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(offset)
        return opened.read()


def _bytes_in(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())


__all__ = ["MOUNT", "OUTPUT", "DumpableJob", "Timings"]
