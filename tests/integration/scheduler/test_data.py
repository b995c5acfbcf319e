"""Tests of experiments on partitioned data: jobs run where their partitions are, wait for missing ones, and continue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from hopyard.client.datasets import DataPartition, ReplicaState
from hopyard.client.types import Experiment, ExperimentState
from hopyard.errors import Conflict, InvalidInput
from tests.integration.scheduler.catalog_cluster import Cluster, partition
from tests.timing import HANG_SECONDS, scaled

pytestmark = pytest.mark.timeout(240)

TRAINER = '''
import numpy as np
from hopyard.trainer import Trainer


class Reader(Trainer):
    """Reports which partition it has read."""

    def setup(self, hp, changed):
        self.value = float(np.load(self.context.inputs)["y"][0])

    def train(self):
        return {"score": self.value}

    def evaluate(self):
        self.examples = 3
        return {"read": self.value} if self.context.mode == "evaluate" else {}

    def save(self, folder):
        (folder / "state").write_text("")

    def load(self, folder):
        pass
'''

SPEC = """
name: hopping
trainer: train.py:Reader
metric: {{name: score, mode: max}}
space: {{x: {{uniform: [0.0, 1.0]}}}}
policy: tests.integration.scheduler.visit_policy:Visitor
data: {data}
stop: {{jobs: {jobs}, max_iterations: {length}}}
unit: units
"""


def experiment(folder: Path, data: str = "numbers", jobs: int = 2, length: int = 4) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(TRAINER)
    file = folder / "experiment.yaml"
    file.write_text(SPEC.format(data=data, jobs=jobs, length=length))
    return file


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(4):
        np.savez(folder / f"{number}.npz", y=np.arange(number, number + 3))
    return folder


@pytest.fixture
async def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    made = Cluster(tmp_path, **getattr(request, "param", {}))
    await made.start()
    try:
        await made.join("a", "b")
        yield made
    finally:
        await made.stop()


async def waits(cluster: Cluster, found: Experiment, words: str) -> None:
    """Wait until the experiment's reason contains `words`."""
    reason = ""
    try:
        async with asyncio.timeout(HANG_SECONDS):
            while words not in (reason := (await cluster.client.get(found)).reason):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise AssertionError(f"it says {reason!r}") from error


async def test_jobs_visit_the_partitions_where_they_are(cluster: Cluster, files: Path, tmp_path: Path) -> None:
    parts = [
        partition("train/0", a=files / "0.npz"),
        partition("train/1", b=files / "1.npz"),
        partition("eval/0", a=files / "2.npz", b=files / "2.npz"),
    ]
    await cluster.client.register_data("numbers", parts)
    found = await cluster.client.create(experiment(tmp_path / "e"))
    with pytest.raises(Conflict, match=f"data set numbers is used by {found.id}; stop that first"):
        await cluster.client.drop_data("numbers")
    assert (await cluster.client.data_set("numbers")).experiments == (found.id,)
    ended = await cluster.client.wait(found, timeout=HANG_SECONDS)
    assert (ended.state, ended.jobs) == (ExperimentState.COMPLETED, {"COMPLETED": 2})
    for job in ("1", "2"):
        rows = await cluster.client.statistics(found, job)
        trained = [(one.report.position, one.report.metrics["score"]) for one in rows if not one.report.part]
        assert trained == [(1, 0.0), (2, 1.0), (3, 0.0), (4, 1.0)]
        parted = [(one.report.position, one.report.part, one.report.metrics["read"]) for one in rows if one.report.part]
        assert parted == [(2, "eval/0", 2.0)]
    await cluster.client.drop_data("numbers")


