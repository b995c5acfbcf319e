"""Tests that a client sends no token and no code to a service in a folder that another user can change.

Another user can put a folder `hopyard-data` with an address file, and links to the tokens of a victim, where the victim runs commands.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hopyard._net.auth import CallerKind, SecretsFolder, new_token
from hopyard._net.auth.credentials import find_token
from hopyard.cli.doctor.check_result import Health
from hopyard.cli.doctor.disk import data_folder
from hopyard.cli.main import run
from hopyard.client import AsyncClient, Client
from hopyard.errors import InvalidInput
from tests.integration.cli.test_stored import JOURNAL


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket that listens at `hopyard-data/run/scheduler.sock`, where every user can write; the address file leads to it."""
    folder = tmp_path / "hopyard-data"
    (folder / "run").mkdir(parents=True)
    place = folder / "run" / "scheduler.sock"
    (folder / "scheduler.address").write_text(f"unix:{place}\n")
    SecretsFolder(tmp_path / "victim" / "secrets").make()
    (folder / "secrets").symlink_to(tmp_path / "victim" / "secrets")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()
        listening.setblocking(False)
        for path in (folder, folder / "run"):
            path.chmod(0o777)
        yield listening


def connected(listener: socket.socket) -> bool:
    """Whether a client has connected."""
    try:
        listener.accept()
    except BlockingIOError:
        return False
    return True


@pytest.mark.parametrize("how", ["data", "server"])
def test_commands_send_nothing_to_a_service_in_a_folder_that_others_can_change(
    listener: socket.socket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    how: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPYARD_USER_TOKEN", new_token(CallerKind.USER).text)
    (tmp_path / "experiment.yaml").write_text(
        "name: x\ncommand: [python, -c, pass]\nmetric: {name: m, mode: max}\nspace: {a: 1}\nstop: {jobs: 1}\n"
    )
    server = [] if how == "data" else ["--server", f"unix:{tmp_path}/hopyard-data/run/scheduler.sock"]
    for command in (["experiments"], ["nodes"], ["connection"], ["jobs", "x"], ["run", "experiment.yaml"]):
        assert run([*command, *server]) != 0
        assert "other users can write to the folder" in capsys.readouterr().err
    assert not connected(listener)


async def test_the_client_sends_nothing_to_a_service_in_a_folder_that_others_can_change(
    listener: socket.socket, tmp_path: Path
) -> None:
    token = new_token(CallerKind.USER).text
    for client in (
        AsyncClient(data=tmp_path / "hopyard-data"),
        AsyncClient(f"unix:{tmp_path}/hopyard-data/run/scheduler.sock", token=token),
    ):
        with pytest.raises(InvalidInput, match="other users can write to the folder"):
            await client.experiments()
        await client.close()
    assert not connected(listener)


def test_tokens_are_not_read_through_a_folder_that_others_can_change(tmp_path: Path, listener: socket.socket) -> None:
    own = tmp_path / "own"
    own.mkdir(0o700)
    (own / "scheduler.sock").touch()
    with pytest.raises(InvalidInput, match="other users can write to the folder"):
        find_token(CallerKind.USER, "127.0.0.1:1", tmp_path / "hopyard-data")
    tmp_path.chmod(0o770)
    SecretsFolder(tmp_path / "secrets").make()
    with pytest.raises(InvalidInput, match=f"{tmp_path}: other users can write to the folder"):
        find_token(CallerKind.USER, f"unix:{own}/scheduler.sock")
    tmp_path.chmod(0o700)
    assert find_token(CallerKind.USER, f"unix:{own}/scheduler.sock")


def test_stored_data_that_others_can_change_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`hopyard replay --execute` would run the code in it."""
    data = tmp_path / "hopyard-data"
    assert run(["import", str(JOURNAL), "--data", str(data)]) == 0
    capsys.readouterr()
    assert run(["experiments", "--data", str(data)]) == 0
    data.chmod(0o777)
    for command in (["experiments"], ["jobs"], ["replay"], ["replay", "--execute"], ["logs", "1"]):
        assert run([*command, "--data", str(data)]) != 0
        assert "other users can write to the folder" in capsys.readouterr().err
    with pytest.raises(InvalidInput, match="other users can write to the folder"), Client.stored(data) as client:
        client.experiments()
    finding = data_folder(data)
    assert (finding.health, finding.fails) == (Health.PROBLEM, True)
    assert "other users can write to the folder" in finding.detail
