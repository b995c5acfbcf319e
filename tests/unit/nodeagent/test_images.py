"""Tests of the choice of the runs that are started so that their processes can be dumped."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard._runtime.criu import CriuUnavailableError
from hopyard._runtime.criu.binary import Criu
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.runs.launch_spec import ProgramRefused
from hopyard_nodeagent.snapshots import process_images
from hopyard_nodeagent.snapshots.process_images import ProcessImages

pytestmark = pytest.mark.quick

HOME = "home-of-no-agent"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Replaces the check of CRIU, which succeeds unless the executable is named "none". Provides the names of all checks."""
    monkeypatch.setattr(process_images, "MEMORY", tmp_path)
    found: list[str] = []

    def checked(named: str) -> Criu:
        found.append(named)
        if named == "none":
            raise CriuUnavailableError("no CRIU is installed here")
        return Criu(Path(named), (4, 2, 1))

    monkeypatch.setattr(process_images, "_checked", checked)
    return found


def start(
    *command: str, provider: str = "auto", snapshot: str = "", log: bool = False, world: int = 1
) -> wire.StartRun:
    program = wire.RunProgram(snapshot_provider=provider)
    line = wire.CommandLine(arguments=command)
    if log:
        program.log.CopyFrom(wire.LogProgram(command=line))
    else:
        program.command.CopyFrom(line)
    made = wire.StartRun(program=program, world=world)
    if snapshot:
        made.snapshot.CopyFrom(common_pb2.Snapshot(provider=snapshot))
    return made


@pytest.mark.parametrize(
    ("made", "gpus", "dumpable"),
    [
        (start("python", "train.py"), False, True),
        (start("/opt/net/bin/python3.12", "train.py"), False, True),
        # A program that is not Python may use gRPC itself for its agent.
        (start("./train"), False, False),
        (start("torchrun", "train.py"), False, False),
        # The job already has a checkpoint of its program.
        (start("python", "train.py", snapshot="framework"), False, False),
        (start("python", "train.py", snapshot="criu"), True, True),
        (start("python", "train.py"), True, False),
        (start("python", "train.py", world=2), False, False),
        (start("python", "train.py", provider="framework"), False, False),
        (start("./train", provider="criu"), True, True),
        (start("./train", log=True), False, True),
        (start("./train", log=True, provider="framework"), False, False),
    ],
)
async def test_who_is_started_so_that_it_can_be_dumped(
    looks: list[str], tmp_path: Path, made: wire.StartRun, gpus: bool, dumpable: bool
) -> None:
    host = await ProcessImages("criu", HOME, 0).host(made, tmp_path, gpus)
    assert (host is not None) == dumpable == bool(looks)


async def test_who_leaves_it_open_looks_once_for_what_is_not_there(looks: list[str], tmp_path: Path) -> None:
    found = ProcessImages("none", HOME, 0)
    for _ in range(3):
        assert await found.host(start("python", "train.py"), tmp_path) is None
    assert len(looks) == 1
    with pytest.raises(ProgramRefused, match="cannot be used on this node: no CRIU is installed here"):
        await found.host(start("python", "train.py", provider="criu"), tmp_path)
    with pytest.raises(CriuUnavailableError):
        await found.host(start("python", "train.py", snapshot="criu"), tmp_path)
