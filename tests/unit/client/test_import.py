"""Test that a cancelled import leaves no open file."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from hopyard.client.transfer import export_import
from hopyard.client.transfer.archive import ArchiveReader, ArchiveWriter
from tests.timing import HANG_SECONDS


async def test_an_import_that_is_cancelled_as_its_file_is_opened_closes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, closed = threading.Event(), threading.Event()

    class Noted(ArchiveReader):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            opened.set()

        def __exit__(self, *raised: Any) -> None:
            super().__exit__(*raised)
            closed.set()

    path = tmp_path / "e1.hopyard"
    with ArchiveWriter(path) as archive:
        archive.finish({})
    monkeypatch.setattr(export_import, "ArchiveReader", Noted)
    client: Any = None  # the reader does not use it in this test
    reading = asyncio.create_task(export_import.read(client, client, path, None))
    await asyncio.sleep(0)
    # The event loop does not run during this wait, so no task can have received the file from the thread.
    assert opened.wait(HANG_SECONDS)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert closed.is_set()
