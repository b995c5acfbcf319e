"""Tests of the synchronous client and of clusters that it starts itself, with processes of the fake cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hopyard import AsyncClient, Client
from hopyard.cli.commands.cluster.supervisor import ClusterServices, reserved_port
from hopyard.client.local_cluster import embedded
from hopyard.client.local_cluster.data_dir_lock import is_locked
from hopyard.client.local_cluster.embedded import EmbeddedCluster
from hopyard.client.local_cluster.processes import ServiceProcess, ServiceSpec, is_serving
from hopyard.client.types import ExperimentState, JobReport
from hopyard.errors import Conflict, TimedOut, Unavailable
from tests.integration.cli.conftest import SPEC
from tests.integration.cli.test_commands import ROOT, _service
from tests.timing import HANG_SECONDS


@pytest.fixture(autouse=True)
def _fake_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "scheduler_service", lambda data, *_: _service("scheduler", data, "scheduler"))
    monkeypatch.setattr(
        embedded,
        "agent_service",
        lambda data, scheduler, slots, node="local", **_: _service("agent", data, "agent"),
    )


def test_a_first_experiment_in_eight_lines(experiment_file: Path, tmp_path: Path) -> None:
    with Client.local(tmp_path / "data", slots=2) as client:
        experiment = client.wait(client.create(experiment_file))
        best = client.best(experiment)
        assert best is not None
        assert best.hyperparameters["layers"] == 3
        assert client.download(experiment, to=tmp_path / "best").position == 8
        assert is_locked(tmp_path / "data")
    assert not is_locked(tmp_path / "data")


def test_the_synchronous_client_has_all_of_the_asynchronous_one(experiment_file: Path, tmp_path: Path) -> None:
    with Client.local(tmp_path / "data") as client:
        created = client.create(experiment_file)
        reports = [change for change in client.watch(created) if isinstance(change, JobReport)]
        assert reports
        for _ in client.watch(created):
            break  # A caller may leave a watch before its end.
        assert client.get(created).state is ExperimentState.COMPLETED
        assert [one.id for one in client.experiments()] == [created.id]
        assert [one.id for one in client.jobs(created)] == ["1", "2", "3"]
        assert client.job(created, "1").position == 8
        assert len(client.curve(created, "1")) == 8
        assert len(client.statistics(created)) == 24
        assert b"".join(chunk.data for chunk in client.logs(created, "1")).startswith(b"job 1")
        assert client.nodes()
        assert client.cluster().version == "0"
        endless = SPEC.replace("name: small", "name: endless")
        second = client.create(endless, folder=experiment_file.parent)
        client.pause(second)
        client.resume(second)
        assert client.stop(second).state is ExperimentState.STOPPED
        assert client.extend(created, jobs=1).state is ExperimentState.RUNNING
        assert len(client.jobs(client.wait(created, timeout=HANG_SECONDS))) == 4
        client.pause(third := client.create(endless, folder=experiment_file.parent))
        with pytest.raises(TimedOut):
            client.wait(third, timeout=0.1)


def test_the_public_clients_have_the_same_methods() -> None:
    from hopyard import AsyncClient

    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(Client) - {"asynchronous"} == public(AsyncClient)


async def test_an_embedded_cluster_says_who_died(tmp_path: Path) -> None:
    cluster = EmbeddedCluster(tmp_path, slots=1)
    try:
        address = await cluster.start()
        assert await is_serving(address, within=HANG_SECONDS)
        with pytest.raises(Conflict, match=f"process {os.getpid()}"):
            await EmbeddedCluster(tmp_path).start()
        agent = next(process for process in cluster._processes if process.service.name == "agent")
        agent.kill()
        with pytest.raises(Unavailable, match=r"agent ended \(signal SIGKILL\)"):
            await cluster.died()
    finally:
        await cluster.stop()
    assert not is_locked(tmp_path)


async def test_a_client_that_is_closed_during_a_watch_ends_the_watch(experiment_file: Path, tmp_path: Path) -> None:
    client = AsyncClient.local(tmp_path / "data")
    client._patience = 0.0
    endless = SPEC.replace("name: small", "name: endless")
    changes = client.watch(await client.create(endless, folder=experiment_file.parent))
    await anext(changes)

    async def rest() -> None:
        async for _ in changes:
            pass

    watch = asyncio.create_task(rest())
    await asyncio.sleep(0.1)
    await client.close()
    done, _ = await asyncio.wait((watch,), timeout=HANG_SECONDS)
    assert done
    assert watch.cancelled() or isinstance(watch.exception(), Unavailable)


async def test_a_service_that_never_serves_is_given_up(tmp_path: Path) -> None:
    sleeper = tmp_path / "sleeper.py"
    sleeper.write_text("import sys, time\nsys.stderr.write('thinking\\n')\nsys.stderr.flush()\ntime.sleep(3600)\n")
    service = ServiceSpec("sleeper", "sleeper", (), tmp_path, "sleeper", {"PYTHONPATH": str(tmp_path)})
    process = ServiceProcess(service, tmp_path / "logs")
    await process.start()
    for _ in _until(HANG_SECONDS):
        if "thinking" in process.log.read_text():
            break
    with pytest.raises(TimedOut, match=r"sleeper did not serve within 0.5 s; the end of .*\n  thinking"):
        await process.ready(limit=0.5)
    await process.stop(grace=HANG_SECONDS)
    assert not process.running


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_a_killed_parent_leaves_no_services_behind(tmp_path: Path) -> None:
    script = (
        "import asyncio, os, signal, sys\nfrom pathlib import Path\n"
        "from hopyard.client.local_cluster.processes import ServiceProcess\n"
        "from tests.integration.cli.test_commands import _service\n"
        "data = Path(sys.argv[1])\n"
        "async def main():\n"
        "    process = ServiceProcess(_service('scheduler', data, 'scheduler'), data / 'logs')\n"
        "    await process.start()\n    await process.ready()\n"
        "    print(process.pid, flush=True)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    child = int(done.stdout)
    for _ in _until(HANG_SECONDS):
        try:
            # A zombie that its parent has not reaped counts as ended.
            if "Z" in Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]:
                return
        except FileNotFoundError:
            return
    pytest.fail(f"process {child} still lives")


async def test_up_restarts_what_dies_at_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    again = asyncio.Event()

    def note(line: str) -> None:
        notes.append(line)
        if "serves again" in line:
            again.set()

    monkeypatch.setattr(ClusterServices, "_service", lambda self, name, arguments: _service(name, self.data, name))
    monkeypatch.setattr(
        "hopyard.cli.commands.cluster.supervisor.agent_service",
        lambda data, scheduler, slots, node, **_: _service(f"agent-{node}", data, "agent"),
    )
    cluster = ClusterServices(tmp_path, agents=2, slots=1, note=note)
    keeping = None
    try:
        address = await cluster.start()
        assert [row[0] for row in cluster.status()] == ["appstat", "hpgen", "scheduler", "agent-node1", "agent-node2"]
        keeping = asyncio.create_task(cluster.keep())
        scheduler = cluster.supervisors[2]
        first = scheduler.process.pid
        scheduler.process.kill()
        async with asyncio.timeout(HANG_SECONDS):
            await again.wait()
        assert scheduler.process.pid != first
        assert scheduler.process.address == address
        assert await is_serving(address, within=HANG_SECONDS)
        assert "scheduler ended (signal SIGKILL); restarting it in" in notes[0]
    finally:
        if keeping is not None:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        await cluster.stop()
    assert not is_locked(tmp_path)


def test_a_port_is_reserved_for_a_service_that_is_down() -> None:
    reserved = reserved_port("127.0.0.1")
    assert reserved is not None
    with reserved:
        port = reserved.getsockname()[1]
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with socket.socket() as service:
            service.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            service.bind(("127.0.0.1", port))
            service.listen()
            assert reserved_port("127.0.0.1", port) is None
    assert reserved_port("no such host") is None


def _until(seconds: float) -> Iterator[None]:
    import time

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.02)
