"""Tests that the committed stubs equal the generated ones, and that the contracts follow buf's rules."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.unit.architecture.tree import ROOT

SCRIPT = ROOT / "scripts" / "generate_protos.py"
STUBS = ROOT / "sdk" / "python"

needs_compiler = pytest.mark.skipif(find_spec("grpc_tools") is None, reason="grpcio-tools is not installed: .[dev]")


def check(target: Path, protos: Path = ROOT / "protos") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--check", f"--protos={protos}", f"--target={target}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@needs_compiler
def test_committed_stubs_equal_a_regeneration() -> None:
    done = check(STUBS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_type_variable_of_a_stub_is_a_choice_of_types() -> None:
    """Check that type variables have bounds: choices would double a type checker's time with each further method of a service."""
    stubs = "".join(path.read_text() for path in (STUBS / "hopyard" / "v1").glob("*_pb2_grpc.pyi"))
    assert 0 < stubs.count("_extensions.TypeVar(") == stubs.count(",\n    bound=")


@needs_compiler
def test_a_stale_a_missing_and_a_left_over_stub_are_named(tmp_path: Path) -> None:
    stubs = tmp_path / "hopyard" / "v1"
    shutil.copytree(STUBS / "hopyard" / "v1", stubs)
    with (stubs / "common_pb2.pyi").open("a") as file:
        file.write("# edited by hand\n")
    (stubs / "common_pb2.py").unlink()
    (stubs / "gone_pb2.py").write_text("")
    done = check(tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines()[:3] == [
        "missing: common_pb2.py",
        "left over: gone_pb2.py",
        "differs: common_pb2.pyi",
    ]


@needs_compiler
def test_a_proto_that_does_not_compile_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "hopyard" / "v1").mkdir(parents=True)
    (tmp_path / "hopyard" / "v1" / "broken.proto").write_text('syntax = "proto3";\nmessage {')
    done = check(STUBS, protos=tmp_path)
    assert done.returncode == 1
    assert "broken.proto:2" in done.stderr


def buf(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "buf"
    if not program.exists():
        pytest.skip("buf is not installed: .[dev]")
    return subprocess.run([str(program), *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_contracts_keep_the_rules_of_buf() -> None:
    done = buf("lint")
    assert done.returncode == 0, done.stdout + done.stderr


def test_contracts_break_nothing_that_was_released() -> None:
    done = buf("breaking", "--against", "protos/released.binpb")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("application.proto", "  double lease_seconds = 7;\n", "", 'field "7" with name "lease_seconds"'),
        ("application.proto", "double lease_seconds = 7;", "float lease_seconds = 7;", "lease_seconds"),
        ("common.proto", "int64 position = 1;", "int64 position = 99;", "position"),
        ("common.proto", "  RUN_MODE_PROFILE = 3;\n", "", 'enum value "3"'),
        ("policy.proto", "service PolicyService", "service PoliciesService", 'service "PolicyService"'),
        ("policy.proto", "service PolicyService", "message Another {}\n\nservice PolicyService", ""),
    ],
)
def test_a_change_that_breaks_what_was_released_is_seen(
    tmp_path: Path, file: str, old: str, new: str, says: str
) -> None:
    shutil.copytree(ROOT / "protos", tmp_path / "protos")
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    proto = tmp_path / "protos" / "hopyard" / "v1" / file
    text = proto.read_text()
    assert old in text
    proto.write_text(text.replace(old, new, 1))
    done = buf("breaking", "--against", "protos/released.binpb", folder=tmp_path)
    assert (done.returncode != 0) == bool(says)
    assert says in done.stdout


def test_a_release_takes_over_additions_and_refuses_what_breaks(tmp_path: Path) -> None:
    buf("--version")  # Skips the test where buf is not installed.
    for name in ("protos", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    proto, released = tmp_path / "protos/hopyard/v1/common.proto", tmp_path / "protos/released.binpb"
    text, before = proto.read_text(), released.read_bytes()

    def release() -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "VENV": str(Path(sys.executable).parents[1])}
        return subprocess.run(
            ["sh", "scripts/release_protos.sh"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    proto.write_text(text.replace("  double seconds = 3;", ""))
    done = release()
    assert (done.returncode != 0, released.read_bytes()) == (True, before), done.stdout
    proto.write_text(text + "\nmessage Another {}\n")
    done = release()
    assert (done.returncode, released.read_bytes() != before) == (0, True), done.stdout + done.stderr
    proto.write_text(text)
    assert 'message "Another" was deleted' in buf("breaking", "--against", str(released), folder=tmp_path).stdout


def test_all_contracts_are_proto3() -> None:
    """Check the syntax of each contract: C++ users have protoc 3.21, which does not know editions."""
    protos = sorted((ROOT / "protos" / "hopyard" / "v1").glob("*.proto"))
    assert protos
    assert [path.name for path in protos if 'syntax = "proto3";' not in path.read_text()] == []
