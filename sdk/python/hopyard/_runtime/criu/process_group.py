"""A job's processes, started so that they can be dumped and restored, here or on another computer.

The program is process 1 of a PID namespace of its own, so that its numbers are free wherever it is restored, and so that all that
it starts ends with it. It runs in a folder that it sees at `MOUNT`, on every computer alike, by a mount that only its processes
and the CRIU that handles them see; its output goes there too, to a file that is only appended to. Its clocks go on where they
stood, whatever the clocks of the computer say.
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
from hopyard._runtime.criu.image_storage import Rooms
from hopyard._runtime.criu.preconditions import refuse
from hopyard._runtime.snapshot_file import SnapshotFileInfo

MOUNT: Final = "/run/hopyard/job"
"""Where a job's processes see their folder."""

OUTPUT: Final = "output"
"""The file in that folder that the program's output is appended to."""

_FLAGS: Final = ("--tcp-close", "--ext-unix-sk", "--file-locks", "--link-remap")
_GHOSTS: Final = ("--ghost-limit", str(1 << 30))
"""What data loaders share with their workers are files without a name, whose contents become part of the image."""
_SYSTEM: Final = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin"
"""Where the system's own tools are, whatever PATH the program is to have."""
_PRIVATE: Final = ("--mount", "--propagation", "slave")
_BEGIN: Final = '"$1" --bind "$2" "$3" && cd "$4" && begin=$5 && out=$6 && shift 6 && exec "$begin" -- "$@" </dev/null >>"$out" 2>&1'
_AGAIN: Final = '"$1" --bind "$2" "$3" && shift 3 && exec "$@"'
_DUMP_SECONDS: Final = 600.0
_RESTORE_SECONDS: Final = 600.0
_END_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 0.002
_MOST_THREADS: Final = 4
_SHRINKS: Final = 4
"""About how much smaller images are when they are packed."""


@dataclass(slots=True)
class Timings:
    """What the last dump or restore took, in seconds, and its sizes in bytes."""

    dump: float = 0.0
    pack: float = 0.0
    unpack: float = 0.0
    restore: float = 0.0
    raw: int = 0
    packed: int = 0


