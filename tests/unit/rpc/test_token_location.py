"""Tests of where a client finds its token."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard._net.auth import CallerKind, SecretsFolder, find_token, new_token
from hopyard._net.auth.credentials import locate_token

pytestmark = pytest.mark.quick

USER = CallerKind.USER


@pytest.fixture
def secrets(tmp_path: Path) -> SecretsFolder:
    folder = SecretsFolder(tmp_path / "data" / "secrets")
    folder.make()
    return folder


def test_a_token_next_to_the_socket_or_in_the_data_directory_has_its_file(secrets: SecretsFolder) -> None:
    data = secrets.path.parent
    other = {"HOPYARD_USER_TOKEN": new_token(USER).text}
    for address, folder in ((f"unix:{data}/run/scheduler.sock", None), ("127.0.0.1:1", data)):
        found = locate_token(USER, address, folder, other)
        assert found.file == secrets.token_file(USER)
        assert found.text == secrets.token(USER)
        assert find_token(USER, address, folder, other) == found.text
        assert found.text not in repr(found)


def test_a_token_in_a_variable_has_no_file_and_takes_precedence_over_the_variable_with_a_file(
    secrets: SecretsFolder,
) -> None:
    token, file = new_token(USER).text, secrets.token_file(USER)
    variables = {"HOPYARD_USER_TOKEN_FILE": str(file)}
    assert locate_token(USER, "127.0.0.1:1", None, variables) == (secrets.token(USER), file)
    assert locate_token(USER, "127.0.0.1:1", None, {**variables, "HOPYARD_USER_TOKEN": token}) == (token, None)
