"""Read-only commands read a data directory without a cluster: no service starts, and nothing is changed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hopyard.cli.doctor import cluster, disk, packages
from hopyard.cli.doctor.check_result import ok
from hopyard.cli.main import run
from hopyard.client import AsyncClient
from hopyard.client.local_cluster.embedded import EmbeddedCluster
from hopyard.client.types import ExperimentState
from hopyard.errors import Conflict
from hopyard.v1.common_pb2 import JOB_STATE_RUNNING, JOB_STATE_SUSPENDED
from hopyard.v1.experiment_pb2 import EXPERIMENT_STATE_RUNNING, Experiment, Job
from tests.integration.cli.modules import imported

JOURNAL = Path(__file__).parents[2] / "golden" / "record" / "journals" / "asha.hopyard"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with an experiment that ran when its cluster ended, with one job on a slot."""
    folder = tmp_path_factory.mktemp("stored") / "data"
    assert run(["import", str(JOURNAL), "--data", str(folder)]) == 0
    connection = sqlite3.connect(folder / "appstat.sqlite")
    ((name, message),) = connection.execute("SELECT id, message FROM experiments").fetchall()
    experiment = Experiment.FromString(message)
    experiment.jobs.clear()
    experiment.MergeFrom(
        Experiment(state=EXPERIMENT_STATE_RUNNING, jobs={"RUNNING": 1, "SUSPENDED": 5}, slots=1, share=1)
    )
    row = experiment.state, experiment.SerializeToString()
    connection.execute("UPDATE experiments SET state = ?, message = ?", row)
    for job_id, message in connection.execute("SELECT id, message FROM jobs").fetchall():
        job = Job.FromString(message)
        job.MergeFrom(
            Job(state=JOB_STATE_RUNNING, slots=["local/0"]) if job_id == "5" else Job(state=JOB_STATE_SUSPENDED)
        )
        connection.execute("UPDATE jobs SET message = ? WHERE id = ?", (job.SerializeToString(), job_id))
    connection.commit()
    connection.close()
    log = folder / "agent" / "logs" / "jobs" / name / "5.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"epoch 1\nepoch 2\n")
    return folder


