"""Tests of the data cache of a training process: by file and reader, within a budget, and never data that has changed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from hopyard.trainer import TrainerContext
from hopyard.trainer.cache import DataCache, default_budget, size_of

pytestmark = pytest.mark.quick


class Reader:
    """A reader of files that records the names of the files that it reads."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def __call__(self, path: Path) -> bytes:
        self.read.append(path.name)
        return path.read_bytes()


def write(path: Path, size: int, byte: bytes = b"x") -> Path:
    path.write_bytes(byte * size)
    return path


def test_what_was_read_is_not_read_again(tmp_path: Path) -> None:
    cache, load, file = DataCache(10_000), Reader(), write(tmp_path / "a", 100)
    assert cache.get(file, load) is cache.get(file, load)
    assert load.read == ["a"]
    assert (cache.use.hits, cache.use.misses, cache.use.entries) == (1, 1, 1)


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    cache, load, file = DataCache(10_000), Reader(), write(tmp_path / "a", 100)
    cache.get(file, load)
    write(file, 100, b"y")
    os.utime(file, ns=(1, 1))
    assert cache.get(file, load) == b"y" * 100
    assert cache.use.entries == 1


def test_a_folder_counts_with_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    inner = write(tmp_path / "data" / "deep" / "a", 10)
    cache, calls = DataCache(10_000), list[int]()

    def load(path: Path) -> int:
        calls.append(1)
        return sum(len(file.read_bytes()) for file in path.rglob("*") if file.is_file())

    assert cache.get(tmp_path / "data", load) == cache.get(tmp_path / "data", load) == 10
    write(inner, 20)
    assert cache.get(tmp_path / "data", load) == 20
    assert len(calls) == 2


def test_two_readers_of_a_file_do_not_get_each_others_results(tmp_path: Path) -> None:
    cache, file = DataCache(10_000), write(tmp_path / "a", 100)
    assert cache.get(file, lambda path: "one") == "one"
    assert cache.get(file, lambda path: "other") == "other"


def test_a_method_is_its_classs_whichever_object_it_is_called_on(tmp_path: Path) -> None:
    class Program:
        def load(self, path: Path) -> object:
            return object()

    cache, file = DataCache(10_000), write(tmp_path / "a", 1)
    assert cache.get(file, Program().load) is cache.get(file, Program().load)


def test_what_was_used_longest_ago_leaves_first_and_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    a, b, c = (write(tmp_path / name, 1000) for name in "abc")
    load = Reader()
    cache = DataCache(2 * size_of(b"x" * 1000))
    for file in (a, b, a, c):
        cache.get(file, load)
    assert "data of" in caplog.text
    assert str(b) in caplog.text
    assert str(a) not in caplog.text
    for file in (a, c, b):
        cache.get(file, load)
    assert load.read == ["a", "b", "c", "b"]
    assert cache.use.size <= cache.use.budget


def test_what_is_larger_than_the_budget_is_not_kept_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache, load, file = DataCache(500), Reader(), write(tmp_path / "a", 1000)
    small = write(tmp_path / "b", 10)
    cache.get(small, load)
    cache.get(file, load)
    cache.get(file, load)
    cache.get(small, load)
    assert load.read == ["b", "a", "a"]
    assert caplog.text.count("read again by each run") == 1


def test_a_smaller_budget_makes_room_at_once(tmp_path: Path) -> None:
    cache, load = DataCache(10_000), Reader()
    cache.get(write(tmp_path / "a", 1000), load)
    cache.budget = 10
    assert cache.use.entries == cache.use.size == 0
    with pytest.raises(ValueError, match="allowed: 0 or more"):
        cache.budget = -1


def test_a_missing_file_and_a_reader_that_fails_keep_nothing(tmp_path: Path) -> None:
    cache = DataCache(10_000)
    with pytest.raises(FileNotFoundError):
        cache.get(tmp_path / "missing", Reader())

    def fails(path: Path) -> bytes:
        raise ValueError("no data in it")

    with pytest.raises(ValueError, match="no data in it"):
        cache.get(write(tmp_path / "a", 10), fails)
    assert cache.use.entries == 0


def test_sizes_are_those_of_arrays_wherever_they_are() -> None:
    class Table:
        __slots__ = ("columns", "name")

        def __init__(self) -> None:
            self.columns = {"x": np.zeros(1000), "y": [np.zeros(10), np.zeros(10)]}
            self.name = "table"

    table = Table()
    assert 8 * 1020 <= size_of(table) <= 8 * 1020 + 2000
    shared = np.zeros(1000)
    assert size_of([shared, shared]) < 2 * shared.nbytes


def test_a_ring_of_objects_has_a_size() -> None:
    ring: list[object] = []
    ring.append(ring)
    assert size_of(ring) > 0


def test_the_budget_without_a_word_follows_the_memory_limit_or_the_threads() -> None:
    assert default_budget(1000) == 250
    assert 0 < default_budget(threads=1) <= default_budget()


def test_a_context_without_partition_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no data partition"):
        TrainerContext(seed=0, scratch=tmp_path).data(Reader())
    file = write(tmp_path / "a", 10)
    assert TrainerContext(seed=0, scratch=tmp_path, inputs=file).data(Reader()) == b"x" * 10
