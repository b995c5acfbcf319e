"""A policy and a program for models that hop between two nodes; each node has one training and one evaluation partition."""

from __future__ import annotations

from collections.abc import Mapping

from hopyard.policy import Cluster, JobView, Policy, RunEnd, RunEndReason, RunMode

PROGRAM = """
import time
from pathlib import Path

import numpy as np

from hopyard import model_hopper


class Model:
    def __init__(self, rate):
        self.rate, self.value = rate, np.zeros(1000)

    def save(self, directory):
        np.save(directory / "value.npy", self.value)

    def load(self, directory):
        self.value = np.load(directory / "value.npy")


def input_fn(path):
    print(f"reads {path.name}", flush=True)
    return np.load(path)


def train_fn(data, model, optimizer, config):
    time.sleep(config["pace"])
    model.value += config["rate"] * (data.mean() + np.random.normal(size=1000) - model.value)
    return {"train_value": float(model.value.mean())}


def evaluate_fn(data, model, config):
    return {"score": float(data.mean())}


TRAINER = model_hopper.trainer(
    input_fn=input_fn, model_fn=lambda config: Model(config["rate"]), train_fn=train_fn, evaluate_fn=evaluate_fn
)
"""


class Hopping(Policy):
    """Trains epochs of two units, one on each node, and evaluates each job in two parts after each epoch."""

    ship_every = 0

    def __init__(self, *, train: Mapping[str, str], evaluate: Mapping[str, str]) -> None:
        self._train, self._evaluate = train, evaluate
        self._first: dict[tuple[str, int], str] = {}
        self._evaluated: dict[tuple[str, int], set[str]] = {}
        self._evaluating: dict[str, str] = {}

    def allocate_jobs(self, cluster: Cluster) -> None:
        for _ in range(cluster.experiment.jobs_left):
            cluster.create_job()
        for job in cluster.idle_jobs():
            for slot in cluster.idle_slots():
                if self._start(cluster, job, slot.id, slot.node):
                    break

    def _start(self, cluster: Cluster, job: JobView, slot: str, node: str) -> bool:
        epoch, unit = divmod(job.position, 2)
        done = self._evaluated.setdefault((job.id, job.position), set())
        if epoch and not unit and len(done) < len(self._evaluate):
            if node in done:
                return False
            self._evaluating[job.id] = node
            inputs = {slot: self._evaluate[node]}
            cluster.start_job(job.id, slot, mode=RunMode.EVALUATE, inputs=inputs, parts=len(self._evaluate))
            return True
        if unit and self._first[job.id, epoch] == node:
            return False
        if not unit:
            self._first[job.id, epoch] = node
        inputs = {slot: self._train[node]}
        cluster.start_job(job.id, slot, until=job.position + 1, inputs=inputs, preemptible=False)
        return True

    def demand(self, cluster: Cluster) -> int:
        return len(self._train)  # A job waits for a node whose partition it needs.

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        if run.mode is RunMode.EVALUATE and run.reason is RunEndReason.UNTIL:
            self._evaluated[run.job, run.position].add(self._evaluating[run.job])
