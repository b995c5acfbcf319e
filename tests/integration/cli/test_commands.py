"""Tests of the command line, run in the test process, against a cluster whose services are processes of the fake cluster."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hopyard.cli.commands.session import run_session
from hopyard.cli.live.model import LiveModel
from hopyard.cli.main import run
from hopyard.client import AsyncClient
from hopyard.client.local_cluster import embedded
from hopyard.client.local_cluster.data_dir_lock import DataLock, is_locked
from hopyard.client.local_cluster.processes import ServiceSpec
from hopyard.client.types import Change, Experiment, ExperimentState, JobReport
from hopyard.errors import TimedOut
from hopyard.policy.vocabulary.reasons import ReasonCode
from tests.integration.cli.modules import imported
from tests.timing import HANG_SECONDS

ROOT = Path(__file__).parents[3]
FAKE = "tests.integration.cli.fake"


def _service(name: str, data: Path, address_name: str, *more: str) -> ServiceSpec:
    return ServiceSpec(
        name, FAKE, ("--data", str(data), "--name", address_name, *more), data, address_name, {"PYTHONPATH": str(ROOT)}
    )


@pytest.fixture(autouse=True)
def _fake_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        embedded, "scheduler_service", lambda data, *_: _service("scheduler", data, "scheduler", "--pace", "0.01")
    )
    monkeypatch.setattr(
        embedded,
        "agent_service",
        lambda data, scheduler, slots, node="local", **_: _service("agent", data, "agent"),
    )
    for variable in ("HOPYARD_SERVER", "HOPYARD_DATA"):
        monkeypatch.delenv(variable, raising=False)


def test_run_prints_the_result_and_leaves_nothing_running(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    assert run(["run", str(experiment_file), "--data", str(data), "--slots", "1"]) == 0
    out, err = capsys.readouterr()
    assert "COMPLETED" in out
    assert "accuracy 0.9549  job 3 at position 8" in out
    assert "small RUNNING" in err  # The output is no terminal: plain lines.
    assert not is_locked(data)
    assert not (data / "scheduler.address").exists()
    assert (data / "logs" / "scheduler.log").exists()
    assert (data / "logs" / "agent.log").exists()


def test_what_the_policy_says_of_the_terms_is_printed(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment_file.write_text(experiment_file.read_text() + "policy: asha\n")
    assert run(["run", str(experiment_file), "--data", str(tmp_path / "data")]) == 0
    assert "note: policy asha: there are too few\n" in capsys.readouterr().err


def test_json_is_one_document_and_nothing_else(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", str(experiment_file), "--data", str(tmp_path / "data"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["experiment"]["state"] == "COMPLETED"
    assert result["best"]["id"] == "3"
    assert len(result["jobs"]) == 3


class _InterruptedModel(LiveModel):
    """A live model that interrupts the process (SIGINT) after `after` reports."""

    after = 3

    def apply(self, change: Change, now: float) -> None:
        super().apply(change, now)
        if isinstance(change, JobReport) and self.reports == self.after:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def _interrupted(_fake_services: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that interrupt themselves after some reports; the cluster reports nothing more until the experiment is resumed."""
    hold = ("--hold", str(_InterruptedModel.after))
    monkeypatch.setattr(run_session, "LiveModel", _InterruptedModel)
    monkeypatch.setattr(embedded, "scheduler_service", lambda data, *_: _service("scheduler", data, "scheduler", *hold))


