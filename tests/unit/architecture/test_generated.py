"""The committed stubs are what the contracts generate, and the contracts keep buf's rules."""

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


def test_contracts_keep_the_rules_of_buf() -> None:
    buf = Path(sys.executable).parent / "buf"
    if not buf.exists():
        pytest.skip("buf is not installed: .[dev]")
    done = subprocess.run([str(buf), "lint"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_contracts_are_proto3() -> None:
    """C++ users have protoc 3.21, which knows no editions."""
    protos = sorted((ROOT / "protos" / "hopyard" / "v1").glob("*.proto"))
    assert protos
    assert [path.name for path in protos if 'syntax = "proto3";' not in path.read_text()] == []
