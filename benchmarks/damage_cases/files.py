"""Damages files and folders in a data directory, and mends them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from damage_cases.plan import flipped

_HASH_DIGITS: Final = 64
_Choice = Callable[[Path], list[Path]]


def agent_folder(data: Path) -> Path:
    """Return the folder of the only agent in a data directory: that of `hopyard run` or that of `hopyard up`."""
    return next(path for path in (data / "agent", data / "agent-node1") if path.is_dir())


def code_blobs(data: Path) -> set[str]:
    """Return the hashes of the code bundles that the agent has unpacked."""
    return {path.name[:_HASH_DIGITS] for path in (agent_folder(data) / ".bundles").iterdir()}


def _blobs(data: Path) -> list[Path]:
    return sorted(path for path in (data / "store").rglob("*") if path.is_file() and len(path.name) == _HASH_DIGITS)


def _snapshot_blobs(data: Path) -> list[Path]:
    return [path for path in _blobs(data) if path.name not in code_blobs(data)]


def _code_blobs(data: Path) -> list[Path]:
    return [path for path in _blobs(data) if path.name in code_blobs(data)]


def _entries(folder: str) -> _Choice:
    """Return a choice of everything that is directly in a folder of the agent."""
    return lambda data: sorted((agent_folder(data) / folder).iterdir())


def _unpacked(folder: str) -> _Choice:
    """Return a choice of the files of the folders in a folder of the agent."""
    return lambda data: sorted(path for path in (agent_folder(data) / folder).glob("*/**/*") if path.is_file())


def _folders(folder: str) -> _Choice:
    """Return a choice of the folders in a folder of the agent."""
    return lambda data: [path for path in _entries(folder)(data) if path.is_dir()]


def _agent_files(data: Path) -> list[Path]:
    root = agent_folder(data)
    return sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())


_CHOICES: Final[dict[str, _Choice]] = {
    "database": lambda data: [data / "appstat.sqlite"],
    "journal file": lambda data: [data / "appstat.sqlite-wal"],
    "blob": _blobs,
    "only blob": _snapshot_blobs,
    "only code": _code_blobs,
    "snapshot": _unpacked("snapshots"),
    "snapshot folder": _folders("snapshots"),
    "only snapshot": _unpacked("snapshots"),
    "bundle": _unpacked(".bundles"),
    "bundle folder": _folders(".bundles"),
    "agent folder": _agent_files,
    "agent id": lambda data: [agent_folder(data) / "agent.id"],
    "agent cluster": lambda data: [agent_folder(data) / "agent.cluster"],
    "store cluster": lambda data: [data / "store" / "cluster.id"],
}
_ALL: Final = ("only blob", "only code", "only snapshot")
"""Kinds of which every file is damaged, because it is not known which one is read."""

_REMOVED: Final[dict[str, _Choice]] = {
    "only blob": _entries("snapshots"),
    "only code": _entries(".bundles"),
    "only snapshot": _snapshot_blobs,
}
"""What is removed in addition, by kind."""


class FileDamage:
    """The damage of files of one kind.

    Args:
        data: The data directory.
        foreign: That of another cluster, whose files of the same kind replace files; None: the damage needs none.
        where: The kind, of `plan.FILES` or `plan.FLIPS`.
        damage: Of `plan.FILE_DAMAGES`, or "flip".
        chance: Random numbers that choose a file and the bit.
        kept: A new folder, to which the files are copied before.

    Attributes:
        text: What was damaged, after `apply`.
        names: Names of the damaged files and of their folders, one of which a report must contain.
    """

    def __init__(
        self, data: Path, foreign: Path | None, where: str, damage: str, chance: Sequence[float], kept: Path
    ) -> None:
        self._data = data
        self._damage = damage
        self._chance = chance
        self._kept = kept
        self._where = where
        self._foreign = foreign
        self._saved: list[tuple[Path, Path]] = []
        self.text = ""
        self.names: set[str] = set()

    def apply(self) -> None:
        """Damage the files."""
        found = _CHOICES[self._where](self._data)
        if not found:
            raise LookupError(f"the cluster has no file of the kind {self._where!r}")
        every = self._where in _ALL or (self._where in ("snapshot", "bundle") and self._damage != "flip")
        chosen = found if every else [found[int(self._chance[0] * len(found))]]
        removed = _REMOVED[self._where](self._data) if self._where in _REMOVED else []
        foreign = _CHOICES[self._where](self._foreign) if self._foreign is not None else []
        for path in removed:
            self._save(path)
            _remove(path)
        for number, path in enumerate(chosen):
            self._save(path)
            self._change(path, foreign[number % len(foreign)] if foreign else None)
        for path in (*removed, *chosen):
            self.names |= {
                path.name,
                *(part for part in path.relative_to(self._data).parts if len(part) == _HASH_DIGITS),
            }
        names = [str(path.relative_to(self._data)) for path in chosen]
        self.text = f"{self._damage}: {names[0]}{f' and {len(names) - 1} further ones' if names[1:] else ''}"

    def undo(self) -> None:
        """Put the files back as they were."""
        for path, kept in reversed(self._saved):
            _remove(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            _copy(kept, path)

    def _save(self, path: Path) -> None:
        kept = self._kept / f"{len(self._saved)}"
        kept.parent.mkdir(parents=True, exist_ok=True)
        _copy(path, kept)
        self._saved.append((path, kept))

    def _change(self, path: Path, foreign: Path | None) -> None:
        folder = path.is_dir()
        match self._damage:
            case "flip":
                path.write_bytes(flipped(path.read_bytes(), self._chance[1]))
            case "missing":
                _remove(path)
            case "empty":
                _remove(path)
                if folder:
                    path.mkdir()
                else:
                    path.touch()
            case "truncated":
                for file in [one for one in path.rglob("*") if one.is_file()] if folder else [path]:
                    content = file.read_bytes()
                    file.write_bytes(content[: len(content) // 2])
            case "foreign" | "link":
                assert foreign is not None
                _remove(path)
                if self._damage == "foreign":
                    _copy(foreign, path)
                else:  # To a copy, because services may write to it.
                    copy = self._kept / f"foreign{len(self._saved)}"
                    _copy(foreign, copy)
                    path.symlink_to(copy)
            case _:
                raise ValueError(self._damage)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