@pytest.mark.usefixtures("_interrupted")
def test_ctrl_c_suspends_and_says_how_to_go_on(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    assert run(["run", str(experiment_file), "--data", str(data)]) == 130
    out, err = capsys.readouterr()
    assert "PAUSED" in out
    assert f"suspended; resume it with: hopyard resume e1 --data {data}" in err
    assert not is_locked(data)


@pytest.mark.usefixtures("_interrupted")
def test_ctrl_c_on_a_joined_cluster_names_the_server(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with _Serving(tmp_path / "data") as server:
        assert run(["run", str(experiment_file), "--server", server]) == 130
        assert f"hopyard resume e1 --server {server}" in capsys.readouterr().err
        monkeypatch.setattr(run_session, "LiveModel", LiveModel)
        assert run(["resume", "--server", server, "--json"]) == 0
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert result["experiment"]["state"] == "COMPLETED"
        assert [job["position"] for job in result["jobs"]] == [8, 8, 8]


@pytest.mark.usefixtures("_interrupted")
def test_resume_names_code_that_has_changed(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(experiment_file.parent)
    with _Serving(tmp_path / "data") as server:
        assert run(["run", experiment_file.name, "--server", server]) == 130
        capsys.readouterr()
        monkeypatch.setattr(run_session, "LiveModel", LiveModel)
        Path("train.py").write_text("class Small: mended = True\n")
        assert run(["resume", "--server", server]) == 0
        assert (
            "note: train.py has changed since the experiment was created; its jobs keep the code of then. For the new code: "
            "hopyard run experiment.yaml\n"
        ) in capsys.readouterr().err


def test_looking_at_a_running_cluster(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with _Serving(data):
        where = ["--data", str(data)]
        assert run(["run", str(experiment_file), *where, "--gpus", "0"]) == 0
        assert "note: --gpus 0 has no effect: the cluster at unix:" in capsys.readouterr().err
        for arguments, expected in (
            (["experiments"], "small"),
            (["jobs"], "✓ completed"),
            (["jobs", "small"], "✓ completed"),
            (["nodes"], "local/0"),
            (["jobs", "--watch"], "best accuracy"),
            (["best", "e1"], "lr"),
            (["curve", "2"], "⠤"),
            (["curve"], "⠤"),
            (["logs", "e1", "2"], "job 2 line 1"),
            (["wait"], ""),
            (["download", "-o", str(tmp_path / "best")], str(tmp_path / "best")),
        ):
            assert run([*arguments, *where]) == 0, arguments
            assert expected in capsys.readouterr().out, arguments
        for arguments in (["experiments"], ["jobs"], ["nodes"], ["best"], ["curve", "2"], ["wait"]):
            assert run([*arguments, "--json", *where]) == 0, arguments
            assert json.loads(capsys.readouterr().out), arguments
        assert run(["best", "--json", *where]) == 0
        best = json.loads(capsys.readouterr().out)["id"]
        assert run(["curve", "--json", *where]) == 0
        assert json.loads(capsys.readouterr().out)["job"] == best
        assert (tmp_path / "best" / "weights.txt").exists()


def test_looking_at_a_running_cluster_imports_only_what_it_needs(experiment_file: Path, tmp_path: Path) -> None:
    modules = (
        "pydantic",
        "sqlalchemy",
        "yaml",
        "numpy",
        "tarfile",
        "zstandard",
        "importlib.metadata",
        "rich.live",
        "rich.progress",
        "hopyard.cli.live.render",
        "hopyard.client.local_cluster.embedded",
        "hopyard._runtime.gpus",
        "hopyard.policy.base",
        "hopyard.policy.vocabulary.upcalls",
        "hopyard.policy.vocabulary.downcalls",
        "hopyard.sequences",
        "hopyard.space.space",
        "hopyard.spec",
        "hopyard_engine",
        "hopyard_appstat",
    )
    commands = ("experiments", "jobs", "best", "curve", "curve small 2", "nodes", "results", "logs 2", "trace", "wait")
    with _Serving(tmp_path / "data") as server:
        assert run(["run", str(experiment_file), "--server", server, "--json"]) == 0
        assert imported(commands, ["--data", str(tmp_path / "data")], modules) == []
        assert imported(["experiments"], ["--server", server], modules) == []


def test_looking_at_a_cluster_that_is_not_running_opens_it_for_the_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hopyard.cli import connect

    monkeypatch.setattr(connect, "_QUIET_SECONDS", 60.0)  # Enough for a busy host.
    data = tmp_path / "data"
    DataLock.acquire(data, "an earlier run").release()
    assert run(["experiments", "--data", str(data)]) == 0
    out, err = capsys.readouterr()
    assert "no experiments yet" in out
    assert err == ""  # A short wait prints nothing.
    assert not is_locked(data)


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["run", "nothing.yaml"], 2, "error: nothing.yaml: there is no such file\n"),
        (["jobs", "--data", "nowhere"], 1, "error: nowhere: no cluster has run here"),
        (["jobs", "--server", "127.0.0.1:9", "--data", "x"], 2, "error: --server and --data cannot be given together"),
        (["curve", "a", "b", "c"], 2, "error: found 3 names; allowed are JOB, or EXPERIMENT JOB\n"),
        (["jobs", "--server", "nonsense"], 2, "error: address 'nonsense'"),
    ],
)
def test_mistakes_are_one_line_that_says_what_to_do(
    arguments: list[str], code: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == code
    out, err = capsys.readouterr()
    assert err.startswith(expected)
    assert len(err.splitlines()) == 1
    assert out == ""


def test_a_wrong_experiment_file_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text("name: small\nmetric: {name: accuracy, mode: most}\nspace: {}\n")
    assert run(["run", str(file), "--data", str(tmp_path / "data")]) == 2
    err = capsys.readouterr().err
    assert f"{file}:2: metric.mode" in err
    assert not (tmp_path / "data").exists()


def test_a_service_that_dies_is_named_with_its_last_words(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        embedded, "scheduler_service", lambda data, *_: _service("scheduler", data, "scheduler", "--fail", "hunger")
    )
    assert run(["run", str(experiment_file), "--data", str(tmp_path / "data")]) == 1
    err = capsys.readouterr().err
    assert "error: scheduler ended (exit code 3); the end of" in err
    assert "hunger" in err


def test_two_clusters_never_share_a_directory(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hopyard.cli import connect

    monkeypatch.setattr(connect, "_SETTLE_SECONDS", 0.0)
    data = tmp_path / "data"
    lock = DataLock.acquire(data, "hopyard run")
    try:
        assert run(["run", str(experiment_file), "--data", str(data)]) == 1
    finally:
        lock.release()
    assert f"hopyard run (process {os.getpid()}) holds this data directory" in capsys.readouterr().err


def _variant(file: Path, name: str = "small", metric: str = "accuracy") -> Path:
    changed = file.read_text().replace("name: small", f"name: {name}").replace("name: accuracy", f"name: {metric}")
    variant = file.with_name(f"{name}-{metric}.yaml")
    variant.write_text(changed)
    return variant


@pytest.mark.parametrize(
    ("name", "metric", "expected"),
    [
        ("small", "acuracy", "error: acuracy is not reported; reported are accuracy, loss, nothing (did you mean accu"),
        ("small", "nothing", "error: nothing is reported, but never finite"),
        ("failing", "accuracy", "error: every job failed, the first with: KeyError: 'lr'"),
    ],
)
def test_an_experiment_that_came_to_nothing_ends_with_one_error(
    name: str, metric: str, expected: str, experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _variant(experiment_file, name, metric)
    with _Serving(tmp_path / "data"):
        where = ["--data", str(tmp_path / "data")]
        for arguments in (["run", str(file)], ["wait"], ["resume"]):
            assert run([*arguments, *where]) == 1
            out, err = capsys.readouterr()
            if arguments != ["resume"]:
                assert err.count("error: ") == 1
                assert expected in err
            assert (out + err).count("KeyError") <= 1


def test_extend_goes_on_with_what_has_ended(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with _Serving(tmp_path / "data"):
        where = ["--data", str(tmp_path / "data")]
        assert run(["run", str(experiment_file), *where]) == 0
        capsys.readouterr()
        assert run(["resume", *where]) == 0
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("small (e1) has ended already, COMPLETED: hopyard jobs e1")
        assert len(err.splitlines()) == 1
        assert run(["extend", "small", "--jobs", "2", "--watch", "--json", *where]) == 0
        result = json.loads(capsys.readouterr().out)
        assert len(result["jobs"]) == 5
        assert run(["extend", *where]) == 2
        assert "extend by --jobs N, --max-iterations M or --time TIME" in capsys.readouterr().err
        assert run(["extend", "--time", "soon", *where]) == 2
        assert "error: --time: needs a length of time" in capsys.readouterr().err
        for option in ("--jobs", "--max-iterations"):
            assert run(["extend", option, "99999999999999999999", *where]) != 0
            assert "error: an extension is at most 2147483647 jobs or units" in capsys.readouterr().err
        assert run(["extend", "--time", "10m", *where]) == 0
        assert "small (e1) is RUNNING" in capsys.readouterr().err
        assert run(["wait", *where]) == 0


def test_terms_are_set_and_taken_away(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with _Serving(tmp_path / "data"):
        where = ["--data", str(tmp_path / "data")]
        assert run(["run", str(experiment_file), *where]) == 0
        capsys.readouterr()
        assert run(["set", "--slots", "2", "--concurrency", "1", "--target", "0.99", "--weight", "2.5", *where]) == 0
        err = capsys.readouterr().err
        assert (
            "small (e1) is COMPLETED: metric accuracy (max), slots 2, concurrency 1, target 0.99, weight 2.5\n" in err
        )
        assert f"it has ended; to continue it: hopyard extend e1 --data {tmp_path / 'data'}" in err
        assert run(["set", "small", "--slots", "none", "--target", "none", "--json", *where]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["spec"]["resources"]["slots"], shown["metric"]["target"], shown["spec"]["weight"]) == (
            None,
            None,
            2.5,
        )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["set"],
            "error: set at least one of --metric NAME, --slots N, --concurrency N, --target Y or --weight W; `none` removes",
        ),
        (["set", "--slots", "0"], "error: --slots: found '0', allowed are an integer of at least 1, or none"),
        (["set", "--concurrency", "two"], "error: --concurrency: found 'two', allowed are an integer of at least 1"),
        (["set", "--target", "high"], "error: --target: found 'high', allowed are a number, or none"),
        (["resume", "--job", "1", "--slots", "2"], "error: --slots cannot be combined with --job"),
        (["logs"], "error: name a job: JOB, EXPERIMENT JOB, or --job JOB (hopyard jobs lists them)"),
        (["curve", "a", "b", "--job", "c"], "error: found 3 names; allowed are JOB, or EXPERIMENT JOB"),
        (
            ["download", "a", "1", "--job", "2"],
            "error: found two jobs, 1 and --job 2; one snapshot is fetched at a time",
        ),
    ],
)
def test_wrong_use_is_told_before_a_cluster_is_looked_for(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert err.startswith(expected)
    assert (len(err.splitlines()), out) == (1, "")


@pytest.mark.usefixtures("_interrupted")
def test_one_job_is_acted_on_as_an_experiment(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with _Serving(tmp_path / "data"):
        where = ["--data", str(tmp_path / "data")]
        assert run(["run", str(experiment_file), *where]) == 130
        capsys.readouterr()
        for arguments, expected in (
            (["pause", "--job", "2"], "job 2 of small (e1) is HELD: paused by a person\n"),
            (["resume", "small", "--job", "2"], "job 2 of small (e1) is SUSPENDED\n"),
            (["stop", "e1", "--job", "2"], "job 2 of small (e1) is TERMINATED: terminated\n"),
        ):
            assert run([*arguments, *where]) == 0
            assert capsys.readouterr() == ("", expected)
        assert run(["pause", "--job", "1", "--json", *where]) == 0
        assert json.loads(capsys.readouterr().out)["state"] == "HELD"
        assert run(["jobs", *where]) == 0
        shown = capsys.readouterr().out
        assert "◫ held" in shown
        assert "paused by a person" in shown
        assert run(["pause", "--job", "9", *where]) == 1
        assert "error: experiment e1 has no job '9'" in capsys.readouterr().err
        assert run(["curve", "--job", "1", "--json", *where]) == 0
        assert json.loads(capsys.readouterr().out)["job"] == "1"


def test_an_experiment_with_only_paused_jobs_left_is_not_waited_for(
    tmp_path: Path, experiment_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hopyard.cli.commands.experiments import actions

    only = "nothing is left to train but job 1, which is paused by a person: resume or stop it"
    with _Serving(tmp_path / "data"):
        where = ["--data", str(tmp_path / "data")]
        assert run(["run", str(experiment_file), *where]) == 0
        capsys.readouterr()

        async def settled(client: Any, experiment: Any, seconds: float | None) -> Any:
            code = ReasonCode.ONLY_PAUSED_JOBS
            return replace(experiment, state=ExperimentState.RUNNING, reason=only, reason_code=code, ended_at=None)

        monkeypatch.setattr(actions, "_settled", settled)
        assert run(["wait", *where]) == 1
        expected = f"small (e1) is RUNNING: {only}: hopyard resume e1 --job JOB --data {tmp_path / 'data'}\n"
        assert capsys.readouterr() == ("", expected)


@pytest.mark.usefixtures("_interrupted")
def test_what_is_paused_is_not_waited_for_and_the_newest_is_resumed(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    with _Serving(data):
        where = ["--data", str(data)]
        for _ in range(2):
            assert run(["run", str(experiment_file), *where]) == 130
        monkeypatch.setattr(run_session, "LiveModel", LiveModel)
        capsys.readouterr()
        assert run(["wait", *where]) == 1
        assert capsys.readouterr().err == f"small (e2) is PAUSED: hopyard resume e2 --data {data}\n"

        async def over(client: AsyncClient, experiment: Experiment, timeout: float) -> Experiment:  # noqa: ASYNC109 - like `wait`
            assert 0 < timeout <= HANG_SECONDS
            raise TimedOut(f"experiment {experiment.id}: still {experiment.state.value} after {timeout:g} s")

        with monkeypatch.context() as patch:
            patch.setattr(AsyncClient, "wait", over)
            assert run(["wait", "--timeout", str(HANG_SECONDS), *where]) == 1
        err = capsys.readouterr().err
        assert err.count("is PAUSED") == 1
        assert "error: experiment e2: still PAUSED after" in err
        assert run(["resume", *where]) == 0
        err = capsys.readouterr().err
        assert "continuing small (e2); also unfinished: small (e1, PAUSED): hopyard resume ID" in err
        assert run(["resume", *where]) == 0
        assert "also unfinished" not in capsys.readouterr().err


def test_what_is_not_there_is_told(experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    with _Serving(data):
        where = ["--data", str(data)]
        assert run(["run", str(_variant(experiment_file, "silent")), *where]) == 0
        capsys.readouterr()
        assert run(["logs", "1", *where]) == 0
        assert capsys.readouterr() == (
            "",
            f"job 1 wrote no output; its reports: hopyard curve e1 --job 1 --data {data}\n",
        )
        assert run(["curve", "e1", "--job", "1", *where]) == 0
        capsys.readouterr()
        assert run(["curve", "1", "--metric", "foo", *where]) == 1
        assert "job 1 of silent (e1): foo is not reported; reported are accuracy, loss" in capsys.readouterr().err
    assert run(["nodes", *where]) == 0
    assert f"no cluster runs in {data}" in capsys.readouterr().out
    assert run(["nodes", "--json", *where]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_nodes_are_drained_undrained_and_forgotten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    with _Serving(data):
        where = ["--data", str(data)]
        for arguments, code, expected in (
            (["drain", "local"], 0, "local is DRAINING"),
            (["drain", "local", "--deadline", "10m"], 0, "local is DRAINING"),
            (["undrain", "local"], 0, "local is UP"),
            (["drain", "locla"], 1, "there is no node 'locla'; there are: local"),
            (["drain", "local", "--deadline", "soon"], 2, "--deadline: needs a length of time such as 30s"),
            (["forget", "local"], 1, "had the only copies of 1 snapshot of e1. Use --force"),
            (["forget", "local", "--force"], 0, "forgot local"),
        ):
            assert run([*arguments, *where]) == code, arguments
            assert expected in "".join(capsys.readouterr()), arguments
        assert run(["drain", "local", "--deadline", "10m", "--json", *where]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["state"], shown["drain_seconds_left"]) == ("DRAINING", 600.0)
        assert run(["forget", "local", "--force", "--json", *where]) == 0
        assert json.loads(capsys.readouterr().out) == {"node": "local", "forgotten": True}
    assert run(["drain", "local", *where]) == 1
    assert f"no cluster runs in {data}, so it has no nodes" in capsys.readouterr().err


class _Serving:
    """Context manager that serves a data directory with the fake cluster's process and returns its address."""

    def __init__(self, data: Path) -> None:
        import asyncio

        self._loop = asyncio.new_event_loop()
        self._cluster = embedded.EmbeddedCluster(data, purpose="hopyard up")

    def __enter__(self) -> str:
        return self._loop.run_until_complete(self._cluster.start())

    def __exit__(self, *_: object) -> None:
        self._loop.run_until_complete(self._cluster.stop())
        self._loop.close()
