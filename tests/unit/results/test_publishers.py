"""Tests of the publication of curves to TensorBoard and MLflow, read with their own libraries; a second publication changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from hopyard.client.async_client import AsyncClient
from hopyard.client.types import ExperimentState, Job, JobState, Statistic
from hopyard.errors import Unavailable, Unsupported
from hopyard.results.mlflow import MlflowSink, tracking_uri
from hopyard.results.publisher import Published, publish, values
from hopyard.results.tensorboard import TensorBoardSink
from tests.unit.results.given import INF, NAN, Client, experiment, job, statistic

HP = {"lr": 0.1, "opt": {"name": "sgd"}, "sizes": [1, 2], "on": True, "none": None}
JOBS = [job("1", HP), job("2", {"lr": 0.2}, state=JobState.FAILED)]
REPORTS = [
    statistic("1", 1, accuracy=0.25, loss=2.0),
    statistic("1", 2, accuracy=NAN),
    statistic("1", 3, accuracy=0.75),
    statistic("2", 1, accuracy=0.5),
]


class Remembering:
    """A sink that records the updates that it receives."""

    def __init__(self) -> None:
        self.given: list[tuple[str, int]] = []

    def __enter__(self) -> Remembering:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, job: Job, statistics: Sequence[Statistic]) -> int:
        self.given.append((job.id, len(statistics)))
        return len(statistics)


async def test_a_followed_experiment_is_looked_at_until_it_ends_and_only_where_it_changed() -> None:
    running = experiment(ExperimentState.RUNNING)
    young = [job("1", state=JobState.RUNNING, position=1), job("2", {}, state=JobState.CREATING)]
    older = [job("1", state=JobState.RUNNING, position=2), job("2", state=JobState.RUNNING, position=0)]
    client = Client(
        (running, young, REPORTS[:1]), (running, young, REPORTS[:1]), (running, older, REPORTS[:2]),
        (experiment(), JOBS, REPORTS),
    )  # fmt: skip
    sink = Remembering()
    done = await publish(cast("AsyncClient", client), running, sink, follow=True, poll=0.0)
    assert sink.given == [("1", 1), ("1", 2), ("2", 0), ("1", 3), ("2", 1)]
    assert done == Published(2, 7)


async def test_without_following_it_is_looked_at_once() -> None:
    sink = Remembering()
    running = experiment(ExperimentState.RUNNING)
    await publish(cast("AsyncClient", Client((running, JOBS, REPORTS))), running, sink)
    assert sink.given == [("1", 3), ("2", 1)]


def test_parts_of_an_evaluation_are_one_point() -> None:
    parts = [
        statistic("1", 1, part="a", examples=1, at=5.0, acc=0.0),
        statistic("1", 1, part="b", examples=3, at=6.0, acc=1.0),
    ]
    assert [tuple(v) for v in values(parts)] == [("acc", 1, 0.75, 6.0)]


# ----------------------------------------------------------------------------------------------------------- tensorboard


def board(folder: Path) -> Any:
    reading = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="pip install 'tensorboard<2.21'"
    )
    found = reading.EventAccumulator(str(folder), size_guidance={reading.SCALARS: 0})
    found.Reload()
    return found


def scalars(folder: Path, metric: str = "accuracy") -> list[tuple[int, float, float]]:
    return [(event.step, event.value, event.wall_time) for event in board(folder).Scalars(metric)]


@pytest.fixture
def _tensorboard() -> None:
    pytest.importorskip("tensorboardX", reason="pip install './hopyard[tensorboard]'")


@pytest.mark.usefixtures("_tensorboard")
def test_tensorboard_shows_a_run_a_job_with_its_hyperparameters(tmp_path: Path) -> None:
    plugin = pytest.importorskip("tensorboard.plugins.hparams.plugin_data_pb2", reason="pip install 'tensorboard<2.21'")
    for _ in range(2):  # the second time changes nothing
        with TensorBoardSink(tmp_path, experiment()) as sink:
            assert [sink.update(one, [r for r in REPORTS if r.job == one.id]) for one in JOBS] == [4, 1]
        folder = tmp_path / "digits-1" / "1"
        assert len(list(folder.iterdir())) == 1
        assert [(s, a) for s, _, a in scalars(folder)] == [(1, 1001.0), (2, 1002.0), (3, 1003.0)]
        assert str([v for _, v, _ in scalars(folder)]) == "[0.25, nan, 0.75]"
        assert scalars(folder, "loss") == [(1, 2.0, 1001.0)]
        assert scalars(tmp_path / "digits-1" / "2") == [(1, 0.5, 1001.0)]
        content = board(folder).SummaryMetadata("_hparams_/session_start_info").plugin_data.content
        told = plugin.HParamsPluginData.FromString(content).session_start_info.hparams
        assert {name: value.WhichOneof("kind") for name, value in told.items()} == {
            "lr": "number_value",
            "opt.name": "string_value",
            "sizes": "string_value",
            "on": "bool_value",
        }


@pytest.mark.usefixtures("_tensorboard")
def test_tensorboard_sees_a_live_job_grow_and_others_files_stay(tmp_path: Path) -> None:
    running = job("1", state=JobState.RUNNING)
    folder = tmp_path / "digits-1" / "1"
    folder.mkdir(parents=True)
    (folder / "events.out.tfevents.1.mine").write_bytes(b"")
    with TensorBoardSink(tmp_path, experiment(ExperimentState.RUNNING), live=True) as sink:
        assert sink.update(running, REPORTS[:1]) == 2
        assert sink.update(running, REPORTS[:1]) == 0
        assert sink.update(running, REPORTS[:3]) == 2
        assert [s for s, _, _ in scalars(folder)] == [1, 2, 3]
    assert len(list(folder.iterdir())) == 2


def test_tensorboard_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(Unsupported, match=r"pip install .*\[tensorboard\]'"):
        TensorBoardSink(tmp_path, experiment())


# ---------------------------------------------------------------------------------------------------------------- mlflow


@pytest.mark.timeout(240)
def test_mlflow_has_a_run_a_job_and_again_only_what_is_new(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="pip install './hopyard[mlflow]'")
    pytest.importorskip("sqlalchemy", reason="pip install './hopyard[mlflow]'")
    running = job("1", {**HP, "odd(name)": 1}, state=JobState.RUNNING)
    with MlflowSink(str(tmp_path / "ml"), experiment()) as sink:
        assert sink.update(running, REPORTS[:1]) == 2
        assert sink.update(running, REPORTS[:2]) == 1
        assert sink.update(JOBS[1], [statistic("2", 1, accuracy=INF)]) == 1
    with MlflowSink(str(tmp_path / "ml"), experiment()) as sink:
        assert sink.update(job("1", running.hyperparameters), REPORTS[:3]) == 1
        assert sink.update(JOBS[1], REPORTS[3:]) == 0
    client = mlflow.MlflowClient(tracking_uri=tracking_uri(str(tmp_path / "ml")))
    found = client.get_experiment_by_name("digits")
    runs = {run.data.tags["hopyard.job"]: run for run in client.search_runs([found.experiment_id])}
    assert sorted(runs) == ["1", "2"]
    first = runs["1"]
    assert first.data.params == {
        "lr": "0.1", "opt.name": "sgd", "sizes": "[1, 2]", "on": "true", "none": "null", "odd_name_": "1",
    }  # fmt: skip
    history = client.get_metric_history(first.info.run_id, "accuracy")
    assert [(m.step, m.timestamp) for m in history] == [(1, 1001000), (2, 1002000), (3, 1003000)]
    assert str([m.value for m in history]) == "[0.25, nan, 0.75]"
    assert (first.info.status, first.info.start_time, first.info.end_time) == ("FINISHED", 1001000, 1003000)
    assert first.info.run_name == "digits 1"
    assert runs["2"].info.status == "FAILED"
    assert first.data.tags["hopyard.experiment"] == "digits-1"


def test_mlflow_that_refuses_says_where_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="pip install './hopyard[mlflow]'")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with pytest.raises(Unavailable, match=r"MLflow at http://me:\*\*\*@127.0.0.1:1") as caught:
        MlflowSink("http://me:secret@127.0.0.1:1", experiment())
    assert "secret" not in str(caught.value)
