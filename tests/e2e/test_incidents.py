"""Test that `run` without a terminal names failed jobs, lost nodes and a lost connection, each in one line, with real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.e2e.harness import softmax_file
from tests.e2e.up import Up
from tests.timing import HANG_SECONDS

HOPYARD = [sys.executable, "-m", "hopyard.cli.main"]

SCRIPT = """
import os, pathlib, sys, time
import hopyard

runs = pathlib.Path({runs!r})
runs.touch()
count = len(runs.read_text()) + 1
runs.write_text("x" * count)
if count <= 2:
    raise ValueError(f"broken {{count}}")
while not os.path.exists({gate!r}):
    time.sleep(0.05)
hopyard.report(accuracy=0.5)
"""


class Run:
    """`hopyard run` as a child process; a thread reads its stderr."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [*HOPYARD, "run", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.text = ""
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            for _ in range(2):  # The second signal ends it at once.
                self.process.send_signal(signal.SIGINT)
        self.wait()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.text += line
                self._changed.notify_all()
        self.process.stderr.close()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the output contains a line with the pattern, and return the match."""
        with self._changed:
            assert self._changed.wait_for(lambda: re.search(pattern, self.text), HANG_SECONDS), self.text
            found = re.search(pattern, self.text)
        assert found is not None
        return found

    def wait(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        code = self.process.wait(HANG_SECONDS)
        self._reader.join(HANG_SECONDS)
        return code


def test_a_job_that_fails_and_is_tried_again_is_named_with_its_error(tmp_path: Path) -> None:
    gate, folder, data = tmp_path / "gate", tmp_path / "e", tmp_path / "data"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT.format(runs=str(tmp_path / "runs"), gate=str(gate)))
    file = folder / "experiment.yaml"
    file.write_text(
        f"{{name: broken, command: [{sys.executable}, train.py], metric: {{name: accuracy, mode: max}}, space: {{x: {{choice: [1]}}}}, "
        "stop: {jobs: 1, max_iterations: 1, max_failures: 3}}\n"
    )
    with Run(str(file), "--data", str(data), "--slots", "1") as run:
        run.wait_for(r"(?m)^job 1 failed, attempt 2 of 4.*: ValueError: broken 1$")
        run.wait_for(r"(?m)^job 1 failed, attempt 3 of 4.*: ValueError: broken 2$")
        # The third attempt waits for the file, and has reported nothing.
        run.wait_for(r"1 running")
        jobs = subprocess.run(
            [*HOPYARD, "jobs", "--data", str(data)], check=True, capture_output=True, text=True, timeout=HANG_SECONDS
        ).stdout
        assert "running (attempt 3)" in jobs
        assert "ValueError: broken 2; attempt 3 of 4" in jobs
        gate.touch()
        assert run.wait() == 0, run.text


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_lost_node_and_a_lost_connection_are_named(tmp_path: Path) -> None:
    up = Up(tmp_path / "data", SOFTMAX_PACE="0.5", SOFTMAX_ENOUGH=str(tmp_path / "enough"))
    try:
        up.wait_for("the cluster is up")
        server = up.server
        file = softmax_file(tmp_path / "e", policy={"name": "default"}, stop={"jobs": 2, "max_iterations": 1000})
        agent = next(pid for name, pid in sorted(up.pids.items()) if name.startswith("agent"))
        with Run(str(file), "--server", server) as run:
            run.wait_for("2 running")
            os.kill(agent, signal.SIGSTOP)
            try:
                lost = run.wait_for(
                    r"(?m)^node (\S+) lost \(its agent is silent .*\): job \d (restarts from|waits for it)"
                )
            finally:
                os.kill(agent, signal.SIGCONT)
            run.wait_for(rf"(?m)^node {lost[1]} is back$")
            up.stop()
            run.wait_for(f"connection to the cluster at {server} lost \\d+s ago")
    finally:
        if up.process.poll() is None:
            up.stop()
