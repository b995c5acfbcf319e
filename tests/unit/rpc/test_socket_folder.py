"""Tests of the private folders of Unix sockets."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hopyard import errors
from hopyard._net.server import Server
from hopyard._net.server.socket_folder import SocketFolder

NOBODY = 65534


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory for this test with a path so short that sockets fit into it."""
    with tempfile.TemporaryDirectory(prefix="hopyard-", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


@pytest.fixture
def no_umask() -> Iterator[None]:
    """The umask 0, with which new files are open to everyone."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("no_umask")
def test_the_folder_is_private_whatever_the_umask(temporary: Path) -> None:
    folder = SocketFolder(temporary)
    folder.make()
    assert folder.path == temporary / "run"
    assert mode(folder.path) == 0o700
    folder.path.chmod(0o777)
    folder.make()
    assert mode(folder.path) == 0o700


@pytest.mark.usefixtures("no_umask")
def test_long_paths_have_a_folder_in_the_temporary_directory(temporary: Path) -> None:
    data = temporary / ("long" * 30)
    folder = SocketFolder(data)
    folder.make()
    shared = temporary / f"hopyard-{os.geteuid()}"
    assert folder.path.parent == shared
    assert folder.path == SocketFolder(data).path != SocketFolder(temporary / ("other" * 30)).path
    assert [mode(shared), mode(folder.path)] == [0o700, 0o700]
    listening = folder.path / "agent.sock"
    listening.touch()
    folder.remove()
    assert listening.exists()
    listening.unlink()
    folder.remove()
    assert not folder.path.exists()


def test_a_long_temporary_directory_is_not_used(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / ("x" * 100)))
    assert SocketFolder(None).path.parent == Path("/tmp") / f"hopyard-{os.geteuid()}"


def test_links_and_files_are_refused(temporary: Path) -> None:
    (temporary / "elsewhere").mkdir()
    (temporary / "run").symlink_to(temporary / "elsewhere")
    with pytest.raises(errors.Conflict, match="run: the folder for sockets must be a folder, found a link"):
        SocketFolder(temporary).make()
    (temporary / f"hopyard-{os.geteuid()}").write_text("")
    with pytest.raises(errors.InvalidInput, match=r"hopyard-\d+: found a file, needed a folder"):
        SocketFolder(None).make()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create folders of other users")
def test_folders_of_other_users_are_refused(temporary: Path) -> None:
    for folder in (SocketFolder(temporary), SocketFolder(None)):
        folder.make()
        other = folder.path if folder.can_fall_back else folder.path.parent
        assert temporary in other.parents
        os.chown(other, NOBODY, NOBODY)
        with pytest.raises(errors.InvalidInput, match=rf"{other}: the folder belongs to user .*\({NOBODY}\)"):
            folder.make()


async def test_a_socket_left_by_a_killed_server_is_replaced(temporary: Path) -> None:
    (temporary / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(temporary / "run" / "kit.sock"))
    server = Server("kit", data=temporary)
    assert await server.start() == f"unix:{temporary}/run/kit.sock"
    await server.stop()
    assert not (temporary / "run" / "kit.sock").exists()


async def test_a_folder_without_sockets_falls_back(temporary: Path) -> None:
    """A folder at the path of the socket stands for a file system that cannot create sockets."""
    (temporary / "run" / "kit.sock").mkdir(parents=True)
    server = Server("kit", data=temporary)
    address = await server.start()
    assert address.startswith(f"unix:{temporary}/hopyard-")
    await server.stop()
    assert not [*(temporary / f"hopyard-{os.geteuid()}").iterdir()]
