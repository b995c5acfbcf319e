"""Tests of the snapshots that an agent packs and restores for processes that do not pack their state themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard._runtime.application.state import load_folder, save_entry
from hopyard._runtime.snapshot_file import pack_entry
from hopyard._runtime.snapshot_folder import hash_folder
from hopyard.errors import DataLoss, InvalidInput, NotFound

pytestmark = pytest.mark.quick


@pytest.fixture
def snapshots(tmp_path: Path) -> Path:
    folder = tmp_path / "snapshots"
    folder.mkdir()
    return folder


def test_a_folder_is_packed_as_a_scripts_checkpoint_is_and_comes_back_under_its_name(
    tmp_path: Path, snapshots: Path
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "x.txt").write_text("0.1")
    info = save_entry(state, snapshots)
    assert [path.name for path in snapshots.iterdir()] == [info.sha256]
    assert pack_entry(state, tmp_path / "packed") == info
    assert save_entry(state, snapshots) == info
    load_folder(snapshots / info.sha256, info.sha256, tmp_path / "loaded")
    assert (tmp_path / "loaded" / "state" / "x.txt").read_text() == "0.1"


def test_a_snapshot_that_is_a_folder_is_copied(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "x.txt").write_text("0.1")
    sha256 = hash_folder(snapshot).sha256
    load_folder(snapshot, sha256, tmp_path / "loaded")
    (tmp_path / "loaded" / "x.txt").write_text("0.2")
    assert hash_folder(snapshot).sha256 == sha256


def test_what_cannot_be_saved_is_told_and_leaves_nothing(tmp_path: Path, snapshots: Path) -> None:
    with pytest.raises(InvalidInput, match="found 'state', allowed is an absolute path"):
        save_entry(Path("state"), snapshots)
    with pytest.raises(NotFound, match="there is no"):
        save_entry(tmp_path / "nothing", snapshots)
    state = tmp_path / "state"
    state.mkdir()
    (state / "link").symlink_to("/etc/passwd")
    with pytest.raises(InvalidInput, match="is neither a file nor a folder"):
        save_entry(state, snapshots)
    assert list(snapshots.iterdir()) == []


@pytest.mark.parametrize("as_folder", [False, True])
def test_damaged_state_is_not_loaded(tmp_path: Path, snapshots: Path, as_folder: bool) -> None:
    (tmp_path / "x.txt").write_text("0.1")
    snapshot = snapshots / save_entry(tmp_path / "x.txt", snapshots).sha256
    sha256 = snapshot.name
    if as_folder:
        snapshot.unlink()
        snapshot.mkdir()
        (snapshot / "x.txt").write_text("0.2")
    else:
        snapshot.write_bytes(snapshot.read_bytes().replace(b"0.1", b"0.2"))
    with pytest.raises(DataLoss, match="is damaged"):
        load_folder(snapshot, sha256, tmp_path / "loaded")
    assert not (tmp_path / "loaded").exists()


def test_where_it_cannot_be_loaded_to(tmp_path: Path, snapshots: Path) -> None:
    (tmp_path / "x.txt").write_text("0.1")
    sha256 = save_entry(tmp_path / "x.txt", snapshots).sha256
    for place in (Path("loaded"), tmp_path, tmp_path / "none" / "loaded"):
        with pytest.raises(
            InvalidInput, match="allowed is an absolute path of a folder that is not there, in one that"
        ):
            load_folder(snapshots / sha256, sha256, place)
    with pytest.raises(NotFound, match="not on this node any more"):
        load_folder(snapshots / ("0" * 64), "0" * 64, tmp_path / "loaded")
