"""Tests of the errors for files that are not partitions, and for damaged manifests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hopyard._runtime.datasets.manifest import read_manifest
from hopyard._runtime.datasets.reader import content, stamp
from hopyard.errors import InvalidInput

pytestmark = pytest.mark.quick

PARTITION = {"name": "train/0", "file": "train-0.npz", "size_bytes": 5, "sha256": "ab", "examples": 3}


def test_an_empty_folder_is_no_partition(tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    for read in (content, stamp):
        with pytest.raises(InvalidInput, match="there is no file in this folder"):
            read(tmp_path)


def test_a_file_that_the_kernel_makes_up_is_no_partition() -> None:
    with pytest.raises(InvalidInput, match="/proc/self/environ: needed is a regular file"):
        content(Path("/proc/self/environ"))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], r"needs an object, found \[\]"),
        ({}, "format is missing"),
        ({"format": 1}, "partitions is missing"),
        ({"format": 1, "partitions": 7}, "partitions: needs a list, found 7"),
        ({"format": 1, "partitions": [7]}, r"partitions\[0\]: needs an object, found 7"),
        (
            {"format": 1, "partitions": [PARTITION, {**PARTITION, "sha256": None}]},
            r"partitions\[1\].sha256: needs text, found None",
        ),
        ({"format": 1, "partitions": [{"name": "train/0"}]}, r"partitions\[0\].file: needs text, it is missing"),
    ],
)
def test_a_damaged_manifest_is_named_with_the_place(document: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=f"here: it is not what `hopyard data split` writes: {said}"):
        read_manifest(json.dumps(document), "here")
