"""Tests that invalid input is refused with one clear message by the command line and by the cluster, which continues to work."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from hopyard.client import Client
from hopyard.client.address import read_address
from hopyard.client.types import ExperimentState, JobState
from hopyard.v1 import appstat_pb2, appstat_pb2_grpc, experiment_pb2, experiment_pb2_grpc
from tests.access import channel_as
from tests.e2e.failures import experiment
from tests.timing import HANG_SECONDS

PATIENCE = HANG_SECONDS


def hopyard(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hopyard.cli.main", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "300"}
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE, env=environment)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a live cluster that all cases share; at the end a valid experiment must complete on it."""
    folder = tmp_path_factory.mktemp("cluster") / "data"
    with Client.local(folder, slots=2) as client:
        yield folder
        good = client.wait(client.create(experiment(folder.parent / "good")), timeout=PATIENCE)
        assert good.state is ExperimentState.COMPLETED, "after all of it the cluster works"


@pytest.fixture
def server(data: Path) -> str:
    address = read_address(data, "scheduler")
    assert address is not None
    return address


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("space: {lr: {uniform: [0, 1]}", "is not YAML: while parsing a flow mapping"),
        ("polcy: default", "polcy: unknown field (did you mean policy?); allowed: name, trainer,"),
        ("space: {lr: {loguniform: [0, 1]}}", "space.lr: loguniform needs low > 0, found [0, 1]"),
        ("space: {lr: {uniform: [1, 0]}}", "space.lr: uniform needs low < high, found [1, 0]"),
        ("space: {lr: {choice: []}}", "space.lr: choice needs at least one value, found []"),
        ("resources: {per_job: {cpus: 0}}", "resources.per_job.cpus: needs a number >= 1, found 0"),
        (
            "resources: {per_job: {memory: lots}}",
            'resources.per_job.memory: needs an amount of bytes such as 500MB, 2GiB or 1073741824, found "lots"',
        ),
        ("trainer: gone.py:Walk", "trainer: there is no file gone.py in "),
        ("trainer: train.py", 'trainer: needs file.py:Class or package.module:Class, found "train.py"'),
    ],
)
def test_a_wrong_file_is_refused_before_anything_starts(tmp_path: Path, line: str, says: str) -> None:
    file = experiment(tmp_path / "code")
    field = line.partition(":")[0]
    text = re.sub(rf"^{field}:.*\n(?:[ -].*\n)*", "", file.read_text(), flags=re.MULTILINE) + line + "\n"
    file.write_text(text)
    run = hopyard("run", file, "--data", tmp_path / "data")
    assert run.returncode == 2
    assert run.stdout == ""
    (message,) = [one for one in run.stderr.splitlines() if says in one]
    assert message.startswith(f"error: {file}:")
    assert "Traceback" not in run.stderr
    assert not (tmp_path / "data").exists()


def test_a_metric_that_is_never_reported_pauses_the_experiment_with_an_error_that_says_what_was(
    server: str, tmp_path: Path
) -> None:
    file = experiment(tmp_path / "blind", metric={"name": "accuracy", "mode": "max"})
    run = hopyard("run", file, "--server", server, "--json")
    assert run.returncode == 1
    shown = json.loads(run.stdout)
    name = shown["experiment"]["id"]
    assert "error: no report contains the metric accuracy; job 1 has reported pid, x up to 1; " in run.stderr
    command = f"hopyard set {name} --metric NAME --server {server}; then: hopyard resume {name} --server {server}"
    assert f"change the metric: {command}" in run.stderr.splitlines()
    (job,) = shown["jobs"]  # Its iterations are so short that it may be complete before it is suspended.
    assert job["best_value"] is None


def test_a_metric_that_is_never_finite_is_an_error(server: str, tmp_path: Path) -> None:
    run = hopyard("run", experiment(tmp_path / "nan", "always nan"), "--server", server)
    assert run.returncode == 1
    assert "error: x is reported, but never finite" in run.stderr.splitlines()


def test_the_reason_of_a_failure_is_shown_everywhere(server: str, tmp_path: Path) -> None:
    run = hopyard("run", experiment(tmp_path / "bad", "train"), "--server", server, "--json")
    assert run.returncode == 1
    says = "failed 1 times, 0 allowed: train at position 4: ValueError: a bad iteration"
    assert f"error: every job failed, the first with: {says}" in run.stderr.splitlines()
    document = json.loads(run.stdout)
    name = document["experiment"]["id"]
    assert document["jobs"][0]["reason"].startswith(says)
    found = json.loads(hopyard("jobs", name, "--server", server, "--json").stdout)
    rows = found["jobs"] if isinstance(found, dict) else found
    assert (rows[0]["state"], rows[0]["failures"]) == ("FAILED", 1)
    assert rows[0]["reason"].startswith(says)
    # A table has the error first.
    assert (
        "train at position 4: ValueError: a bad iteration; failed 1 times"
        in hopyard("jobs", name, "--server", server).stdout
    )


