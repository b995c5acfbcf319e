"""Tests of snapshots that are in memory and move to the disk: after an agent was killed, and when they are deleted meanwhile."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hopyard_nodeagent.snapshots.memory_images import InMemory

pytestmark = pytest.mark.quick

NAME = "a" * 64


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A snapshot in memory, as the link in the snapshot folder."""
    (tmp_path / "memory").mkdir()
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "memory" / "image.packed").write_bytes(b"images")
    path = tmp_path / "snapshots" / NAME
    path.symlink_to(tmp_path / "memory" / "image.packed")
    return path


def on_disk(path: Path) -> bool:
    left = [*(path.parent.parent / "memory").iterdir(), *path.parent.glob(".*")]
    return not path.is_symlink() and path.read_bytes() == b"images" and not left


def moved(linked: Path, meanwhile: Callable[[InMemory], object] = lambda home: None) -> None:
    """Move the snapshot to the disk, and call `meanwhile` when the move has begun."""

    async def move() -> None:
        home = InMemory(linked.parent.parent / "memory")
        home.leave(linked)
        home.leave(linked)
        meanwhile(home)
        await home.wait()

    asyncio.run(move())


def test_it_follows_to_the_disk_with_its_mark(linked: Path) -> None:
    # The mode marks the snapshot as the only copy.
    moved(linked, lambda home: linked.chmod(0o444))
    assert on_disk(linked)
    assert stat.S_IMODE(linked.stat().st_mode) == 0o444
    moved(linked)
    assert on_disk(linked)


def test_what_a_killed_agent_left_is_brought_to_the_disk_before_anything_else(linked: Path) -> None:
    InMemory(linked.parent)
    assert not linked.is_symlink()
    assert linked.read_bytes() == b"images"


def test_what_memory_has_lost_is_not_there(linked: Path) -> None:
    linked.readlink().unlink()
    InMemory(linked.parent)
    assert not list(linked.parent.iterdir())


def test_what_is_deleted_on_its_way_does_not_come_back(linked: Path) -> None:
    def delete(home: InMemory) -> None:
        home.forget(linked)
        linked.unlink()

    moved(linked, delete)
    assert not list(linked.parent.iterdir())
    assert not list((linked.parent.parent / "memory").iterdir())


def test_where_the_disk_is_full_it_stays_in_memory(linked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> Any:
        target.write_bytes(b"im")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copy2", full)
    moved(linked)
    assert linked.is_symlink()
    assert linked.read_bytes() == b"images"
    assert not list(linked.parent.glob(".*"))
