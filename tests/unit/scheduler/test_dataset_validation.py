"""Tests of the checks of a registration of a data set, before a node is asked."""

from __future__ import annotations

import pytest

from hopyard._common.bounded_json import MAX_COUNT
from hopyard.errors import InvalidInput
from hopyard.v1 import data_pb2
from hopyard_scheduler.data.dataset_validation import WantedPartition, checked

pytestmark = pytest.mark.quick


def by_url(size_bytes: int, examples: int) -> WantedPartition:
    """Return the partition of a registration that gives the hash, size and number of examples of a URL."""
    url, sha256 = "https://example.com/x", "a" * 64
    part = data_pb2.DataPartition(name="train/0", url=url, sha256=sha256, size_bytes=size_bytes, examples=examples)
    (found,) = checked(data_pb2.DataSet(name="d", partitions=[part]), "request")
    return found


def test_sizes_and_examples_of_urls_are_bounded() -> None:
    known = by_url(MAX_COUNT, MAX_COUNT).known
    assert known is not None
    assert (known.size, known.examples) == (MAX_COUNT, MAX_COUNT)
    for found in (-1, MAX_COUNT + 1, 2**63 - 1):
        with pytest.raises(InvalidInput, match=f"partition 'train/0': size_bytes: found {found}, allowed is"):
            by_url(found, 1)
        with pytest.raises(InvalidInput, match=f"partition 'train/0': examples: found {found}, allowed is"):
            by_url(1, found)
