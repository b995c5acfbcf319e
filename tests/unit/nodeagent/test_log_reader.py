"""Tests of reading logs at positions that clients choose."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard_nodeagent.runs.logs.log_reader import stream

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        (0, b"0123"),
        (2, b"23"),
        (-1, b"3"),
        (-100, b"0123"),
        (4, b""),
        (10**6, b""),
        (2**63 - 1, b""),
        (-(2**63), b"0123"),
    ],
)
async def test_every_offset_is_allowed(tmp_path: Path, offset: int, found: bytes) -> None:
    (tmp_path / "log").write_bytes(b"0123")
    assert b"".join([data async for _, data in stream(tmp_path / "log", offset, lambda: False)]) == found
