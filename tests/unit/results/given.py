"""An experiment with jobs and reports, and a client that returns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hopyard.client.types import Experiment, ExperimentState, Job, JobState, Metric, Report, Statistic

NAN, INF = float("nan"), float("inf")


def experiment(state: ExperimentState = ExperimentState.COMPLETED) -> Experiment:
    return Experiment("digits-1", "digits", state, Metric("accuracy", "max"), created_at=1000.0)


def job(name: str, hyperparameters: Mapping[str, Any] | None = None, **more: Any) -> Job:
    values = {"lr": 0.1} if hyperparameters is None else hyperparameters
    base = Job("digits-1", name, JobState.COMPLETED, "", values, position=3, attempt=1)
    return replace(base, **more)


def statistic(
    name: str, position: int, at: float = 0.0, part: str = "", examples: int = 0, **metrics: float
) -> Statistic:
    report = Report(position, metrics, 0.5, part, examples)
    return Statistic(name, 1, report, at or 1000.0 + position)


class Client:
    """Simulates a client: each `get` returns the next state of the experiment; the last state is repeated."""

    def __init__(self, *states: tuple[Experiment, list[Job], list[Statistic]]) -> None:
        self.states = list(states)
        self.asked: list[str] = []

    async def get(self, _: object) -> Experiment:
        if self.asked and len(self.states) > 1:
            self.states.pop(0)
        self.asked.append("get")
        return self.states[0][0]

    async def jobs(self, _: object) -> list[Job]:
        return self.states[0][1]

    async def statistics(self, _: object, name: str) -> list[Statistic]:
        self.asked.append(name)
        return [one for one in self.states[0][2] if one.job == name]
