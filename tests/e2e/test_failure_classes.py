"""Tests of the failures of a job: each one is reported as the job's reason, and the rest of the live cluster continues."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hopyard.client import Client
from hopyard.client.types import Experiment, ExperimentState, Job, JobState
from hopyard.errors import NotFound
from tests.damage import flip
from tests.e2e.failures import alone, curve, experiment
from tests.timing import HANG_SECONDS, scaled

PATIENCE = HANG_SECONDS
LONG, LATE = 150, 100
"""Iterations of a job that a test disturbs, and the position from which they are slow, so that the job does not end before."""


@dataclass
class Cluster:
    """A live cluster that all cases share, with one experiment that must not be affected and one that hangs."""

    client: Client
    data: Path
    bystander: Experiment
    hung: Experiment

    def run(self, file: Path) -> tuple[Experiment, list[Job]]:
        """Run an experiment to its end; check that the undisturbed one trained meanwhile. Return the experiment and its jobs."""
        before = self.client.job(self.bystander.id, "1").position
        ended = self.client.wait(self.client.create(file), timeout=PATIENCE)
        self.goes_on(before)
        return ended, self.client.jobs(ended.id)

    def log(self, service: str) -> str:
        """Return the log of a service."""
        return (self.data / "logs" / f"{service}.log").read_text()

    def goes_on(self, before: int) -> None:
        """Check that the undisturbed experiment trains beyond position `before`."""
        self.until(lambda: self.client.job(self.bystander.id, "1").position > before)
        job = self.client.job(self.bystander.id, "1")
        assert (job.state, job.attempt, job.failures) == (JobState.RUNNING, 1, 0)

    def until(self, true: Callable[[], Any]) -> None:
        """Wait until a condition is true; a job that does not exist yet counts as false."""
        end = time.monotonic() + PATIENCE
        while True:
            with suppress(NotFound):
                if true():
                    return
            assert time.monotonic() < end
            time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with Client.local(folder / "data", slots=4) as client:
        bystander = client.create(experiment(folder / "bystander", length=100_000, space={"pace": 0.05}))
        hung = client.create(experiment(folder / "hung", "hang", space={"at": 2}))
        made = Cluster(client, folder / "data", bystander, hung)
        # It reaches no further boundary: when it is stopped now, it is killed half a minute later.
        made.until(lambda: client.job(hung.id, "1").position == 1)
        client.stop(hung.id)
        made.until(lambda: client.job(bystander.id, "1").position > 0)
        yield made
        client.stop(bystander.id)
        assert client.wait(bystander.id, timeout=PATIENCE).state is ExperimentState.STOPPED
        no_mistake(made)  # Checked after all tests, in whatever order they ran.


USER_CODE = {
    "setup": r"setup at position 0: ValueError: a bad setup\n.*train\.py",
    "train": r"train at position 4: ValueError: a bad iteration\n.*train\.py",
    "save": r"save at position 1: ValueError: a bad save\n.*train\.py",
    "exit": r"the training process ended with exit code 3 in the middle of a run; its last lines:\n.*now comes: exit",
    "crash": r"the training process was killed by signal SIGSEGV in the middle of a run; its last lines:\n",
    "memory": r"out of memory: used [4-7]\d\d\.\d MiB of its limit of 400\.0 MiB \(resources\.per_job\.memory\)",
    "many": r"train at position 4: it returned 200002 metrics; allowed: 1000",
    "long": r"train at position 4: it returned the metric name 'x+.* allowed: a printable str of 1 to 256 characters",
    "text": r"train at position 4: metric 'x' is 'high' \(str\); allowed: a float",
}


def test_failures_of_the_users_code(cluster: Cluster, tmp_path: Path) -> None:
    """Show that each failure of user code is reported as its job's reason, and that the last job, which does not fail, completes."""
    file = experiment(
        tmp_path / "failing",
        [*USER_CODE, "no"],
        resources={"slots": 2, "per_job": {"memory": "400MiB"}},
    )
    ended, jobs = cluster.run(file)
    assert (ended.state, ended.reason) == (ExperimentState.COMPLETED, "all jobs ended")
    found = {job.hyperparameters["fail"]: job for job in jobs}
    for fail, pattern in USER_CODE.items():
        job = found.pop(fail)
        assert (job.state, job.failures, job.attempt) == (JobState.FAILED, 1, 1), job
        assert job.reason.startswith("failed 1 times, 0 allowed: ")
        assert re.search(pattern, job.reason, re.DOTALL), f"{fail}: {job.reason}"
        assert len(job.reason) < 4000
    (good,) = found.values()
    assert (good.state, good.position, good.failures) == (JobState.COMPLETED, 6, 0)
    assert curve(cluster.client.statistics(ended.id, good.id)) == alone(file.parent, good.hyperparameters, 6)


