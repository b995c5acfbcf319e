"""Tests of the folder of an image: in memory while the budget has space, else on the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hopyard._runtime.criu.image_storage import ImageFolders

pytestmark = pytest.mark.quick

MEGABYTE = 1_000_000


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for a file system in memory, with 10 MB free."""
    folder = tmp_path / "memory"
    folder.mkdir()
    (tmp_path / "disk").mkdir()
    usage = shutil._ntuple_diskusage(20 * MEGABYTE, 10 * MEGABYTE, 10 * MEGABYTE)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    return folder


def places(rooms: ImageFolders, size: int) -> list[str]:
    found = list(rooms.choices(size))
    for folder in found:
        rooms.free(folder)
        assert not folder.exists()
    return [folder.parent.name for folder in found]


@pytest.mark.parametrize(
    ("budget", "held", "size", "expected"),
    [
        (100 * MEGABYTE, 0, 8 * MEGABYTE, ["memory", "disk"]),
        # A reserve of a tenth more than the expected size would not fit.
        (100 * MEGABYTE, 0, 9 * MEGABYTE, ["disk"]),
        (6 * MEGABYTE, 0, 8 * MEGABYTE, ["disk"]),
        # Other images use a part of the budget.
        (9 * MEGABYTE, 3 * MEGABYTE, 5 * MEGABYTE, ["memory", "disk"]),
        (9 * MEGABYTE, 4 * MEGABYTE, 5 * MEGABYTE, ["disk"]),
        (0, 0, 1, ["disk"]),
    ],
)
def test_memory_is_chosen_within_the_budget_and_within_what_is_free(
    memory: Path, budget: int, held: int, size: int, expected: list[str]
) -> None:
    (memory / "another").mkdir()
    (memory / "another" / "pages.img").write_bytes(bytes(held))
    assert places(ImageFolders(memory, budget, memory.parent / "disk"), size) == expected


def test_without_memory_there_is_the_disk(memory: Path) -> None:
    assert places(ImageFolders(None, 100 * MEGABYTE, memory.parent / "disk"), 1) == ["disk"]


def test_what_was_not_let_go_is_let_go_in_the_end(memory: Path) -> None:
    rooms = ImageFolders(memory, 100 * MEGABYTE, memory.parent / "disk")
    for folder in rooms.choices(1):
        (folder / "pages.img").touch()
    rooms.close()
    assert not list(memory.iterdir())
    assert not list((memory.parent / "disk").iterdir())
