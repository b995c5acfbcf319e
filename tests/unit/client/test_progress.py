"""The progress that a client shows while it waits."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from collections.abc import Callable
from concurrent import futures
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hopyard.client.async_client import AsyncClient
from hopyard.client.display.outcome import STARTS_OVER
from hopyard.client.display.progress import (
    HiddenProgress,
    NotebookProgress,
    TerminalProgress,
    WaitProgress,
    progress_view,
    wait_with_progress,
)
from hopyard.client.portal import LoopThread
from hopyard.client.types import Change, Experiment, ExperimentState, Job, JobGone, JobState, Metric
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from tests.timing import HANG_SECONDS

EXPERIMENT = Experiment("net-1", "net", ExperimentState.RUNNING, Metric("loss", "min"), spec={"stop": {"jobs": 4}})


def job(name: str, state: JobState = JobState.RUNNING) -> Job:
    return Job("net-1", name, state)


def seen(*changes: Change) -> WaitProgress:
    progress = WaitProgress(100.0)
    for change in changes:
        progress.apply(change)
    return progress


@pytest.mark.quick
def test_the_line_counts_jobs_and_shows_the_best_value() -> None:
    best = replace(EXPERIMENT, best_job="2", best_value=0.25)
    found = seen(best, job("1", JobState.COMPLETED), job("2"), job("3", JobState.FAILED), job("4"), JobGone("4"))
    assert found.text(165.0) == "net: 2/4 jobs ended, 1 running, 1 failed, best loss 0.25 (job 2)  1m 05s"
    assert found.fraction == 0.5
    assert seen().text(101.0) == "waits for the cluster  1s"
    assert seen().fraction is None


@pytest.mark.quick
def test_the_time_limit_counts_too_and_an_ended_search_is_full() -> None:
    timed = replace(EXPERIMENT, spec={"stop": {"max_time": 60.0}}, running_seconds=15.0)
    assert seen(timed).fraction == 0.25
    assert seen(replace(EXPERIMENT, spec={})).fraction is None
    stopped = replace(timed, state=ExperimentState.STOPPED)
    assert seen(stopped).fraction == 1.0
    assert seen(stopped).text(100.0) == "net STOPPED: 0 jobs ended  0s"


@pytest.mark.quick
def test_a_terminal_has_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = io.StringIO()
    view = TerminalProgress(out)
    view.show(seen(), 100.0)
    view.show(seen(EXPERIMENT, job("1", JobState.COMPLETED)), 100.0)
    view.show(seen(EXPERIMENT, job("1", JobState.COMPLETED)), 100.0)
    view.close()
    first, second = out.getvalue().removeprefix("\r").split("\r")
    assert first == "waits for the cluster  0s"
    assert second == "[######..................] net: 1/4 jobs ended  0s\n"


@pytest.mark.quick
def test_a_notebook_has_one_bar_that_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def display(data: Any, **_: Any) -> Any:
        shown.append(data["text/html"])
        return SimpleNamespace(update=lambda data, raw: shown.append(f"updated {data['text/html']}"))

    ipython, module = ModuleType("IPython"), ModuleType("IPython.display")
    vars(ipython)["get_ipython"] = lambda: SimpleNamespace(kernel=None)
    vars(module)["display"] = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    view = progress_view(None)
    assert isinstance(view, NotebookProgress)
    view.show(seen(), 100.0)
    view.show(seen(replace(EXPERIMENT, name="<net>")), 100.0)
    assert shown[0].startswith("<div><progress style=")
    assert shown[1].startswith('updated <div><progress value="0.000" max="1"')
    assert "&lt;net&gt;: 0/4 jobs ended" in shown[1]
    assert isinstance(progress_view(False), HiddenProgress)


@pytest.mark.quick
def test_a_job_that_begins_again_is_a_warning() -> None:
    back = Reason.of(ReasonCode.BACK_AT_POSITION, position=0, cause=Reason.of(ReasonCode.SUSPENDED, position=1))
    lost = replace(job("1"), reason_code=back.code, reason_args=dict(back.args))
    with pytest.warns(UserWarning, match="its program saves no checkpoint") as caught:
        seen(EXPERIMENT, lost).warn()
    assert str(caught[0].message) == STARTS_OVER
    seen(EXPERIMENT, job("1")).warn()


def test_a_wait_shows_its_changes_and_returns_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    loop = LoopThread()

    async def work(heard: Callable[[Change], object]) -> str:
        heard(EXPERIMENT)
        heard(job("1", JobState.COMPLETED))
        return "done"

    async def broken(heard: Callable[[Change], object]) -> str:
        raise ValueError("broken")

    try:
        assert wait_with_progress(loop, work, True, str) == "done"
        assert "net: 1/4 jobs ended" in capsys.readouterr().err
        assert wait_with_progress(loop, work, None, str) == "done"
        assert capsys.readouterr().err == ""
        with pytest.raises(ValueError, match="broken"):
            wait_with_progress(loop, broken, False, str)
    finally:
        loop.close()


def test_an_interrupted_wait_says_how_to_continue(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    loop, began = LoopThread(), threading.Event()

    async def work(heard: Callable[[Change], object]) -> str:
        heard(EXPERIMENT)
        began.set()
        await asyncio.sleep(HANG_SECONDS)
        return "done"

    def interrupted(*_: object) -> None:
        began.wait(HANG_SECONDS)
        began.clear()
        raise KeyboardInterrupt

    monkeypatch.setattr(futures, "wait", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            wait_with_progress(loop, work, False, AsyncClient.local(tmp_path / "d", slots=1).continuation)
        command = f"hopyard resume net-1 --data {tmp_path / 'd'}"
        assert capsys.readouterr().err == f"interrupted; its cluster ends with this program; continue with: {command}\n"
        with pytest.raises(KeyboardInterrupt):
            wait_with_progress(loop, work, False, AsyncClient("gpu1:4650").continuation)
        command = "hopyard jobs net-1 --watch --server gpu1:4650"
        assert capsys.readouterr().err == f"interrupted; it continues; watch it with: {command}\n"
    finally:
        loop.close()
