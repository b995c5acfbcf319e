"""Tests of `hopyard doctor`: each check on simulated hosts, and the text and exit code of the command."""

from __future__ import annotations

import json
import os
import resource
from importlib.metadata import metadata
from pathlib import Path

import pytest

from hopyard._common import extras
from hopyard._runtime.gpus import GpuDevice, GpuInventory
from hopyard._runtime.snapshot_record import CLUSTER_FILE, RECORDS, SnapshotRecord, write_record
from hopyard.cli.doctor import agents, cluster, disk, host, packages
from hopyard.cli.doctor.check_result import Finding, Health, missing, ok, problem
from hopyard.cli.main import run
from hopyard.client import AsyncClient
from hopyard.client.local_cluster.data_dir_lock import DataLock
from hopyard.client.types import ClusterAddresses, Node, NodeState, Slot
from hopyard.errors import Unavailable

pytestmark = pytest.mark.quick


def cgroup(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)
    return folder


def test_cores_with_a_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr("os.getloadavg", lambda: (0.5, 0.0, 0.0))
    found = host.cores(cgroup(tmp_path, cpu_max="150000 100000"))
    assert (found.health, found.detail) == (Health.OK, "4 cores, of which 1.5 may be used (cgroup), load 0.5")
    monkeypatch.setattr("os.getloadavg", lambda: (3.0, 0.0, 0.0))
    assert host.cores(tmp_path).health is Health.PROBLEM
    assert host.cores(cgroup(tmp_path, cpu_max="max 100000")).detail == "4 cores, load 3.0"


def test_memory_and_its_limit(tmp_path: Path) -> None:
    info = tmp_path / "meminfo"
    info.write_text("MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n")
    assert host.memory(info, tmp_path).detail == "4.0 GiB of 8.0 GiB free"
    tight = host.memory(info, cgroup(tmp_path, memory_max="268435456"))
    assert (tight.health, tight.detail) == (Health.PROBLEM, "4.0 GiB of 8.0 GiB free, limit 256.0 MiB (cgroup)")


def test_what_is_not_there_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("hopyard._runtime.criu.binary.PRIVATE", tmp_path / "gone")
    assert (host.criu().health, host.criu().detail) == (Health.MISSING, "not installed")
    assert host.criu().advice.endswith(
        "run deploy/install-criu.sh, which installs a current version into a separate folder"
    )
    assert host.shared_memory(tmp_path / "gone").health is Health.MISSING


def script(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


H100 = GpuDevice(0, "GPU-a", "H100", 80 << 30)
MIG = GpuDevice(1, "MIG-b", "H100 MIG 1g.10gb", 10 << 30, "GPU-b")


@pytest.mark.parametrize(
    ("inventory", "variable", "health", "detail", "advice"),
    [
        (GpuInventory(), None, Health.MISSING, "none (NVML finds no driver of NVIDIA)", "training uses CPUs"),
        (GpuInventory(unsupported=("an AMD GPU",)), None, Health.MISSING, "an AMD GPU", "training uses CPUs"),
        (GpuInventory(problems=("NVML fails",)), None, Health.PROBLEM, "NVML fails", "training uses CPUs"),
        (
            GpuInventory((H100, MIG), True),
            None,
            Health.OK,
            "2: 0 H100, 80.0 GiB; 1 MIG-b H100 MIG 1g.10gb, 10.0 GiB",
            "",
        ),
        (
            GpuInventory((H100, MIG), True),
            "0",
            Health.PROBLEM,  # GPUs of different models and an index, whose order CUDA may read in another way
            "; CUDA_VISIBLE_DEVICES=0 shows 1 of them",
            "CUDA_DEVICE_ORDER",
        ),
        (GpuInventory((H100,), True), "", Health.OK, "CUDA_VISIBLE_DEVICES= shows 0 of them", ""),
        (GpuInventory((H100,), True, ("GPU 1 is lost",)), None, Health.PROBLEM, "1: 0 H100, 80.0 GiB", "GPU 1 is lost"),
    ],
)
def test_gpus_that_are_there_hidden_broken_or_unsupported(
    monkeypatch: pytest.MonkeyPatch,
    inventory: GpuInventory,
    variable: str | None,
    health: Health,
    detail: str,
    advice: str,
) -> None:
    monkeypatch.setattr("hopyard._runtime.gpus.detection.detect", lambda: inventory)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = host.gpus(variable)
    assert found.health is health
    assert found.detail.endswith(detail)
    assert advice in found.advice
    assert bool(found.advice) is bool(advice)


@pytest.mark.merge
@pytest.mark.parametrize(
    ("version", "check", "health", "words"),
    [
        ("4.2.1", "exit 0", Health.OK, "4.2.1 at "),
        ("4.1.1", "exit 0", Health.PROBLEM, "it fails on programs with open network connections"),
        ("3.17.1", "exit 0", Health.PROBLEM, "is CRIU 3.17.1; needs 4.0 or newer: run deploy/install-criu.sh"),
        (
            "4.2",
            "echo 'Error (criu/vdso.c:293): vdso: Unexpected rt vDSO area bounds'; exit 1",
            Health.PROBLEM,
            "this CRIU is too old for this kernel: run deploy/install-criu.sh",
        ),
    ],
)
def test_criu_is_looked_at_closely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, check: str, health: Health, words: str
) -> None:
    monkeypatch.setenv("HOPYARD_CRIU", str(tmp_path / "criu"))
    monkeypatch.setattr("hopyard._runtime.criu.binary._may_restore", lambda: True)
    script(tmp_path, "criu", f'if [ "$1" = check ]; then {check}; fi; echo "Version: {version}"')
    found = host.criu()
    assert found.health is health
    assert words in f"{found.detail} {found.advice}"


