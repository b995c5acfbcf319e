"""Tests of damaged code on a node: it is repaired before a process starts, or the run is refused as a failure of the infrastructure."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hopyard._runtime.bundle import pack
from hopyard._runtime.untrusted.unpacked_bundle import UnpackedBundle
from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.bundles import Bundles, CodeMissing
from tests.damage import in_turn, replace_by_pipe
from tests.integration.nodeagent.cluster import Cluster
from tests.kill_at_step import killed_at_each_step

KEY = RunKey(StreamId("e1"), "j1", 1, 0)
NEXT = RunKey(StreamId("e1"), "j2", 1, 0)


def code(cluster: Cluster) -> Path:
    return cluster.folder / "a" / ".bundles" / cluster.bundle


def packed(cluster: Cluster) -> Path:
    return code(cluster).with_name(f"{cluster.bundle}.packed")


async def trained(cluster: Cluster, key: RunKey) -> None:
    """Show that a run trains with the recorded code."""
    cluster.start(key, until=1, completes=True)
    assert (await cluster.scheduler.ended(key)).reason == common_pb2.RUN_END_REASON_UNTIL


def edit(file: Path) -> None:
    file.chmod(0o600)
    file.write_text(file.read_text().replace('{"x": self.x', '{"x": 77.0 + self.x'))
    file.chmod(0o400)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "edited": (lambda folder: edit(folder / "train.py"), "train.py: "),
    "missing": (lambda folder: (folder / "train.py").unlink(), "train.py: is missing"),
    "added": (
        lambda folder: (folder / "random.py").write_text("raise SystemExit('another module')"),
        "random.py: is a file that the code does not have",
    ),
    "link": (
        in_turn(
            lambda folder: (folder / "train.py").unlink(), lambda folder: (folder / "train.py").symlink_to("/dev/null")
        ),
        "train.py: is a link to /dev/null, recorded is a file",
    ),
    "pipe": (
        lambda folder: replace_by_pipe(folder / "train.py"),
        "train.py: is a device, a pipe or a socket, recorded is a file",
    ),
    "mode": (lambda folder: (folder / "train.py").chmod(0o666), "train.py: its mode is 666, recorded is 400"),
}


@pytest.mark.parametrize("kind", DAMAGES)
async def test_damaged_code_is_repaired_without_the_store_and_named_in_the_log(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    await cluster.agent()
    await trained(cluster, KEY)
    harm, said = DAMAGES[kind]
    harm(code(cluster))
    await cluster.agents["a"].stop()  # A new agent has no process that has imported the code already.
    cluster.store.available = False
    with caplog.at_level(logging.WARNING, logger="hopyard_nodeagent.bundles"):
        await cluster.agent()
        await trained(cluster, NEXT)
    lines = [record.getMessage() for record in caplog.records if record.name == "hopyard_nodeagent.bundles"]
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"code bundle {cluster.bundle} was damaged on this disk and is repaired: {said}")


async def test_a_warm_process_gets_only_verified_code(cluster: Cluster) -> None:
    await cluster.agent()
    await trained(cluster, KEY)
    edit(code(cluster) / "train.py")
    await trained(cluster, NEXT)
    assert "77.0 +" not in (code(cluster) / "train.py").read_text()


async def test_byte_code_of_another_source_is_not_executed(cluster: Cluster) -> None:
    await cluster.agent()
    await trained(cluster, KEY)
    await cluster.agents["a"].stop()
    cached = code(cluster) / "__pycache__" / f"train.{sys.implementation.cache_tag}.pyc"
    cached.parent.mkdir(exist_ok=True)
    cached.unlink(missing_ok=True)
    other = cluster.folder / "train.py"
    other.write_text("raise SystemExit('the byte code of another source')\n")
    source = code(cluster) / "train.py"
    status = source.stat()
    external: Any = importlib.import_module("importlib._bootstrap_external")
    compiled = compile(other.read_text(), str(source), "exec")
    cached.write_bytes(external._code_to_timestamp_pyc(compiled, int(status.st_mtime), status.st_size))
    await cluster.agent()
    await trained(cluster, NEXT)


async def test_damage_of_both_copies_is_repaired_from_the_store(cluster: Cluster) -> None:
    await cluster.agent()
    await trained(cluster, KEY)
    edit(code(cluster) / "train.py")
    packed(cluster).chmod(0o600)
    packed(cluster).write_bytes(packed(cluster).read_bytes()[:100])
    await trained(cluster, NEXT)
    assert "77.0 +" not in (code(cluster) / "train.py").read_text()
    assert len(packed(cluster).read_bytes()) == len(cluster.store.blobs[cluster.bundle])


async def test_code_that_is_nowhere_refuses_the_run_at_once_and_new_code_continues(cluster: Cluster) -> None:
    await cluster.agent()
    data = cluster.store.blobs.pop(cluster.bundle)
    cluster.start(KEY)
    ended = await cluster.scheduler.ended(KEY)
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_LOST, common_pb2.FAILURE_CLASS_INFRASTRUCTURE)
    assert ended.code_missing
    assert ended.message.startswith(f"code bundle {cluster.bundle} is neither on this node nor in the store: ")
    cluster.store.blobs[cluster.bundle] = data
    await trained(cluster, NEXT)


async def test_damaged_code_without_another_copy_is_never_executed(cluster: Cluster) -> None:
    await cluster.agent()
    await trained(cluster, KEY)
    edit(code(cluster) / "train.py")
    packed(cluster).unlink()
    cluster.store.blobs[cluster.bundle] = cluster.store.blobs[cluster.bundle][:-1]
    cluster.start(NEXT)
    ended = await cluster.scheduler.ended(NEXT)
    assert (ended.reason, ended.code_missing) == (common_pb2.RUN_END_REASON_LOST, True)
    assert cluster.scheduler.reports(NEXT) == []


async def test_a_store_that_is_away_is_not_missing_code(cluster: Cluster) -> None:
    await cluster.agent()
    cluster.store.available = False
    cluster.start(KEY)
    ended = await cluster.scheduler.ended(KEY)
    assert (ended.reason, ended.code_missing) == (common_pb2.RUN_END_REASON_LOST, False)


class Store:
    """A store that has one bundle, and answers when it may."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def get(self, sha256: str, target: Path) -> int:
        await asyncio.to_thread(target.write_bytes, self.data)
        return len(self.data)