async def test_a_lost_file_is_waited_for_by_name(cluster: Cluster, files: Path, tmp_path: Path) -> None:
    parts = [partition("train/0", a=files / "0.npz"), partition("train/1", b=files / "1.npz")]
    await cluster.client.register_data("numbers", parts)
    kept = (files / "1.npz").read_bytes()
    (files / "1.npz").unlink()
    await cluster.until("numbers", lambda states: states["train/1@b"] is ReplicaState.BROKEN)
    found = await cluster.client.create(experiment(tmp_path / "e", jobs=1))
    await waits(cluster, found, "it waits for partition train/1 of data set numbers: node b lost the file")
    (files / "1.npz").write_bytes(kept)
    ended = await cluster.client.wait(found, timeout=HANG_SECONDS)
    assert (ended.state, ended.jobs) == (ExperimentState.COMPLETED, {"COMPLETED": 1})
    scores = [one.report.metrics["score"] for one in await cluster.client.statistics(found, "1")]
    assert scores == [0.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize("cluster", [pytest.param({"lease_seconds": scaled(2.0)}, id="short lease")], indirect=True)
async def test_a_node_that_leaves_is_waited_for_and_so_is_the_scheduler_s_next_life(
    cluster: Cluster, files: Path, tmp_path: Path
) -> None:
    parts = [partition("train/0", a=files / "0.npz"), partition("train/1", b=files / "1.npz")]
    await cluster.client.register_data("numbers", parts)
    await cluster.leave("b")
    found = await cluster.client.create(experiment(tmp_path / "e", jobs=1))
    await waits(cluster, found, "it waits for partition train/1 of data set numbers: node b is away")
    await cluster.stop_scheduler()
    await cluster.start_scheduler()
    await waits(cluster, found, "it waits for partition train/1 of data set numbers: node b is away")
    await cluster.join("b")
    ended = await cluster.client.wait(found, timeout=HANG_SECONDS)
    assert (ended.state, ended.jobs) == (ExperimentState.COMPLETED, {"COMPLETED": 1})


async def test_partitions_by_url_are_got_where_they_are_read_first(
    cluster: Cluster, files: Path, tmp_path: Path
) -> None:
    known = await cluster.client.register_data("here", [partition("train/0", a=files / "3.npz")])
    one = known.partitions[0]
    far = DataPartition("train/0", one.size_bytes, one.sha256, one.examples, url=f"file://{files}/3.npz")
    registered = await cluster.client.register_data("far", [far])
    assert registered.partitions[0].replicas == ()
    found = await cluster.client.create(experiment(tmp_path / "e", data="far", jobs=1, length=3))
    ended = await cluster.client.wait(found, timeout=HANG_SECONDS)
    assert ended.jobs == {"COMPLETED": 1}
    shown = await cluster.client.data_set("far")
    assert [replica.path for replica in shown.partitions[0].replicas] == [f"file://{files}/3.npz"]
    copies = [path for node in ("a", "b") for path in (tmp_path / node / "partitions").glob("*/3.npz")]
    assert [path.parent.name for path in copies] == [one.sha256]


async def test_data_that_is_not_registered_is_refused_with_what_there_is(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="data: there is no data set 'numbers'; there are: none"):
        await cluster.client.create(experiment(tmp_path / "e"))


async def test_in_another_cluster_it_goes_on_once_the_same_data_are_registered_there(
    cluster: Cluster, files: Path, tmp_path: Path
) -> None:
    parts = [partition("train/0", a=files / "0.npz")]
    await cluster.client.register_data("numbers", parts)
    found = await cluster.client.create(experiment(tmp_path / "e", jobs=1, length=2))
    await cluster.client.wait(found, timeout=HANG_SECONDS)
    await cluster.client.export_experiment(found, tmp_path / "it.hopyard")
    other = Cluster(tmp_path / "other")
    await other.start()
    try:
        await other.join("a")
        await other.client.register_data("numbers", [partition("train/0", a=files / "1.npz")])
        await other.client.import_experiment(tmp_path / "it.hopyard")
        await other.client.extend(found, max_iterations=4)
        missing = "partition train/0 of data set numbers: the catalog has none of that name and content"
        await waits(other, found, missing)
        assert (await other.client.data_set("numbers")).experiments == ()
        await other.client.drop_data("numbers")
        await other.client.register_data("numbers", parts)
        ended = await other.client.wait(found, timeout=HANG_SECONDS)
        rows = await other.client.statistics(found, "1")
    finally:
        await other.stop()
    assert ended.state is ExperimentState.COMPLETED
    assert [one.report.position for one in rows] == [1, 2, 3, 4]