@pytest.mark.parametrize("what", ["too large", "a link that leads out"])
def test_code_that_may_not_travel_is_refused_where_it_lies(server: str, tmp_path: Path, what: str) -> None:
    file = experiment(tmp_path / "code")
    if what == "too large":
        with (file.parent / "weights.bin").open("wb") as weights:
            weights.truncate(101 * 1024 * 1024)
        says = r"has 105\.9 MB; allowed: 104\.9 MB\. The biggest files: weights\.bin \(105\.9 MB\), .*\.hopyardignore"
    else:
        (file.parent / "passwords").symlink_to("/etc/passwd")
        says = r"passwords links to /etc/passwd, outside"
    run = hopyard("run", file, "--server", server)
    assert run.returncode == 2
    (message,) = run.stderr.splitlines()
    assert message.startswith("error: the code folder cannot be packed: ")
    assert re.search(says, message), message


def archive(*names: str, link: str = "") -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            if link:
                member.type, member.linkname = tarfile.SYMTYPE, link
            tar.addfile(member)
    return zstandard.compress(raw.getvalue())


def bomb() -> bytes:
    """Return an archive whose header announces more bytes than a bundle may have."""
    member = tarfile.TarInfo("weights.bin")
    member.size = 1_100_000_000
    return zstandard.compress(member.tobuf())


def left_behind(data: Path, sha256: str) -> list[str]:
    # Not with rglob: an agent may delete folders of earlier runs at the same time.
    found = [name for _, folders, files in os.walk(data) for name in (*folders, *files)]
    return [name for name in found if name == "escaped" or sha256 in name]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (archive("../../escaped"), "member name '../../escaped'; allowed: names that stay inside the archive"),
        (archive("/nowhere/escaped"), "member name '/nowhere/escaped'; allowed: names that stay inside the archive"),
        (archive("train.py", link="/etc/passwd"), "member 'train.py' is a symbolic link; allowed: plain files"),
        (bomb(), "more than 20000 members or 268435456 bytes, at 'weights.bin'"),
    ],
    ids=["upwards", "absolute", "link", "bomb"],
)
async def test_a_bundle_that_somebody_made_by_hand_is_refused_by_the_agent(
    server: str, data: Path, tmp_path: Path, content: bytes, says: str
) -> None:
    """Show that the agent checks bundles itself, since any client can store one."""
    sha256 = hashlib.sha256(content).hexdigest()
    text = experiment(tmp_path / "code").read_text()
    async with channel_as("user", server) as connection:
        front = experiment_pb2_grpc.ExperimentServiceStub(connection)
        where = await front.GetCluster(experiment_pb2.GetClusterRequest())
        async with channel_as("user", where.appstat_address) as store:

            async def requests() -> Any:
                yield appstat_pb2.PutBlobRequest(sha256=sha256, owner="bundle", data=content)

            await appstat_pb2_grpc.AppStatServiceStub(store).PutBlob(requests())
        request = experiment_pb2.CreateExperimentRequest(spec=text, bundle=sha256, request_id=sha256)
        created = (await front.CreateExperiment(request)).experiment.id
        messages = front.WatchExperiment(experiment_pb2.WatchExperimentRequest(experiment=created), timeout=PATIENCE)
        reasons = {m.job.reason async for m in messages if m.HasField("job") and m.job.failures}
    assert any(reason.startswith("failed 1 times, 0 allowed: ") and says in reason for reason in reasons), reasons
    packed = f"{sha256}.packed"
    assert sorted(left_behind(data, sha256)) == [sha256, packed], (
        "what the client put into the store, and the agent's copy"
    )


def test_a_second_cluster_in_one_data_directory_is_refused(data: Path, tmp_path: Path) -> None:
    held = rf"error: {data}: .*Client\.local \(process {os.getpid()}\).*; .*another.* with --data"
    for arguments in (["up"], ["run", experiment(tmp_path / "code")]):
        run = hopyard(*arguments, "--data", data)
        assert run.returncode == 1
        assert re.match(held, run.stderr.splitlines()[-1]), run.stderr
        assert "Traceback" not in run.stderr


def test_a_second_agent_of_one_name_ends_and_the_first_goes_on(server: str, data: Path, tmp_path: Path) -> None:
    agent = [sys.executable, "-m", "hopyard_nodeagent", "--scheduler", server, "--node", "local"]
    run = subprocess.run(
        [*agent, "--data", str(tmp_path / "agent")], check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert run.returncode == 1
    says = f"node local is alive elsewhere, at {read_address(data / 'agent', 'agent')}; give this agent another name"
    assert says in run.stderr
    assert "Traceback" not in run.stderr
    with Client(server) as client:
        done = client.wait(client.create(experiment(tmp_path / "after")), timeout=PATIENCE)
        assert [job.state for job in client.jobs(done.id)] == [JobState.COMPLETED]