def test_a_missing_module_is_not_tried_again(cluster: Cluster, tmp_path: Path) -> None:
    ended, jobs = cluster.run(experiment(tmp_path / "lazy", ["import", "no"], stop={"max_failures": 3}))
    found = {job.hyperparameters["fail"]: job for job in jobs}
    lazy, good = found["import"], found["no"]
    assert (lazy.state, lazy.attempt, lazy.failures) == (JobState.FAILED, 1, 1)
    assert lazy.reason.startswith(
        "another attempt would fail too: setup at position 0: ModuleNotFoundError: No module named"
    )
    assert (ended.state, good.state) == (ExperimentState.COMPLETED, JobState.COMPLETED)


def test_an_iteration_that_hangs_is_ended_after_its_time_limit(cluster: Cluster, tmp_path: Path) -> None:
    """Show this in a separate experiment, because a short limit may end any iteration on a busy host."""
    seconds = scaled(5.0)
    file = experiment(tmp_path / "hanging", "hang", space={"at": 1}, stop={"iteration_timeout": f"{seconds}s"})
    ended, (job,) = cluster.run(file)
    assert (ended.state, job.state, job.failures, job.attempt) == (ExperimentState.FAILED, JobState.FAILED, 1, 1), job
    assert f"an iteration took longer than {seconds:g} s and was ended" in job.reason


def test_failures_are_counted_and_the_job_goes_on_from_its_snapshot_until_they_are_too_many(
    cluster: Cluster, tmp_path: Path
) -> None:
    ended, (job,) = cluster.run(experiment(tmp_path / "thrice", "train", stop={"max_failures": 2}))
    assert ended.state is ExperimentState.FAILED
    assert (job.state, job.failures, job.attempt) == (JobState.FAILED, 3, 3)
    assert job.reason.startswith("failed 3 times, 2 allowed: train at position 4: ValueError: a bad iteration")
    assert "every job failed, job 1: failed 3 times" in ended.reason
    assert [position for position, _ in curve(cluster.client.statistics(ended.id, "1"))] == [1, 2, 3, 4]


def test_a_killed_process_and_a_preemption_are_no_failures(cluster: Cluster, tmp_path: Path) -> None:
    client = cluster.client
    enough = tmp_path / "enough"
    file = experiment(tmp_path / "killed", length=LONG, space={"pace": 0.1, "late": LATE, "enough": str(enough)})
    created = client.create(file)
    cluster.until(lambda: client.job(created.id, "1").position >= 4)
    cluster.until(lambda: client.statistics(created.id, "1"))  # Statistics are readable once they are in the journal.
    pid = int(client.statistics(created.id, "1")[-1].report.metrics["pid"])
    os.kill(pid, signal.SIGKILL)
    cluster.until(lambda: (job := client.job(created.id, "1")).attempt == 2 and job.state is JobState.RUNNING)
    client.pause(created.id)
    assert client.wait(created.id, timeout=PATIENCE, until=[ExperimentState.PAUSED]).slots <= 1
    enough.touch()
    client.resume(created.id)
    ended = client.wait(created.id, timeout=PATIENCE)
    job = client.job(created.id, "1")
    assert (ended.state, job.state, job.failures) == (ExperimentState.COMPLETED, JobState.COMPLETED, 0)
    assert (job.attempt, job.suspends) == (3, 1)
    assert curve(client.statistics(created.id, "1")) == alone(file.parent, job.hyperparameters, LONG)


def test_a_value_that_is_no_number_is_the_worst_and_the_job_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    ended, jobs = cluster.run(experiment(tmp_path / "nan", ["always nan", "nan", "no"], resources={"slots": 2}))
    always, once, never = jobs
    assert [(job.state, job.position, job.failures) for job in jobs] == [(JobState.COMPLETED, 6, 0)] * 3
    assert (always.best_value, always.best_position) == (None, 0)
    assert once.best_position != 5
    assert ended.best_job in (once.id, never.id)
    values = [value for _, value in curve(cluster.client.statistics(ended.id, always.id))]
    assert len(values) == 6
    assert all(value != value for value in values)


