"""Tests of `hopyard connection`, against a cluster whose services are processes of the fake cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hopyard._net.auth import CallerKind, SecretsFolder, new_token
from hopyard.cli.main import run
from hopyard.client import AsyncClient
from hopyard.client.types import ClusterAddresses
from tests.integration.cli.test_commands import _fake_services
from tests.integration.cli.test_commands import _Serving as Serving

__all__ = ["_fake_services"]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOPYARD_USER_TOKEN", "HOPYARD_USER_TOKEN_FILE"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def data(tmp_path: Path, _fake_services: None) -> Iterator[Path]:
    """The data directory of a running cluster."""
    with Serving(tmp_path / "data"):
        yield tmp_path / "data"


@pytest.fixture
def distant(data: Path, tmp_path: Path) -> str:
    """An address of the cluster without tokens next to it."""
    folder = tmp_path / "distant"
    folder.mkdir()
    (folder / "s.sock").symlink_to(data / "run" / "scheduler.sock")
    return f"unix:{folder / 's.sock'}"


def test_it_shows_targets_and_the_token_file(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = f"unix:{data}/run/scheduler.sock"
    file = data / "secrets" / "user.token"
    for option in (["--data", str(data)], ["--server", target]):
        assert run(["connection", "--json", *option]) == 0
        assert json.loads(capsys.readouterr().out) == {
            "target": target,
            "appstat_target": target,
            "token_file": str(file),
            "appstat_token_file": str(file),
            "encrypted": False,
        }
        assert run(["connection", *option]) == 0
        out, error = capsys.readouterr()
        assert error == ""
        lines = dict(line.split(maxsplit=1) for line in out.splitlines())
        assert (lines["scheduler"], lines["AppStat"], lines["token"]) == (target, target, str(file))
        assert lines["header"].startswith("authorization: Bearer TOKEN ")
        assert lines["encrypted"] == "no (a Unix socket on this computer)"
        assert file.read_text().strip() not in out


def test_a_token_in_a_variable_has_no_file_and_is_not_shown(
    data: Path, distant: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = data / "secrets" / "user.token"
    token = file.read_text().strip()
    monkeypatch.setenv("HOPYARD_USER_TOKEN_FILE", str(file))
    assert run(["connection", "--server", distant, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["token_file"] == str(file)
    monkeypatch.setenv("HOPYARD_USER_TOKEN", token)
    assert run(["connection", "--server", distant, "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["token_file"] is None
    assert run(["connection", "--server", distant]) == 0
    out += capsys.readouterr().out
    assert "the variable HOPYARD_USER_TOKEN\n" in out
    assert token not in out


def test_appstat_with_its_own_data_directory_has_its_own_token(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = SecretsFolder(tmp_path / "appstat" / "secrets")
    own.make()

    async def cluster(self: AsyncClient) -> ClusterAddresses:
        return ClusterAddresses(1, f"unix:{tmp_path}/appstat/run/appstat.sock", "0")

    monkeypatch.setattr(AsyncClient, "cluster", cluster)
    assert run(["connection", "--data", str(data), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["token_file"] == str(data / "secrets" / "user.token")
    assert found["appstat_token_file"] == str(tmp_path / "appstat" / "secrets" / "user.token")
    assert run(["connection", "--data", str(data)]) == 0
    assert f"AppStat's token  {tmp_path}/appstat/secrets/user.token\n" in capsys.readouterr().out


def test_without_a_cluster_there_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, error in (
        (["--data", str(tmp_path / "none")], f"no cluster runs in {tmp_path}/none; start one with "),
        (["--server", f"unix:{tmp_path}/run/scheduler.sock"], "no service has listened on "),
        (["--server", "127.0.0.1:1"], "there is no token for the service at 127.0.0.1:1: set HOPYARD_USER_TOKEN_FILE "),
    ):
        assert run(["connection", *option]) == 1, option
        out, said = capsys.readouterr()
        assert out == ""
        assert said.startswith(f"error: {error}")
        assert said.count("\n") == 1


def test_a_token_that_the_cluster_does_not_accept_is_an_error(
    distant: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOPYARD_USER_TOKEN", new_token(CallerKind.USER).text)
    assert run(["connection", "--server", distant]) == 1
    out, said = capsys.readouterr()
    assert out == ""
    assert said.startswith(f"error: {distant}: this call needs a valid token")
    assert "it is in the variable HOPYARD_USER_TOKEN: replace it by a copy of secrets/user.token" in said
