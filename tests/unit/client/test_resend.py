"""Tests of what `resend` says of a folder whose files are not those with which an experiment was created."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from hopyard.client.queries import ClientQueries
from hopyard.client.submission import pack
from hopyard.client.transfer import resend as module
from hopyard.client.types import Experiment, ExperimentState, Metric
from hopyard.errors import Conflict

pytestmark = pytest.mark.quick

CREATED = 1_000_000_000.0


class _Client:
    """A client of a cluster whose store has lost the code; `received` is what was sent to it."""

    def __init__(self) -> None:
        self.received: bytes | None = None

    async def _connection(self) -> _Client:
        return self


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> _Client:
    async def has_bundle(connection: _Client, sha256: str) -> bool:
        return False

    async def put_blob(connection: _Client, sha256: str, data: bytes) -> bool:
        connection.received = data
        return True

    monkeypatch.setattr(module, "has_bundle", has_bundle)
    monkeypatch.setattr(module, "put_blob", put_blob)
    return _Client()


def submitted(folder: Path, *names: str) -> Experiment:
    """Create files in a folder long before the experiment, and return the experiment with them as its code."""
    for name in names:
        (folder / name).write_text(f"{name} of then")
        os.utime(folder / name, (CREATED - 9, CREATED - 9))
    (folder / "train.py").chmod(0o755)
    state = ExperimentState.PAUSED
    return Experiment("e1", "a", state, Metric("m"), bundle=pack(folder).sha256, created_at=CREATED)


async def refusal(client: _Client, experiment: Experiment, folder: Path) -> str:
    with pytest.raises(Conflict) as refused:
        await module.resend(cast(Any, client), experiment, folder)
    assert client.received is None
    return str(refused.value)


async def test_additional_files_are_called_so_and_can_be_excluded(client: _Client, tmp_path: Path) -> None:
    experiment = submitted(tmp_path, "train.py", "lib.py")
    (tmp_path / "out.csv").write_text("1")
    (tmp_path / "log").write_text("1")
    said = await refusal(client, experiment, tmp_path)
    assert "additional to those that were submitted: log, out.csv." in said
    assert "list them and .hopyardignore itself in a file .hopyardignore" in said
    assert "changed or added" not in said
    (tmp_path / ".hopyardignore").write_text("log\n*.csv\n")
    said = await refusal(client, experiment, tmp_path)
    assert (
        "additional to those that were submitted: .hopyardignore. Move it to another folder, or list it in .hopyardignore"
        in said
    )
    (tmp_path / ".hopyardignore").write_text("log\n*.csv\n.hopyardignore\n")
    sent = await module.resend(cast("ClientQueries", client), experiment, tmp_path)
    assert (sent.source, client.received) == (tmp_path, pack(tmp_path).data)


async def test_with_a_recorded_ignore_file_additional_files_are_moved_away(client: _Client, tmp_path: Path) -> None:
    experiment = submitted(tmp_path, "train.py", ".hopyardignore")
    (tmp_path / "out.csv").write_text("1")
    said = await refusal(client, experiment, tmp_path)
    assert "additional to those that were submitted: out.csv. Move it to another folder" in said
    assert "a changed .hopyardignore would be other code, too" in said


async def test_an_additional_file_that_kept_its_old_time_is_found(client: _Client, tmp_path: Path) -> None:
    recorded = submitted(tmp_path, "train.py")
    created = (tmp_path / "train.py").stat().st_ctime
    (tmp_path / "moved").write_text("1")
    while (tmp_path / "moved").stat().st_ctime <= created:  # Until the clock of the file system shows another time.
        os.utime(tmp_path / "moved", (CREATED - 9, CREATED - 9))
    said = await refusal(client, replace(recorded, created_at=created), tmp_path)
    assert "additional to those that were submitted: moved." in said


async def test_files_that_may_have_changed_are_named_so(client: _Client, tmp_path: Path) -> None:
    experiment = submitted(tmp_path, "train.py", "lib.py")
    (tmp_path / "train.py").write_text("new")
    (tmp_path / "out.csv").write_text("1")
    said = await refusal(client, experiment, tmp_path)
    assert "changed or added since the experiment was created: out.csv, train.py" in said
    assert "Give a folder with exactly the files that were submitted" in said


async def test_a_missing_file_is_not_called_changed(client: _Client, tmp_path: Path) -> None:
    experiment = submitted(tmp_path, "train.py", "lib.py")
    (tmp_path / "lib.py").unlink()
    said = await refusal(client, experiment, tmp_path)
    assert "none of its files has changed since" in said