@pytest.fixture(autouse=True)
def _no_services(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(cluster: EmbeddedCluster) -> str:
        raise AssertionError("services start")

    monkeypatch.setattr(EmbeddedCluster, "start", start)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(list(arguments)) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def contents(data: Path) -> dict[str, str]:
    """The hash of each file, without those that SQLite makes for every reader."""
    files = (path for path in data.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm")))
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize(
    "arguments",
    [
        ["experiments"],
        ["experiments", "--watch"],
        ["jobs"],
        ["jobs", "--watch"],
        ["best"],
        ["curve"],
        ["curve", "5"],
        ["nodes"],
        ["results"],
        ["results", "--reports"],
        ["trace"],
        ["logs", "5"],
        ["logs", "5", "-f"],
        ["events"],
        ["events", "-f"],
        ["rungs"],
        ["replay", "--until", "1000000"],
        ["plot", "--json"],
        ["plot", "--kind", "gantt", "--json"],
        ["download", "-o", "FOLDER"],
        ["data", "list"],
    ],
    ids=" ".join,
)
def test_a_command_that_looks_starts_nothing_and_changes_nothing(
    arguments: list[str], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(data)
    arguments = [str(tmp_path / "folder") if word == "FOLDER" else word for word in arguments]
    code, (out, err) = run([*arguments, "--data", str(data)]), capsys.readouterr()
    assert code == 0, err
    assert out or err
    assert "RUNNING" not in out
    assert contents(data) == before


def test_looking_at_stored_data_imports_only_what_it_needs(data: Path) -> None:
    plain = ("experiments", "jobs", "best", "curve", "nodes", "results", "trace")
    modules = (
        "pydantic",
        "yaml",
        "numpy",
        "tarfile",
        "zstandard",
        "alembic",
        "obstore",
        "sqlalchemy.orm",
        "sqlalchemy.ext.asyncio",
        "rich.live",
        "hopyard._net.server",
        "hopyard.policy.vocabulary.upcalls",
        "hopyard.sequences",
        "hopyard.space.space",
        "hopyard.spec",
        "hopyard_engine",
        "hopyard_scheduler",
        "hopyard_nodeagent",
        "hopyard_appstat.service",
    )
    assert imported(plain, ["--data", str(data)], modules) == []
    assert imported(["logs 5", "events"], ["--data", str(data)], ("pydantic", "yaml", "numpy", "hopyard.spec")) == []


def test_an_experiment_whose_cluster_ended_is_interrupted(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (experiment,) = shown(capsys, "experiments", "--json", "--data", str(data))
    assert experiment["state"] == "INTERRUPTED"
    assert experiment["reason_code"] == "INTERRUPTED"
    assert experiment["reason"] == f"its cluster has ended; continue it with: hopyard resume asha --data {data}"
    assert experiment["jobs"] == {"SUSPENDED": 6}
    (job,) = [job for job in shown(capsys, "jobs", "--json", "--data", str(data)) if job["id"] == "5"]
    assert (job["state"], job["slots"], job["reason_code"]) == ("SUSPENDED", [], "RUN_INTERRUPTED")


def test_waiting_for_it_names_the_command_that_continues_it(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["wait", "--data", str(data)]) == 1
    err = capsys.readouterr().err
    assert "is INTERRUPTED, and no cluster runs in" in err
    assert "hopyard resume asha-" in err


def test_logs_are_read_from_the_folder_of_the_agent(data: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["logs", "5", "--data", str(data)]) == 0
    assert capsysbinary.readouterr().out == b"epoch 1\nepoch 2\n"
    assert run(["logs", "4", "--data", str(data)]) == 0
    assert b"job 4 has written no output so far; its reports: hopyard curve asha-" in capsysbinary.readouterr().err


async def test_a_client_of_stored_data_refuses_what_needs_a_cluster(data: Path) -> None:
    async with AsyncClient.stored(data) as client:
        (experiment,) = await client.experiments(ExperimentState.INTERRUPTED)
        assert await client.experiments(ExperimentState.RUNNING) == []
        assert not client.live
        with pytest.raises(Conflict, match=r"no cluster runs in .*`hopyard up"):
            await client.pause(experiment)
        with pytest.raises(Conflict, match="no cluster runs in"):
            await client.wait(experiment)


def test_a_database_of_another_version_is_one_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("appstat.sqlite", "cluster.lock"):
        (copy / name).write_bytes((data / name).read_bytes())
    connection = sqlite3.connect(copy / "appstat.sqlite")
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    assert run(["experiments", "--data", str(copy)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert "found schema revision 9999" in err
    assert len(err.splitlines()) == 1


def test_doctor_reads_the_whole_journal_and_names_what_is_damaged(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "torch", lambda: ok("torch", "left out"))
    monkeypatch.setattr(cluster, "self_test", lambda: asyncio.sleep(0, ok("self-test", "left out")))
    folder = shutil.copytree(data, tmp_path / "data")

    def findings() -> dict[str, dict[str, str]]:
        assert run(["doctor", "--data", str(folder), "--json"]) == 1
        return {one["name"]: one for one in json.loads(capsys.readouterr().out)["findings"]}

    found = findings()["journal"]
    assert found["health"] == "ok"
    assert found["detail"].endswith("all intact")
    assert findings()["database"]["health"] == "ok"
    # `data` has changed some rows.
    assert (
        "state: found 'EXPERIMENT_STATE_RUNNING', the journal gives 'EXPERIMENT_STATE_COMPLETED'"
        in findings()["rows"]["detail"]
    )
    connection = sqlite3.connect(folder / "appstat.sqlite")
    with closing(connection), connection:
        connection.execute("UPDATE journal SET at = at + 1 WHERE stream != 'cluster' AND position = 7")
    found = findings()["journal"]
    assert found["health"] == "problem"
    assert "record 7 or the one before it was changed" in found["detail"]


def test_a_folder_whose_services_were_started_one_by_one_is_read(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(data, tmp_path / "data")
    (folder / "cluster.lock").unlink()  # `hopyard appstat` and the others do not take it.
    (experiment,) = shown(capsys, "experiments", "--json", "--data", str(folder))
    assert run(["replay", "--data", str(folder), "--until", "9"]) == 0
    assert "stopped cluster" in disk.data_folder(folder).detail
    assert run(["doctor", "--rebuild", "--dry-run", "--data", str(folder)]) == 0
    assert experiment["id"] in capsys.readouterr().out
    elsewhere = tmp_path / "scheduler"
    elsewhere.mkdir()
    (elsewhere / "scheduler.lock").touch()
    assert run(["experiments", "--data", str(elsewhere)]) == 1
    assert "its database is elsewhere; start its services, or name the data directory of" in capsys.readouterr().err


def test_a_damaged_row_hides_no_other_experiment(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(data, tmp_path / "data")
    with closing(sqlite3.connect(folder / "appstat.sqlite")) as connection, connection:
        ((name, message),) = connection.execute("SELECT id, message FROM experiments").fetchall()
        other = Experiment.FromString(message)
        other.id = other.name = "other"
        other.jobs.clear()
        row = ("other", EXPERIMENT_STATE_RUNNING, other.created_at - 1, other.SerializeToString())
        connection.execute("INSERT INTO experiments (id, state, created_at, message) VALUES (?, ?, ?, ?)", row)
        connection.execute("UPDATE jobs SET message = x'ff' WHERE id = '5'")
    damaged, sound = shown(capsys, "experiments", "--json", "--data", str(folder))
    assert (damaged["id"], damaged["state"], sound["id"], sound["warning"]) == (name, "INTERRUPTED", "other", "")
    assert re.search(rf"found the row of Job \(id '5', .*hopyard doctor --rebuild {name}", damaged["warning"])
    assert damaged["jobs"] == {"RUNNING": 1, "SUSPENDED": 5}
    assert run(["jobs", name, "--data", str(folder)]) == 1
    assert f"hopyard doctor --rebuild {name}" in capsys.readouterr().err

    with closing(sqlite3.connect(folder / "appstat.sqlite")) as connection, connection:
        connection.execute("UPDATE experiments SET message = x'ff' WHERE id = ?", (name,))
    damaged, sound = shown(capsys, "experiments", "--json", "--data", str(folder))
    assert (damaged["id"], damaged["state"], damaged["reason_code"]) == (name, "RUNNING", "ROW_UNREADABLE")
    assert f"hopyard doctor --rebuild {name}" in damaged["reason"]
    assert (sound["id"], sound["state"]) == ("other", "INTERRUPTED")
    assert run(["experiments", "--data", str(folder)]) == 0
    assert f"hopyard doctor --rebuild {name}" in " ".join(capsys.readouterr().out.split())
    assert run(["doctor", "--rebuild", name, "--yes", "--data", str(folder)]) == 0
    capsys.readouterr()
    mended, _ = shown(capsys, "experiments", "--json", "--data", str(folder))
    assert (mended["state"], mended["warning"]) == ("COMPLETED", "")

    with closing(sqlite3.connect(folder / "appstat.sqlite")) as connection, connection:
        connection.execute("UPDATE experiments SET id = x'ff41', created_at = 'never' WHERE id = ?", (name,))
    found = shown(capsys, "experiments", "--json", "--data", str(folder))
    assert {(one["id"], one["reason_code"]) for one in found} >= {("\\xffA", "ROW_UNREADABLE")}
