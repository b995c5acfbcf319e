"""Tests of the choice of the CRIU executable, and of the interpretation of its version and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard._runtime.criu import CriuUnavailableError, binary
from hopyard._runtime.criu.binary import explain, find, look, switched_off

pytestmark = pytest.mark.quick


def test_the_one_that_is_named_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path, private = tmp_path / "bin" / "criu", tmp_path / "private" / "criu"
    for program in (on_path, private):
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setattr(binary, "PRIVATE", private)
    path = {"PATH": str(on_path.parent)}
    assert find("/named", path | {binary.VARIABLE: "/variable"}) == Path("/named")
    assert find("", path | {binary.VARIABLE: "/variable"}) == Path("/variable")
    assert find("", path) == on_path
    assert find("", {"PATH": ""}) == private
    assert find("off", path) is find("", path | {binary.VARIABLE: "off"}) is None
    assert switched_off("off", {})
    assert switched_off("", {binary.VARIABLE: "off"})
    assert not switched_off("/named", {binary.VARIABLE: "off"})


@pytest.mark.merge
def test_what_is_no_criu_is_told(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho 7\n")
    other.chmod(0o755)
    for path in (other, tmp_path / "gone"):
        with pytest.raises(CriuUnavailableError, match=f"{path} is not a CRIU that can be run"):
            look(path)


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (
            "(00.1) Error (criu/vdso.c:293): vdso: Unexpected rt vDSO area bounds\n(00.2) Error (criu/cr-dump.c:2): Dumping FAILED.",
            "this CRIU is too old for this kernel: run deploy/install-criu.sh, which installs a current version into a separate folder "
            "(vdso: Unexpected rt vDSO area bounds; Dumping FAILED.)",
        ),
        (
            "Error (criu/rlimit.c:1): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted\n"
            "Error (criu/page-xfer.c:1): Unable to write: No space left on device",
            "there is no room for the image (Unable to write: No space left on device)",
        ),
        ("Error (criu/x.c:1): something new", "something new"),
        ("Killed", "Killed"),
        ("", "it printed nothing"),
    ],
)
def test_its_errors_are_explained_where_that_is_known(log: str, says: str) -> None:
    assert explain(log) == says
