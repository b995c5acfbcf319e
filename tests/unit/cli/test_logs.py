"""Tests of the message of `hopyard logs` for a job without output."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from hopyard.cli.main import run
from hopyard.client.types import Job, JobState, LogChunk

pytestmark = pytest.mark.quick


class Client:
    """A client of an experiment with one job."""

    def __init__(self, job: Job, *output: bytes) -> None:
        self._job = job
        self._output = output

    async def job(self, *_: object) -> Job:
        return self._job

    async def logs(self, *_: object, **__: object) -> AsyncGenerator[LogChunk]:
        for data in self._output:
            yield LogChunk("local", data, 0)


@pytest.mark.parametrize(
    ("job", "options", "output", "expected"),
    [
        (
            Job("e1", "3", JobState.COMPLETED, position=4),
            [],
            [],
            "job 3 wrote no output; its reports: hopyard curve e1 --job 3 --data d\n",
        ),
        (
            Job("e1", "3", JobState.COMPLETED, position=4),
            ["--follow"],
            [],
            "job 3 wrote no output; its reports: hopyard curve e1 --job 3 --data d\n",
        ),
        (
            Job("e1", "3", JobState.RUNNING, position=1),
            ["--rank", "2"],
            [],
            "rank 2 of job 3 has written no output so far; its reports: hopyard curve e1 --job 3 --data d\n",
        ),
        (Job("e1", "3", JobState.FAILED), [], [], "job 3 wrote no output\n"),
        (Job("e1", "3", JobState.COMPLETED, position=4), [], [b"text\n"], ""),
    ],
)
def test_a_job_without_output_names_the_command_for_its_reports(
    job: Job,
    options: list[str],
    output: list[bytes],
    expected: str,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def with_client(
        _: object, __: object, ___: str, read: Callable[[Any], Coroutine[Any, Any, None]], **____: object
    ) -> None:
        with pytest.raises(StopIteration):
            read(Client(job, *output)).send(None)

    async def found(*_: object) -> object:
        return SimpleNamespace(id="e1")

    monkeypatch.setattr("hopyard.cli.connect.with_client", with_client)
    monkeypatch.setattr("hopyard.cli.connect.find_with_job", found)
    assert run(["logs", "3", "--data", "d", *options]) == 0
    assert capsysbinary.readouterr() == (b"".join(output), expected.encode())