class DumpableJob:
    """The processes of one run.

    Args:
        criu: What dumps and restores them.
        folder: Theirs, on this computer; its name is no other's. `restore` makes it.
        rooms: Where images lie until they are packed, or restored.
        driver: Of the GPUs; None: the computer's own, where one is used.
    """

    def __init__(self, criu: Criu, folder: Path, rooms: Rooms, driver: gpu.Driver | None = None) -> None:
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
        """Of processes that stand still, and whose GPUs were let go."""

    def start(self, command: Sequence[str], working: str, environment: Mapping[str, str]) -> None:
        """Start the program in a folder below `MOUNT`, or an absolute one.

        Raises:
            OSError: A tool that this needs is missing.
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
        """How the program has ended: its exit code, negative for a signal; None: it has not."""
        if self._code is None:
            if self._restored:
                with suppress(ChildProcessError):
                    pid, status = os.waitpid(self._restored, os.WNOHANG)
                    self._code = os.waitstatus_to_exitcode(status) if pid else None
            elif self._starter is not None:
                self._code = self._starter.poll()
        return self._code

    def pid(self) -> int:
        """The program, as this computer numbers it; 0: it is not there."""
        if self._restored or self._starter is None:
            return self._restored
        below = procfs.tree(self._starter.pid)[1:]
        return below[0] if below else 0

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and all that it has started."""
        if self.poll() is None and (pid := self.pid()):
            procfs.kill(procfs.tree(pid), number)

    def kill(self) -> None:
        """End the program and all that it has started, and a dump or restore that is under way; safe to call at any time."""
        self._calls.end()
        marker = self.folder.name
        procfs.end(lambda: procfs.mounted(MOUNT, marker), _END_SECONDS)

    def close(self) -> None:
        """End it and all that it has started, and let its image's room go.

        The first process of a PID namespace is told dead only when all others in it are, so nobody has to be looked for.
        """
        began = self._restored or (self._starter.pid if self._starter is not None else 0)
        while began and self.poll() is None and os.path.exists(f"/proc/{began}"):
            if pid := self.pid():  # Its starter may not have come to it yet.
                procfs.kill([pid])
            time.sleep(_CLOSE_SECONDS)
        self._rooms.close()

    def dump(
        self, file: Path, kept: Mapping[str, Any], *, stopped: bool, pending: Mapping[str, int]
    ) -> SnapshotFileInfo:
        """Write a snapshot of the processes to a file; afterwards they stand still, without their GPUs, until `proceed`.

        When it fails they are as they were before, as far as they live. Of a program that has ended by itself the snapshot holds
        how, and its folder.

        Args:
            file: Where the snapshot goes. Where there is memory for it this becomes a link to a file there: nobody waits for a disk.
            kept: What `restore` shall give back, besides the processes.
            stopped: Whether they stand still already.
            pending: Files of the folder of which only what follows an offset is kept.

        Raises:
            DumpRefusedError: They have something that cannot be dumped.
            DumpFailedError: It failed; the message says why.
            GpuLostError: It failed and they are of no more use.
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
        """Pack to memory, and to the disk if there is no room."""
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
        """Have processes go on that stand still, with their GPUs.

        Raises:
            GpuLostError: They do not get them back, and are of no more use.
        """
        self.signal(signal.SIGCONT)
        if self._gpus is not None:
            gpus, self._gpus = self._gpus, None
            gpus.resume()

    def restore(
        self, file: Path, sha256: str, accept: Callable[[Mapping[str, Any]], None] = lambda kept: None
    ) -> tuple[dict[str, Any], bool]:
        """Make the folder and the processes of a snapshot; returns what was kept in it, and whether they stand still.

        Args:
            file: The snapshot.
            sha256: Its hash.
            accept: Raises if what was kept shows that it is not to be restored.

        Raises:
            SnapshotFileError: The file is damaged, or holds something else.
            RestoreMismatchError: This computer lacks something.
            RestoreFailedError: It failed; no process of it is left.
            OSError: There is no room.
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
        """Unpack a snapshot's images to memory, and to the disk if there is no room."""
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
        """Dump the processes that run, and say in the manifest what they need; returns the folder of their images."""
        pid = self.pid()
        if not pid:
            raise DumpFailedError("the program has not begun, or just ended")
        pids = procfs.tree(pid)
        users = refuse(pids, self._criu)
        if users:
            self.proceed()  # They have a part in letting their GPUs go.
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
        manifest["processes"] = procfs.members(pid)  # They stand still since.
        manifest["needs"] = compatibility.needs(pids, MOUNT)
        return images

    def _images(self, pid: int, size: int) -> Path:
        """Dump to memory, and to the disk if there is no room."""
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
                    raise DumpFailedError(f"the dump failed, and the program ended by it: {failure}") from failure
        raise error or DumpFailedError("there is no room for an image")

    def _restore(self, images: Path) -> int:
        """Restore from images; returns the program's number."""
        number = images.with_name(f"{images.name}.pid")  # CRIU fails if it is there.
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
        """See whether restored processes that stand still are all there: CRIU does not say when one ended right behind it.

        Raises:
            RestoreFailedError: One is not.
        """
        there = procfs.members(self._restored)
        missing = [f"process {number} ({name})" for number, name in processes.items() if number not in there]
        if missing:
            are = "is" if len(missing) == 1 else "are"
            raise RestoreFailedError(f"the process could not be restored: {', '.join(missing)} {are} missing")

    def _take_gpus(self, numbers: Sequence[int]) -> None:
        """Find the restored processes that wait for their GPUs."""
        if numbers:
            by_number = {procfs.namespace_pid(pid): pid for pid in procfs.tree(self._restored)}
            pids = [by_number[number] for number in numbers if number in by_number]
            self._gpus = gpu.GpuSuspension(pids, self._driver or gpu.driver())


def _system(tool: str) -> str:
    return shutil.which(tool, path=_SYSTEM) or tool


def _reap(pids: Iterable[int]) -> None:
    """Take note that processes have ended which restoring has begun: they are this process's children."""
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
