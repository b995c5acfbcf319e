"""Tests of docs/clients.md: its clients in other languages list the experiments of a cluster. tests/docs runs the rest of the page."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from tests.conftest import require_grpcurl, require_system_package
from tests.docs.pages import ROOT, Block, read_page
from tests.integration.policy_process.rig import node_policy
from tests.integration.scheduler.conftest import address, client, experiment
from tests.timing import HANG_SECONDS

__all__ = ["address", "client", "node_policy"]

pytestmark = pytest.mark.timeout(600)

PAGE = "docs/clients.md"
_STUBS = (("protobuf-compiler", "protoc"), ("protobuf-compiler-grpc", "grpc_ruby_plugin"))
_PACKAGES = {
    "ruby": (("ruby", "ruby"), ("ruby-grpc", "/usr/share/doc/ruby-grpc"), *_STUBS),
    "cpp": (("g++", "g++"), ("pkg-config", "pkg-config"), ("libgrpc++-dev", "/usr/include/grpcpp/grpcpp.h"), *_STUBS),
}


@pytest.fixture
async def folder(address: str, client: AsyncClient, tmp_path: Path) -> tuple[Path, str]:
    """A folder with `protos`, the files of the page and the connection to a cluster; and the id of the cluster's experiment."""
    created = await client.create(experiment(tmp_path / "code"))
    found = tmp_path / "page"
    found.mkdir()
    (found / "protos").symlink_to(ROOT / "protos")
    for block in _blocks():
        if block.file:
            (found / block.file).write_text(block.text)
    await _ran(found, f"hopyard connection --server {address} --json > connection.json")
    return found, created.id


def _blocks() -> list[Block]:
    return read_page((ROOT / PAGE).read_text(), PAGE)


def _commands(file: str) -> str:
    """Return the commands that the page has for a file: the first block in bash from the file on that is not run by tests/docs."""
    blocks = _blocks()
    first = next(number for number, block in enumerate(blocks) if block.file == file)
    return next(block.commands for block in blocks[first:] if block.language == "bash" and "not run" in block.marks)


async def _ran(folder: Path, script: str, **variables: str) -> str:
    """Run a script in a folder and return its output. It must exit with code 0."""
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOPYARD_")}
    done = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**environment, "PATH": places, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * HANG_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_javascript(folder: tuple[Path, str], node_policy: Path) -> None:
    where, name = folder
    said = await _ran(where, _commands("list.js"), NODE_PATH=str(node_policy / "node_modules"))
    assert said == f"{name} counting\n"


async def test_ruby(folder: tuple[Path, str]) -> None:
    for package, wanted in _PACKAGES["ruby"]:
        require_system_package(package, wanted)
    where, name = folder
    assert await _ran(where, _commands("list.rb")) == f"{name} counting\n"


@pytest.mark.nightly  # The compiler needs 25 s of CPU time.
async def test_cpp(folder: tuple[Path, str]) -> None:
    for package, wanted in _PACKAGES["cpp"]:
        require_system_package(package, wanted)
    where, name = folder
    assert await _ran(where, _commands("list.cc")) == f"{name} counting\n"


async def test_grpcurl(folder: tuple[Path, str]) -> None:
    require_grpcurl()
    where, name = folder
    assert f'"id": "{name}"' in await _ran(where, _commands("grpcurl.sh"))
