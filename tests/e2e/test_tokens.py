"""Tests of tokens in a real cluster: where they are, and what each kind of caller can do with them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from hopyard import errors
from hopyard._net.auth import CallerKind, SecretsFolder, new_token
from hopyard._net.rpc import channel
from hopyard._net.server.socket_folder import SocketFolder
from hopyard.client import Client
from hopyard.v1 import (
    application_pb2,
    application_pb2_grpc,
    appstat_pb2,
    appstat_pb2_grpc,
    experiment_pb2,
    experiment_pb2_grpc,
    resource_manager_pb2,
    resource_manager_pb2_grpc,
)
from tests.e2e.harness import softmax_file
from tests.e2e.up import IS_UP, Up
from tests.timing import HANG_SECONDS

TOKEN = re.compile(rb"hop_(user|node|service|policy|run|ticket)_[0-9A-Za-z]")
PROGRAM = """
import os, sys, time
import hopyard
with open("environment", "w") as file:
    file.write(repr(dict(os.environ)))
os.rename("environment", os.environ["HOME"] + "/environment")
while not os.path.exists(os.environ["HOME"] + "/gate"):
    time.sleep(0.01)
hopyard.report(loss=1.0)
"""


def experiment(folder: Path, **changes: Any) -> Path:
    """Write an experiment whose program writes its environment into its home, and ends when the test creates `gate` there."""
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(PROGRAM)
    spec = {
        "name": "tokens",
        "command": ["python", "train.py"],
        "metric": {"name": "loss", "mode": "min"},
        "space": {"x": {"choice": [1]}},
        "generator": "grid",
        "stop": {"max_iterations": 1},
        "snapshot": {"provider": "framework"},
        **changes,
    }
    (folder / "experiment.yaml").write_text(yaml.safe_dump(spec))
    return folder / "experiment.yaml"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def up(tmp_path: Path, home: Path) -> Iterator[Up]:
    running = Up(tmp_path / "data")
    try:
        running.wait_for(IS_UP)
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()


def address(up: Up, data: Path, name: str) -> str:
    return (data / f"{name}.address").read_text().strip()


def training_process(up: Up, home: Path) -> tuple[int, dict[str, str]]:
    """Wait for the program, and return its process id and the environment with which it was started."""
    until = time.monotonic() + HANG_SECONDS
    while not (home / "environment").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    for process in psutil.Process(up.process.pid).children(recursive=True):
        if process.cmdline()[-1:] == ["train.py"]:
            return process.pid, process.environ()
    raise AssertionError("no training process")


@pytest.mark.timeout(300)
def test_tokens_are_in_no_log_record_argument_or_other_environment(up: Up, home: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    serve = [sys.executable, "-m", "hopyard.cli.main", "policy", "serve", "default"]
    file = experiment(tmp_path / "code", policy={"command": serve})
    with Client(server=up.server, patience=HANG_SECONDS) as client:
        made = client.create(file)
        pid, environment = training_process(up, home)
        tokens = {name for name, value in environment.items() if TOKEN.search(value.encode())}
        assert tokens == {"HOPYARD_TOKEN"}
        assert environment["HOPYARD_TOKEN"].startswith("hop_run_")
        family = psutil.Process(up.process.pid).children(recursive=True)
        assert pid in {process.pid for process in family}
        policies = [process for process in family if "policy" in process.cmdline() and "serve" in process.cmdline()]
        assert len(policies) == 1
        assert policies[0].environ()["HOPYARD_POLICY_TOKEN"].startswith("hop_policy_")
        for process in family:
            assert not TOKEN.search("\0".join(process.cmdline()).encode()), process.cmdline()
        (home / "gate").touch()
        client.wait(made, HANG_SECONDS)
        logs = b"".join(chunk.data for chunk in client.logs(made, "1"))
        export = client.export_experiment(made, tmp_path / "export.hopyard")
    assert not TOKEN.search(logs)
    assert not TOKEN.search(export.file.read_bytes())
    up.stop()
    assert not TOKEN.search("".join(up.said).encode())
    searched = 0
    for path in data.rglob("*"):
        if path.is_file() and path.parent != data / "secrets":
            searched += 1
            assert not TOKEN.search(path.read_bytes()), path
    assert searched > 10
    assert {path.name for path in (data / "secrets").iterdir() if TOKEN.search(path.read_bytes())} == {
        "user.token",
        "node.token",
        "service.token",
    }


@pytest.mark.timeout(300)
def test_a_training_process_can_call_its_agent_only_and_only_while_it_lives(up: Up, home: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Client(server=up.server, patience=HANG_SECONDS) as client:
        made = client.create(experiment(tmp_path / "code"))
        _, environment = training_process(up, home)
        agent, token = environment["HOPYARD_AGENT"], environment["HOPYARD_TOKEN"]
        sockets = {f"unix:{SocketFolder(folder).path}/application.sock" for folder in data.glob("agent-*")}
        assert agent in sockets
        others = sockets - {agent}
        assert len(others) == 1

        async def attack() -> None:
            async with channel(up.server, token=token) as opened:
                scheduler: Any = experiment_pb2_grpc.ExperimentServiceStub(opened)
                resources: Any = resource_manager_pb2_grpc.ResourceManagerServiceStub(opened)
                for call in (
                    scheduler.ListExperiments(experiment_pb2.ListExperimentsRequest()),
                    scheduler.CreateExperiment(experiment_pb2.CreateExperimentRequest(spec="x", request_id="x")),
                    resources.IssueTicket(resource_manager_pb2.IssueTicketRequest(method="GetStatus")),
                    resources.AgentSession(hello()).read(),
                ):
                    with pytest.raises(errors.Unauthenticated):
                        await call
            async with channel(address(up, data, "appstat"), token=token) as opened:
                store: Any = appstat_pb2_grpc.AppStatServiceStub(opened)
                with pytest.raises(errors.Unauthenticated):
                    await store.DeleteBlobs(appstat_pb2.DeleteBlobsRequest())
            await refused(others.pop(), token)

        asyncio.run(attack())
        (home / "gate").touch()
        client.wait(made, HANG_SECONDS)
    asyncio.run(refused(agent, token))


async def hello() -> AsyncIterator[resource_manager_pb2.AgentSessionRequest]:
    yield resource_manager_pb2.AgentSessionRequest(hello=resource_manager_pb2.AgentHello(node="node1", incarnation="x"))


async def refused(agent: str, token: str) -> None:
    """Show that an agent accepts a token no more; the process may take some time to end."""

    async def requests() -> AsyncIterator[application_pb2.AttachRequest]:
        yield application_pb2.AttachRequest(hello=application_pb2.AttachHello(pid=os.getpid()))

    async with channel(agent, token=token) as opened, asyncio.timeout(HANG_SECONDS):
        stub: Any = application_pb2_grpc.ApplicationServiceStub(opened)
        while True:
            try:
                await stub.LoadState(application_pb2.LoadStateRequest()).read()
            except errors.Unauthenticated:
                break
            except errors.HopyardError:
                await asyncio.sleep(0.05)
        with pytest.raises(errors.Unauthenticated):
            await stub.Attach(requests()).read()


@pytest.mark.timeout(300)
async def test_nodes_and_users_cannot_act_as_the_scheduler(up: Up, tmp_path: Path) -> None:
    data = tmp_path / "data"
    secrets = SecretsFolder(data / "secrets")
    blob = appstat_pb2.DeleteBlobsRequest(sha256=["0" * 64], owner="e")
    for kind in (CallerKind.USER, CallerKind.NODE):
        async with channel(address(up, data, "appstat"), token=secrets.token(kind)) as opened:
            store: Any = appstat_pb2_grpc.AppStatServiceStub(opened)
            for call in (
                store.BeginEpoch(appstat_pb2.BeginEpochRequest(holder="thief")),
                store.AppendJournal(appstat_pb2.AppendJournalRequest(epoch=1)),
                store.DeleteBlobs(blob),
                store.ReleaseBlobs(appstat_pb2.ReleaseBlobsRequest(owner="bundle")),
            ):
                with pytest.raises(errors.PermissionDenied):
                    await call
    async with channel(up.server, token=secrets.token(CallerKind.NODE)) as opened:
        scheduler: Any = experiment_pb2_grpc.ExperimentServiceStub(opened)
        with pytest.raises(errors.PermissionDenied):
            await scheduler.CreateExperiment(experiment_pb2.CreateExperimentRequest(spec="x", request_id="x"))
        assert (await scheduler.GetCluster(experiment_pb2.GetClusterRequest())).appstat_address
    async with channel(up.server, token=secrets.token(CallerKind.USER)) as opened:
        resources: Any = resource_manager_pb2_grpc.ResourceManagerServiceStub(opened)
        with pytest.raises(errors.PermissionDenied):
            await resources.AgentSession(hello()).read()
        with pytest.raises(errors.PermissionDenied, match="JoinGang is not permitted"):
            await resources.IssueTicket(resource_manager_pb2.IssueTicketRequest(address="x", method="JoinGang"))
        with pytest.raises(errors.InvalidInput, match="allowed are FetchSnapshot, GetStatus, JoinGang, StreamLogs"):
            await resources.IssueTicket(resource_manager_pb2.IssueTicketRequest(address="x", method="Everything"))
        with pytest.raises(errors.NotFound, match="not the address of a connected node"):
            await resources.IssueTicket(resource_manager_pb2.IssueTicketRequest(address="x", method="GetStatus"))
    assert up.process.poll() is None
    assert not up.restarted


@pytest.mark.timeout(300)
def test_a_command_needs_no_set_up_with_a_long_path_and_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    file = softmax_file(folder / "code", name="digits", stop={"jobs": 1, "max_iterations": 1})
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    command = [sys.executable, "-m", "hopyard.cli.main"]
    options: dict[str, Any] = {
        "cwd": folder,
        "env": {**os.environ, "HOME": str(home)},
        "capture_output": True,
        "text": True,
        "timeout": 4 * HANG_SECONDS,
        "check": False,
    }
    done = subprocess.run([*command, "run", str(file), "--data", "data", "--slots", "1"], **options)
    assert done.returncode == 0, done.stderr
    assert "token" not in done.stdout + done.stderr
    assert (folder / "data" / "secrets" / "user.token").stat().st_mode & 0o777 == 0o600
    again = subprocess.run([*command, "logs", "1", "--data", "data"], **options)
    assert again.returncode == 0, again.stderr


@pytest.mark.timeout(300)
def test_a_cluster_on_tcp_ports_needs_the_token_of_its_data_directory(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, code = tmp_path / "data", tmp_path / "code"
    command = [sys.executable, "-m", "hopyard.cli.main"]
    serve = [*command, "up", "--host", "127.0.0.1", "--port", "0", "--insecure", "--slots", "1", "--data", str(data)]
    (home / "gate").touch()
    experiment(code)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOPYARD_")}

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *words],
            cwd=code,
            env={**environment, **more},
            capture_output=True,
            text=True,
            timeout=4 * HANG_SECONDS,
            check=False,
        )

    with subprocess.Popen(serve, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            lines: list[str] = []
            while not lines or "the cluster is up" not in lines[-1]:
                lines.append(process.stderr.readline())
                assert lines[-1], "".join(lines)
            said = "".join(lines)
            (server,) = set(re.findall(r"--server (127\.0\.0\.1:\d+)", said))
            assert f"hopyard run FILE --data {data}" in said
            done = run("run", "experiment.yaml", "--data", str(data))
            assert done.returncode == 0, done.stderr
            assert "best loss 1" in done.stdout
            without = run("experiments", "--server", server)
            assert without.returncode == 1
            assert without.stderr.count("\n") == 1
            assert "set HOPYARD_USER_TOKEN_FILE to a copy of the file secrets/user.token" in without.stderr
            file = str(data / "secrets" / "user.token")
            assert run("experiments", "--server", server, HOPYARD_USER_TOKEN_FILE=file).returncode == 0
            wrong = run("experiments", "--server", server, HOPYARD_USER_TOKEN=new_token(CallerKind.USER).text)
            assert wrong.returncode == 1
            assert "it is in the variable HOPYARD_USER_TOKEN: replace it" in wrong.stderr
            agent = run("agent", "--scheduler", server, "--data", str(tmp_path / "agent"), HOPYARD_NODE_TOKEN_FILE=file)
            assert agent.returncode != 0
            assert "found a token of the kind user, needed one of the kind node" in agent.stderr
        finally:
            process.send_signal(signal.SIGINT)
            process.stderr.read() if process.stderr is not None else None
            process.wait(HANG_SECONDS)
