"""Tests of the folder of secrets, and of how a client finds its token."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from hopyard._net.auth import CallerKind, SecretsFolder, TokenAuthenticator, find_token, new_token
from hopyard._net.auth.secrets_folder import STORED
from hopyard._net.auth.tokens import digest
from hopyard.errors import InvalidInput, NotFound, Unauthenticated, Unavailable

pytestmark = pytest.mark.quick


@pytest.fixture
def folder(tmp_path: Path) -> SecretsFolder:
    made = SecretsFolder(tmp_path / "data" / "secrets")
    made.make()
    return made


def accepted(folder: SecretsFolder) -> TokenAuthenticator:
    tokens = TokenAuthenticator()
    folder.accept_all(tokens)
    return tokens


def test_each_kind_has_a_token_that_is_accepted(folder: SecretsFolder) -> None:
    for kind in STORED:
        principal = accepted(folder).authenticate(folder.token(kind))
        assert principal is not None
        assert principal.kind is kind
    assert {path.name for path in folder.path.iterdir()} == {"user.token", "node.token", "service.token", "accepted"}
    assert len(folder.ticket_key()) == 32
    assert folder.ticket_key() == folder.ticket_key()


def test_all_files_are_private_and_accepted_has_no_token(folder: SecretsFolder) -> None:
    folder.ticket_key()
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.path.iterdir()} == {0o600}
    text = (folder.path / "accepted").read_text()
    assert len(text.splitlines()) == len(STORED)
    assert "hop_" not in text
    assert digest(folder.token(CallerKind.USER)) in text


def test_services_that_start_together_create_the_same_tokens(tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / str(number)
        threads = [threading.Thread(target=SecretsFolder(path).make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        folder = SecretsFolder(path)
        assert all(accepted(folder).authenticate(folder.token(kind)) for kind in STORED)


def test_a_deleted_token_does_not_come_back(folder: SecretsFolder) -> None:
    token = folder.token(CallerKind.USER)
    folder.token_file(CallerKind.USER).unlink()
    folder.make()
    with pytest.raises(NotFound):
        folder.token(CallerKind.USER)
    assert accepted(folder).authenticate(token) is not None
    lines = (folder.path / "accepted").read_text().splitlines(keepends=True)
    (folder.path / "accepted").write_text("".join(line for line in lines if not line.startswith("user")))
    folder.make()
    assert accepted(folder).authenticate(token) is None


@pytest.mark.parametrize("name", ["user.token", "accepted", "ticket.key"])
def test_a_file_that_others_can_read_or_that_is_a_link_is_refused(folder: SecretsFolder, name: str) -> None:
    folder.ticket_key()
    path = folder.path / name
    read = {
        "user.token": lambda: folder.token(CallerKind.USER),
        "accepted": lambda: accepted(folder),
        "ticket.key": folder.ticket_key,
    }[name]
    path.chmod(0o640)
    with pytest.raises(InvalidInput, match=rf"{name}: other users have rights to this file .*chmod 600"):
        read()
    path.chmod(0o600)
    path.rename(folder.path / "real")
    path.symlink_to(folder.path / "real")
    with pytest.raises(InvalidInput, match=rf"{name}: found a symbolic link"):
        read()


@pytest.mark.parametrize("content", [b"", b"hop_user_x", b"\xff" * 60, b"a" * 100_000])
@pytest.mark.parametrize("name", ["user.token", "accepted", "ticket.key"])
def test_a_damaged_file_is_refused_and_not_shown(folder: SecretsFolder, name: str, content: bytes) -> None:
    folder.ticket_key()
    (folder.path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=rf"{name}: ") as error:
        {
            "user.token": lambda: folder.token(CallerKind.USER),
            "accepted": lambda: accepted(folder),
            "ticket.key": folder.ticket_key,
        }[name]()
    assert len(str(error.value)) < 400


def test_a_token_of_another_kind_is_refused(folder: SecretsFolder) -> None:
    folder.token_file(CallerKind.USER).write_text(folder.token(CallerKind.NODE))
    with pytest.raises(InvalidInput, match="found a token of the kind node, needed one of the kind user"):
        folder.token(CallerKind.USER)


def find(address: str, data: Path | None = None, **environment: str) -> str:
    return find_token(CallerKind.USER, address, data, environment)


def test_a_token_is_found_next_to_the_socket(folder: SecretsFolder, tmp_path: Path) -> None:
    token, other = folder.token(CallerKind.USER), new_token(CallerKind.USER).text
    socket = f"unix:{folder.path.parent}/run/scheduler.sock"
    assert find(socket) == token
    assert find(socket, HOPYARD_USER_TOKEN=other) == token
    short = tmp_path / "short"
    short.mkdir()
    (short / "secrets").symlink_to(folder.path)
    assert find(f"unix:{short}/scheduler.sock") == token


def test_elsewhere_the_data_folder_or_the_environment_names_the_token(folder: SecretsFolder, tmp_path: Path) -> None:
    token, other = folder.token(CallerKind.USER), new_token(CallerKind.USER).text
    file = tmp_path / "copy"
    file.write_text(f"{other}\n")
    file.chmod(0o600)
    assert find("127.0.0.1:1", folder.path.parent) == token
    assert find("127.0.0.1:1", folder.path.parent, HOPYARD_USER_TOKEN=other) == token
    assert find("127.0.0.1:1", HOPYARD_USER_TOKEN=other) == other
    assert find("127.0.0.1:1", HOPYARD_USER_TOKEN_FILE=str(file)) == other
    assert find("127.0.0.1:1", HOPYARD_USER_TOKEN=token, HOPYARD_USER_TOKEN_FILE=str(file)) == token
    with pytest.raises(NotFound, match=r"^HOPYARD_USER_TOKEN_FILE: .*nowhere: no such file"):
        find("127.0.0.1:1", HOPYARD_USER_TOKEN_FILE=str(tmp_path / "nowhere"))
    with pytest.raises(InvalidInput, match="HOPYARD_USER_TOKEN: found no token") as error:
        find("127.0.0.1:1", HOPYARD_USER_TOKEN="my secret")
    assert "my secret" not in str(error.value)


def test_without_a_token_the_error_says_where_one_is_needed(tmp_path: Path) -> None:
    with pytest.raises(Unauthenticated, match=r"set HOPYARD_USER_TOKEN_FILE to a copy of the file secrets/user\.token"):
        find("127.0.0.1:1")
    with pytest.raises(Unavailable, match="no service has listened"):
        find(f"unix:{tmp_path}/run/scheduler.sock")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "scheduler.sock").touch()
    with pytest.raises(
        Unauthenticated, match=r"secrets has no tokens, but a service listens on unix:.*: restart the cluster"
    ):
        find(f"unix:{tmp_path}/run/scheduler.sock")
    with pytest.raises(InvalidInput, match="address 'nonsense'"):
        find("nonsense")


def test_a_service_that_is_creating_its_tokens_has_not_listened_yet(tmp_path: Path) -> None:
    """Another service may start meanwhile, which must wait and not end."""
    (tmp_path / "secrets").mkdir(mode=0o700)
    with pytest.raises(Unavailable):
        find(f"unix:{tmp_path}/run/scheduler.sock")


def test_without_hard_links_tokens_are_created_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: object, target: object) -> None:
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    folder = SecretsFolder(tmp_path / "secrets")
    folder.make()
    token = folder.token(CallerKind.USER)
    folder.make()
    assert folder.token(CallerKind.USER) == token
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "accepted",
        "node.token",
        "service.token",
        "user.token",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_token_that_belongs_to_another_user_is_refused(folder: SecretsFolder) -> None:
    os.chown(folder.token_file(CallerKind.USER), 65534, 65534)
    with pytest.raises(InvalidInput, match=r"user\.token: the file belongs to user nobody \(65534\)"):
        folder.token(CallerKind.USER)


def test_a_folder_with_a_token_that_others_can_read_is_not_used_by_services(tmp_path: Path) -> None:
    folder = SecretsFolder(tmp_path / "secrets")
    folder.make()
    folder.token_file(CallerKind.NODE).chmod(0o644)
    with pytest.raises(InvalidInput, match=r"node\.token: other users have rights to this file \(mode 0644\)"):
        folder.make()
    folder.token_file(CallerKind.NODE).unlink()  # It may be on another computer.
    folder.make()
    assert not folder.token_file(CallerKind.NODE).exists()