@pytest.mark.parametrize(
    ("trainer", "reason"),
    [
        ("train.py:Walker", "import of train.py:Walker: train.py defines no Walker"),
        ("train.py:json", "import of train.py:json: json is <module 'json'"),
        (
            "no_such_package.train:Walk",
            "No module named 'no_such_package' (it is neither in the experiment's code, its",
        ),
    ],
)
def test_a_trainer_that_is_not_there(cluster: Cluster, tmp_path: Path, trainer: str, reason: str) -> None:
    ended, (job,) = cluster.run(experiment(tmp_path / "missing", trainer=trainer))
    assert (ended.state, job.state, job.failures) == (ExperimentState.FAILED, JobState.FAILED, 1)
    assert reason in job.reason


def test_a_trainer_given_as_a_module(cluster: Cluster, tmp_path: Path) -> None:
    ended, (job,) = cluster.run(experiment(tmp_path / "module", trainer="train:Walk"))
    assert (ended.state, job.position) == (ExperimentState.COMPLETED, 6)


@pytest.mark.parametrize("damaged", ["newest", "all"])
def test_a_snapshot_with_a_flipped_bit_is_never_trained_from(cluster: Cluster, tmp_path: Path, damaged: str) -> None:
    client = cluster.client
    enough = tmp_path / "enough"
    file = experiment(
        tmp_path / "flipped",
        length=LONG,
        space={"pace": 0.1, "late": LATE, "enough": str(enough)},
        snapshot={"every": 2, "keep_latest": 3, "keep_best": 0},
    )
    created = client.create(file)
    cluster.until(lambda: client.job(created.id, "1").position >= 7)
    client.pause(created.id)
    client.wait(created.id, timeout=PATIENCE, until=[ExperimentState.PAUSED])
    enough.touch()
    # The newest is stored; two are uploaded at a time, so the one before may not be complete.
    cluster.until(lambda: all(snapshot.stored for snapshot in client.job(created.id, "1").snapshots))
    paused = client.job(created.id, "1")
    snapshots = sorted(paused.snapshots, key=lambda snapshot: snapshot.position)
    assert len(snapshots) == 3
    hit = snapshots if damaged == "all" else snapshots[-1:]
    for snapshot in hit:
        # On the node it is the folder that the trainer saved; in the store it is packed.
        saved = cluster.data / "agent" / "snapshots" / snapshot.sha256 / "state"
        copies = [max(saved.iterdir(), key=lambda file: file.stat().st_size)]
        copies.append(cluster.data / "store" / snapshot.sha256[:2] / snapshot.sha256)
        for copy in copies:
            flip(copy)
    client.resume(created.id)
    client.wait(created.id, timeout=PATIENCE)
    job = client.job(created.id, "1")
    assert (job.state, job.position, job.failures) == (JobState.COMPLETED, LONG, 0), job
    # One attempt for each damaged snapshot finds both of its copies; then one from another snapshot.
    assert job.attempt == paused.attempt + 1 + len(hit)
    agent, services = (cluster.log(name) for name in ("agent", "scheduler"))
    for snapshot in hit:
        assert f"snapshot {snapshot.sha256} is corrupt on this disk and was deleted" in agent
        assert f"blob {snapshot.sha256} was damaged in the store: its bytes have the hash" in services
    assert curve(client.statistics(created.id, "1")) == alone(file.parent, job.hyperparameters, LONG)


def test_a_hung_job_is_killed_after_its_experiment_is_stopped(cluster: Cluster) -> None:
    before = cluster.client.job(cluster.bystander.id, "1").position
    ended = cluster.client.wait(cluster.hung.id, timeout=PATIENCE)
    assert ended.state is ExperimentState.STOPPED
    job = cluster.client.job(cluster.hung.id, "1")
    assert (job.state, job.failures) == (JobState.TERMINATED, 0)
    assert "is killed: it was to leave and has not" in cluster.log("agent")
    cluster.goes_on(before)


def test_none_of_it_is_a_mistake_of_the_services(cluster: Cluster) -> None:
    no_mistake(cluster)


def no_mistake(cluster: Cluster) -> None:
    """Check that the logs of the services contain no internal error so far."""
    for name in ("scheduler", "agent"):
        assert "listens on" in cluster.log(name)
        assert "Traceback" not in cluster.log(name)
        assert " bug " not in cluster.log(name)
