"""Tests that a test that needs a missing system package is skipped with the name of the package, and fails in CI."""

from pathlib import Path

import pytest

from tests.conftest import require_system_package
from tests.plugins import CI_VARIABLE

pytestmark = pytest.mark.quick


def test_a_present_executable_is_found() -> None:
    assert require_system_package("dash", "sh").endswith("/sh")


def test_a_present_file_is_found(tmp_path: Path) -> None:
    assert require_system_package("data", str(tmp_path)) == str(tmp_path)
    with pytest.raises(
        (pytest.skip.Exception, pytest.fail.Exception), match="gone': install the system package 'data'"
    ):
        require_system_package("data", str(tmp_path / "gone"))


def test_a_missing_one_skips_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CI_VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="'no-such-program' on PATH: install the system package 'no-such'"):
        require_system_package("no-such", "no-such-program")


def test_a_missing_one_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CI_VARIABLE, "1")
    with pytest.raises(pytest.fail.Exception, match="a missing system package is a failure"):
        require_system_package("no-such", "no-such-program")
