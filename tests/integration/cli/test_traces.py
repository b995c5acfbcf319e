"""Tests of `hopyard trace` and `hopyard run --export-trace` against processes of the fake cluster."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
from pathlib import Path

import pytest

from hopyard import Client
from hopyard.cli.commands.inspect import trace_export
from hopyard.cli.commands.session import run_session
from hopyard.cli.main import run
from hopyard.traces import Trace, read_traces
from tests.integration.cli.test_commands import _fake_services, _interrupted
from tests.integration.cli.test_commands import _InterruptedModel as InterruptedModel
from tests.integration.cli.test_commands import _Serving as Serving

pytestmark = pytest.mark.usefixtures("_fake_services")

__all__ = ["_fake_services", "_interrupted"]


def test_a_run_leaves_its_traces(experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, file = tmp_path / "data", tmp_path / "new" / "traces.jsonl.gz"
    with Serving(data) as server:
        where = ["--data", str(data)]
        assert run(["run", str(experiment_file), "--json", "--export-trace", str(file), *where]) == 0
        out, err = capsys.readouterr()
        jobs = json.loads(out)["jobs"]
        assert err.endswith(f"traces of 3 jobs, 24 reports: {file}\n")
        with Client(server) as client:
            traces = client.traces("e1")
            reports = client.statistics("e1")
        assert read_traces(file) == traces
        assert [trace.job for trace in traces] == [job["id"] for job in jobs] == ["1", "2", "3"]
        for trace in traces:
            own = [one.report for one in reports if one.job == trace.job]
            assert trace == Trace(
                trace.job,
                {"layers": int(trace.job), "lr": 0.1 * int(trace.job)},
                "accuracy",
                "max",
                tuple(one.metrics["accuracy"] for one in own),
                tuple(one.seconds for one in own),
                others={
                    "loss": tuple(one.metrics["loss"] for one in own),
                    "nothing": tuple(one.metrics["nothing"] for one in own),
                },
            )

        assert run(["trace", *where]) == 0
        out, err = capsys.readouterr()
        (tmp_path / "shown.jsonl").write_text(out)
        assert read_traces(tmp_path / "shown.jsonl") == traces
        assert err == "traces of 3 jobs, 24 reports\n"

        assert run(["trace", "small", "--json", *where]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document == {"experiment": "e1", "traces": [json.loads(line) for line in out.splitlines()]}

        (tmp_path / "again.jsonl").touch()
        for _ in range(2):  # The second export overwrites the first.
            assert run(["trace", "-o", str(tmp_path / "again.jsonl"), "--json", *where]) == 0
            assert json.loads(capsys.readouterr().out) == {
                "experiment": "e1",
                "file": str(tmp_path / "again.jsonl"),
                "jobs": 3,
                "reports": 24,
                "left_out": 0,
            }
        assert (tmp_path / "again.jsonl").read_text() == out
        assert run(["trace", "-o", str(tmp_path / "again.jsonl"), *where]) == 0
        assert capsys.readouterr().out == f"{tmp_path / 'again.jsonl'}\n"


@pytest.mark.usefixtures("_interrupted")
def test_an_interrupted_run_leaves_what_there_is(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, file = tmp_path / "data", tmp_path / "traces.jsonl"
    with Serving(data):
        assert run(["run", str(experiment_file), "--export-trace", str(file), "--data", str(data)]) == 130
    err = capsys.readouterr().err
    traces = read_traces(file)  # Traces of one job, or of more if it took long until all had stopped.
    reports, left = sum(len(trace.metrics) for trace in traces), 3 - len(traces)
    assert reports >= InterruptedModel.after
    assert re.search(rf"traces of {len(traces)} jobs?, {reports} reports", err)
    assert bool(left) == bool(re.search(rf"; {left} jobs? without a report left out: {re.escape(str(file))}\n", err))
    assert f"suspended; resume it with: hopyard resume e1 --data {data}" in err


@pytest.mark.usefixtures("_interrupted")
def test_a_run_that_quits_at_once_says_how_to_get_its_traces(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient(InterruptedModel):
        """A live model that interrupts the process a second time while jobs are being suspended."""

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "note" and value:
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(run_session, "LiveModel", Impatient)
    data, file = tmp_path / "data", tmp_path / "traces.jsonl"
    assert run(["run", str(experiment_file), "--export-trace", str(file), "--data", str(data)]) == 130
    err = capsys.readouterr().err
    assert f"no traces were written; hopyard trace e1 -o {file} --data {data} writes them\n" in err
    assert not file.exists()


def test_a_place_that_cannot_be_written_is_refused_before_the_search(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    for place, code, told in (
        (experiment_file, 1, f"error: {experiment_file}: it is there already and holds no traces"),
        (tmp_path, 1, f"error: {tmp_path}: it is no ordinary file"),
        (experiment_file / "x", 2, f"error: traces cannot be written to {experiment_file}/x: {experiment_file}: "),
    ):
        for command in (["run", str(experiment_file), "--export-trace"], ["trace", "-o"]):
            assert run([*command, str(place), "--data", str(data)]) == code
            out, err = capsys.readouterr()
            assert (out, err.count("\n")) == ("", 1)
            assert err.startswith(told)
    assert not data.exists()


def test_a_disk_that_is_full_in_the_end_spoils_no_result(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, traces: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(trace_export, "write_traces", full)
    data, file = tmp_path / "data", tmp_path / "traces.jsonl"
    with Serving(data):
        assert run(["run", str(experiment_file), "--json", "--export-trace", str(file), "--data", str(data)]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["experiment"]["state"] == "COMPLETED"
    assert f"error: {file}: No space left on device; make room on its disk\n" in err
    assert f"no traces were written; hopyard trace e1 -o {file} --data {data} writes them\n" in err


def test_what_has_not_reported_has_no_traces(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = experiment_file.with_name("failing.yaml")
    failing.write_text(experiment_file.read_text().replace("name: small", "name: failing"))
    data, file = tmp_path / "data", tmp_path / "traces.jsonl"
    with Serving(data):
        assert run(["run", str(failing), "--export-trace", str(file), "--data", str(data)]) == 1
        assert "failing (e1) has no traces: no job has reported anything yet\n" in capsys.readouterr().err
        assert run(["trace", "--data", str(data), "-o", str(file)]) == 1
        expected = "error: failing (e1) has no traces: no job has reported anything yet\n"
        assert capsys.readouterr() == ("", expected)
    assert not file.exists()
