"""Short texts and HTML of what the client returns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from hopyard.client.portal import LoopThread
from hopyard.client.types import Experiment, ExperimentState, Job, JobState, Metric
from hopyard.results import Results, job_results
from hopyard.search import AsyncSearchHandle, SearchFailed, SearchHandle

pytestmark = pytest.mark.quick

EXPERIMENT = Experiment(
    "net-1",
    "net",
    ExperimentState.RUNNING,
    Metric("accuracy"),
    spec={"long": "x" * 999},
    jobs={"COMPLETED": 3, "RUNNING": 1, "FAILED": 0},
    best_job="2",
    best_value=0.98765432,
    best_position=7,
)
JOB = Job(
    "net-1",
    "2",
    JobState.COMPLETED,
    hyperparameters={"lr": 0.123456, "act": "<relu>"},
    position=9,
    best_value=0.98765432,
    best_position=7,
)


def table() -> Results:
    return job_results(EXPERIMENT, [JOB, replace(JOB, id="3", hyperparameters={"lr": 0.5})])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (EXPERIMENT, "<Experiment net-1 RUNNING: 4 jobs (3 COMPLETED, 1 RUNNING), best accuracy 0.9877 (job 2 at 7)>"),
        (replace(EXPERIMENT, jobs={}, best_job=None), "<Experiment net-1 RUNNING: 0 jobs>"),
        (JOB, "<Job 2 of net-1 COMPLETED at 9, best 0.9877 at 7, act=<relu> lr=0.123>"),
        (Job("net-1", "1", JobState.CREATING), "<Job 1 of net-1 CREATING at 0>"),
    ],
)
def test_the_text_is_short(value: object, text: str) -> None:
    assert repr(value) == text


def test_handles_show_their_experiment() -> None:
    handle = AsyncSearchHandle(cast("Any", None), EXPERIMENT, cast("Any", None))
    assert repr(handle) == f"<AsyncSearchHandle {EXPERIMENT!r}>"
    assert repr(SearchHandle(handle, LoopThread())) == f"<SearchHandle {EXPERIMENT!r}>"
    assert SearchHandle(handle, LoopThread())._repr_html_() == EXPERIMENT._repr_html_()


def test_html_is_escaped_and_leaves_out_what_is_empty() -> None:
    assert "&lt;relu&gt;" in JOB._repr_html_()
    assert "<relu>" not in JOB._repr_html_()
    assert "accuracy 0.9877 (job 2 at 7)" in EXPERIMENT._repr_html_()
    assert "reason" not in EXPERIMENT._repr_html_()


def test_results_show_columns_with_values() -> None:
    found = table()
    assert repr(found).startswith("<Results of net-1: 2 rows; experiment, job, state, best, ")
    assert "parent" not in repr(found)
    shown = found._repr_html_()
    assert "<th>hp.lr</th>" in shown
    assert "<td>&lt;relu&gt;</td>" in shown
    assert "parent" not in shown
    lines = str(found).splitlines()
    assert len(lines) == 1 + len(found)
    assert lines[0].split()[:4] == ["experiment", "job", "state", "best"]
    assert lines[1].startswith("net-1 ")
    assert lines[0].index("hp.lr") == lines[1].index("0.123")
    assert str(job_results(EXPERIMENT, [])) == repr(job_results(EXPERIMENT, []))
    many = job_results(EXPERIMENT, [JOB] * 51)
    assert str(many).splitlines()[51:] == ["... 50 of 51 rows"]
    assert many._repr_html_().count("<tr>") == 51
    assert "50 of 51 rows" in many._repr_html_()


def test_a_failed_search_shows_the_output_of_a_job() -> None:
    reason = "failed: its last lines:\nTraceback\nKeyError: 'y'"
    error = SearchFailed(EXPERIMENT, "every job failed", reason)
    assert str(error).startswith("search net-1: every job failed; the whole output of a job: client.logs('net-1', job)")
    assert str(error).endswith(reason)
    assert "\n" not in str(SearchFailed(EXPERIMENT, "value is not reported"))