def unpack(folder: Path, sha256: str) -> None:
    """Unpack a bundle, or repair it."""
    asyncio.run(Bundles(folder, None).folder(sha256))  # type: ignore[arg-type]


def damage(folder: Path) -> None:
    (folder / "train.py").unlink()
    (folder / "lib" / "part.py").chmod(0o600)
    (folder / "lib" / "deep" / "other.py").unlink()
    (folder / "lib" / "deep").rmdir()
    (folder / "lib" / "deep").symlink_to("/nowhere")


@pytest.mark.parametrize("damaged", [False, True], ids=["unpacking", "repair"])
async def test_a_kill_at_any_step_leaves_nothing_half_done(tmp_path: Path, damaged: bool) -> None:
    files = {"train.py": b"x = 1\n", "lib/part.py": b"y = 2\n", "lib/deep/other.py": b"z = 3\n"}
    made = pack(None, extra=files)
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    (prepared / f"{made.sha256}.packed").write_bytes(made.data)
    if damaged:
        damage(await Bundles(prepared, Store(b"")).folder(made.sha256))  # type: ignore[arg-type]
    copies = await asyncio.to_thread(killed_at_each_step, unpack, prepared, made.sha256)
    assert len(copies) > 8, "the kills must have hit"
    for copy in copies:
        code = await Bundles(copy, Store(b"")).folder(made.sha256)  # type: ignore[arg-type]
        found = {str(path.relative_to(code)): path.read_bytes() for path in code.rglob("*") if path.is_file()}
        assert found == files


async def test_a_bundle_that_another_process_keeps_damaging_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pack(None, extra={"train.py": b"x = 1\n"})
    bundles = Bundles(tmp_path, Store(made.data))  # type: ignore[arg-type]
    folder = await bundles.folder(made.sha256)
    original = UnpackedBundle.repair

    def repair(code: UnpackedBundle, *arguments: object) -> None:
        original(code, *arguments)  # type: ignore[arg-type]
        (folder / "train.py").unlink()

    (folder / "train.py").unlink()
    monkeypatch.setattr(UnpackedBundle, "repair", repair)
    with pytest.raises(CodeMissing, match=r"train\.py: is missing"):
        await bundles.folder(made.sha256)


async def test_a_command_gets_the_recorded_files_and_nothing_else(cluster: Cluster) -> None:
    await cluster.agent()
    await trained(cluster, KEY)
    (code(cluster) / "left.bin").write_bytes(b"left by a program")
    edit(code(cluster) / "train.py")
    look = "import os; print(sorted(os.listdir('.'))); print('edited', open('train.py').read().count('77.0 +')); print('acc=1')"
    command = wire.CommandLine(arguments=[sys.executable, "-c", look])
    program = wire.RunProgram(
        bundle=cluster.bundle,
        log=wire.LogProgram(command=command, metrics={"acc": "acc=([0-9]+)"}, metric="acc"),
        snapshot_provider="framework",
    )
    start = wire.StartRun(slot="a/0", program=program, world=1, allowed=9)
    cluster.scheduler.send("a", NEXT, start=start)
    await cluster.scheduler.ended(NEXT)
    log = cluster.log("a", NEXT)
    assert "['broken.py', 'train.py']" in log
    assert "edited 0" in log