@pytest.mark.merge
def test_processes_are_restored_by_root_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPYARD_CRIU", str(tmp_path / "criu"))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    script(tmp_path, "criu", 'echo "Version: 4.2.1"')
    assert (host.criu().health, host.criu().advice[:40]) == (Health.PROBLEM, "only root with CAP_SYS_ADMIN can restore")


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        resource, "getrlimit", lambda which: (256, 512) if which == resource.RLIMIT_NOFILE else (-1, -1)
    )
    found = host.limits()
    assert (found.detail, found.advice) == (
        "256 open files, no limit on processes",
        "raise the open files: ulimit -n 512",
    )


def test_the_data_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert disk.data_folder(data).detail == f"{data} does not exist yet; the first run creates it"
    lock = DataLock.acquire(data, "hopyard run")
    assert "hopyard run (process" in disk.data_folder(data).detail
    lock.release()
    stopped = disk.data_folder(data)
    assert stopped.detail == f"{data}: a stopped cluster"
    assert stopped.advice == f"hopyard experiments --data {data} shows what is in it"
    (tmp_path / "file").write_text("")
    assert disk.data_folder(tmp_path / "file").fails
    assert not disk.data_folder(tmp_path).fails


def test_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"root / ext4 rw 0 0\nhome {tmp_path} nfs4 rw 0 0\n")
    assert disk.file_system(tmp_path / "data", mounts) == "nfs4"
    assert disk.file_system(Path("/usr"), mounts) == "ext4"
    monkeypatch.setattr(disk, "SLOW_SECONDS", 150.0)
    assert [one.health for one in disk.disk(tmp_path / "data")] == [Health.OK, Health.OK]
    monkeypatch.setattr(disk, "LEAST_FREE", 1 << 62)
    monkeypatch.setattr(disk, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(disk, "file_system", lambda folder: "nfs")
    found = disk.disk(tmp_path)
    assert [(one.name, one.health, one.needed) for one in found] == [
        ("disk", Health.PROBLEM, True),
        ("file system", Health.PROBLEM, False),
        ("durable write", Health.PROBLEM, False),
    ]


def test_the_durable_write_has_no_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed doctor leaves nothing in the folder, and another process never sees its file."""
    entries: list[list[Path]] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: entries.append([*tmp_path.iterdir()]))
    disk.disk(tmp_path)
    assert entries
    assert not any(entries)


REQUIREMENTS = [
    "grpcio>=1.71.2",
    "rich>=13.9; extra == 'cli'",
    'hopyard[cli]; extra == "cluster"',
    "a-package-that-is-not-there[fast]>=2,<3 ; extra == 'cluster'",
    "a-second-one>=1; extra == 'plot'",
    "a-third-one>=1; extra == 'plot'",
    "hopyard[cli,cluster,plot,all]; extra == 'all'",
]


def agent_folder(agent: Path, records: dict[str, list[str]], *, missing: str = "") -> Path:
    """Create the data folder of an agent of cluster "one", with records of snapshots that name these clusters."""
    (agent / RECORDS).mkdir(parents=True)
    (agent / "snapshots").mkdir()
    (agent / CLUSTER_FILE).write_text("one\n")
    for sha256, clusters in records.items():
        if sha256 != missing:
            (agent / "snapshots" / sha256).mkdir()
            (agent / "snapshots" / sha256 / "state").write_bytes(bytes(1000))
        for name in clusters:
            write_record(agent / RECORDS, sha256, SnapshotRecord(name, "digits"))
    return agent


def test_local_snapshots_of_another_cluster_are_named(tmp_path: Path) -> None:
    hashes = [digit * 64 for digit in "abcdef"]
    others = {sha256: ["two"] for sha256 in hashes[:4]}
    ours = {hashes[4]: ["one", "two"], hashes[5]: ["one"]}
    agent_folder(tmp_path / "agent", ours)
    agent_folder(tmp_path / "agent-node1", others | ours | {"0" * 64: ["three"], "1" * 64: ["two"]}, missing="1" * 64)
    (tmp_path / "agent.log").touch()
    found = agents.snapshots(tmp_path)
    assert [(one.health, one.detail) for one in found] == [
        (
            Health.PROBLEM,
            f"{tmp_path}/agent-node1: 1 snapshot, 1000 B, belongs to another cluster, three: {'0' * 64}",
        ),
        (
            Health.PROBLEM,
            f"{tmp_path}/agent-node1: 4 snapshots, 3.9 KiB, belong to another cluster, two: {', '.join(hashes[:3])}, ...",
        ),
    ]
    assert all("--adopt" in one.advice and not one.fails for one in found)
    assert agents.snapshots(tmp_path / "agent-node1") == found, "the folder of one agent, as on another computer"
    assert agents.snapshots(tmp_path / "agent") == []
    assert len(list((tmp_path / "agent-node1" / "snapshots").iterdir())) == 7


def test_records_that_cannot_be_read_are_a_finding(tmp_path: Path) -> None:
    agent = agent_folder(tmp_path / "agent", {})
    (agent / RECORDS / f"{'a' * 64}.0").mkdir()
    (found,) = agents.snapshots(tmp_path)
    assert (found.health, found.detail) == (Health.PROBLEM, f"{agent}/{RECORDS}/{'a' * 64}.0: Is a directory")


def test_extras_and_what_they_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "source_folder", lambda: extras.SourceFolder(Path("/src"), True))
    assert packages.extra("cli", REQUIREMENTS) == ok("hopyard[cli]", "the hopyard command", needed=True)
    lacking = packages.extra("cluster", REQUIREMENTS)
    assert (lacking.health, lacking.fails) == (Health.MISSING, True)
    assert lacking.detail == "the hopyard command and all services: not installed: a-package-that-is-not-there"
    assert lacking.advice == "pip install 'a-package-that-is-not-there[fast]>=2,<3'"
    plot = packages.extra("plot", REQUIREMENTS)
    assert plot.detail == "hopyard plot: not installed: a-second-one, a-third-one"
    assert (plot.advice, plot.needed) == ("pip install 'a-second-one>=1' 'a-third-one>=1'", False)
    everything = packages.extra("all", REQUIREMENTS)
    assert everything.detail == "all optional features: not installed: 3 packages"
    assert (everything.advice, everything.needed) == ("pip install -e '/src[all]'", False)


def test_only_the_extras_for_users_are_checked() -> None:
    names = [one.name.removeprefix("hopyard[").removesuffix("]") for one in packages.extras()]
    assert names == list(packages.WHAT)
    others = {"scheduler", "agent", "appstat", "hpgen", "demo", "lunarlander", "dev"}
    assert {*names, *others} == set(metadata("hopyard").get_all("Provides-Extra") or [])
    assert not others & set(names)


@pytest.mark.parametrize(("ahead", "health"), [(0.0, Health.OK), (3600.0, Health.PROBLEM)])
async def test_the_clock_of_a_server(monkeypatch: pytest.MonkeyPatch, ahead: float, health: Health) -> None:
    import time

    async def answer(self: AsyncClient) -> ClusterAddresses:
        return ClusterAddresses(1, "a:1", "9.9", now=time.time() + ahead)

    async def nodes(self: AsyncClient) -> list[Node]:
        return [Node("n", "a:2", NodeState.UP, (Slot("n/0", "n"), Slot("n/1", "n")))]

    monkeypatch.setattr(AsyncClient, "cluster", answer)
    monkeypatch.setattr(AsyncClient, "nodes", nodes)
    server, clocks = await cluster.server("127.0.0.1:1")
    assert server.detail == "127.0.0.1:1: hopyard 9.9, 1 node, 2 slots"
    assert clocks.health is health


async def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(self: AsyncClient) -> ClusterAddresses:
        raise Unavailable("no answer from the cluster")

    monkeypatch.setattr(AsyncClient, "cluster", answer)
    (found,) = await cluster.server("127.0.0.1:1")
    assert (found.fails, found.detail) == (True, "no answer from the cluster")


@pytest.mark.parametrize(
    ("finding", "code", "shown"),
    [
        (ok("disk", "roomy"), 0, "✓ disk                roomy\n"),
        (missing("criu", "none", "install it"), 0, "· criu                none  (missing)\n    install it\n"),
        (problem("disk", "full", "free some"), 0, "! disk                full  (problem)\n    free some\n"),
        (problem("disk", "full", "x", needed=True), 1, "! disk                full  (problem, needed)\n    x\n"),
    ],
)
def test_the_command(
    finding: Finding, code: int, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hopyard.cli.commands.cluster import doctor

    monkeypatch.setattr(doctor, "_look", lambda *_: iter([finding]))
    assert run(["doctor"]) == code
    out, err = capsys.readouterr()
    assert out == shown
    assert err == ("all needed checks passed\n" if code == 0 else "error: failed checks: disk\n")
    assert run(["doctor", "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is (code == 0)
    assert document["findings"][0]["health"] == finding.health.value
