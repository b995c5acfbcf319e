"""Test of the transfers of model hopper parallelism: models between agents, and only the results to the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hopyard.client.types import ExperimentState
from tests.e2e.units import Unit, check_apart, histories, journal, units_of
from tests.integration.scheduler.catalog_cluster import Cluster, partition
from tests.timing import HANG_SECONDS

NODES = ("n1", "n2", "n3", "n4")
EPOCHS, MODELS, NUMBERS = 3, 4, 250_000

PROGRAM = f"""
import numpy as np

from hopyard import model_hopper


class Model:
    def __init__(self, rate):
        self.rate, self.weights = rate, np.zeros({NUMBERS})

    def save(self, directory):
        np.save(directory / "weights.npy", self.weights)

    def load(self, directory):
        self.weights = np.load(directory / "weights.npy")


def train_fn(data, model, optimizer, config):
    model.weights += config["rate"] * data.mean()
    return {{"value": float(model.weights[0])}}


TRAINER = model_hopper.trainer(
    input_fn=np.load, model_fn=lambda config: Model(config["rate"]), train_fn=train_fn
)
"""


@pytest.mark.parametrize("ship_every", [None, 0])
async def test_each_unit_moves_its_model_once_and_the_store_gets_the_results(
    tmp_path: Path, ship_every: int | None
) -> None:
    """Check the moved bytes. By default the store gets further snapshots, so that the death of a node costs no completed unit."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(PROGRAM)
    spec: dict[str, Any] = {
        "name": "bytes",
        "trainer": "train.py:TRAINER",
        "metric": {"name": "value", "mode": "max"},
        "space": {"rate": {"choice": [0.1, 0.2, 0.3, 0.4]}},
        "generator": "grid",
        "data": "numbers",
        "policy": "mop",
        "snapshot": {"every": 1, "keep_best": 0, "ship_every": ship_every},
        "stop": {"jobs": MODELS, "max_iterations": EPOCHS * len(NODES)},
        "unit": "units",
    }
    cluster = Cluster(tmp_path)
    await cluster.start()
    try:
        await cluster.join(*NODES)
        partitions = []
        for number, node in enumerate(NODES):
            np.save(tmp_path / f"{number}.npy", np.full(10, 1.0 + number))
            partitions.append(partition(f"train/{number}", **{node: tmp_path / f"{number}.npy"}))
        await cluster.client.register_data("numbers", partitions)
        created = await cluster.client.create(spec, code)
        ended = await cluster.client.wait(created.id, timeout=HANG_SECONDS)
        units = units_of(await journal(cluster.address, created.id))
    finally:
        await cluster.stop()

    assert ended.state is ExperimentState.COMPLETED
    assert all(len(visits) == EPOCHS * len(NODES) for visits in histories(units).values())
    check_apart(units, lost=())
    # A model is constructed where it is trained first, and one that is trained twice on a node stays there.
    stayed = [unit for unit in units if not unit.fetched]
    assert stayed == [unit for unit in units if unit.node == _before(unit, units)]
    hops = ended.hops
    model, trained = NUMBERS * 8, EPOCHS * len(NODES) * MODELS
    assert hops.fetched == 0  # No model was transferred through the store.
    assert hops.direct == trained - len(stayed)
    if ship_every is None:
        # A snapshot may be deleted before it is stored, when its job has a newer one.
        assert MODELS < hops.stored <= trained
        return
    assert hops.stored == MODELS
    formula = model * trained + model * MODELS
    assert hops.direct_bytes + hops.stored_bytes + len(stayed) * model == pytest.approx(formula, rel=0.02)


def _before(unit: Unit, units: list[Unit]) -> str:
    """Return the node of a model before its unit; for its first unit, the node of that unit."""
    found = [one.node for one in units if one.key.job == unit.key.job and one.key.attempt == unit.key.attempt - 1]
    return found[0] if found else unit.node
