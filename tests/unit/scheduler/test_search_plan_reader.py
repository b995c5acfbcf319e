"""Tests of the earlier trials that a new experiment receives from the search plan."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from hopyard._net.rpc.values import fill_report, hyperparameters_to_proto
from hopyard.errors import Unavailable
from hopyard.policy.vocabulary import Report
from hopyard.sequences import plan_path
from hopyard.v1 import appstat_pb2 as pb
from hopyard.v1 import experiment_pb2
from hopyard_engine.core.state.entities import earlier_of
from hopyard_engine.core.types import EarlierTrial, SnapshotInfo
from hopyard_scheduler.search_plan.reader import SECONDS, PlanReader

pytestmark = pytest.mark.quick


class Plan:
    """Simulates an AppStat with a search plan of given trials. `fails`: it raises Unavailable; `hangs`: it does not answer."""

    def __init__(
        self, trials: Mapping[tuple[str, str], tuple[Mapping[str, Any], Mapping[int, float]]], until: int = 8
    ) -> None:
        self._trials, self._until = trials, until
        self.fails = self.hangs = False
        self.saved: dict[tuple[str, str], list[int]] = {}
        self.gone: set[str] = set()
        self.owned: dict[str, list[str]] = {}

    async def ListPlanNodes(self, request: pb.ListPlanNodesRequest) -> pb.ListPlanNodesResponse:
        if self.fails:
            raise Unavailable("away")
        if self.hangs:
            await asyncio.Event().wait()
        found: dict[str, pb.PlanNode] = {}
        for given, results in self._trials.values():
            for one in plan_path(given, self._until, request.root):
                node = found.setdefault(one.node, pb.PlanNode(key=one.node, start=one.start, reached=one.start))
                node.reached = max([node.reached, *(p for p in results if one.start < p <= one.end)])
        return pb.ListPlanNodesResponse(nodes=sorted(found.values(), key=lambda node: (node.start, node.key)))

    async def GetPlanNode(self, request: pb.GetPlanNodeRequest) -> pb.GetPlanNodeResponse:
        found = pb.GetPlanNodeResponse()
        for (experiment, job), (given, results) in self._trials.items():
            for one in plan_path(given, self._until, "root"):
                if one.node == request.key:
                    found.references.add(experiment=experiment, job=job, end=one.end)
                    for position, value in results.items():
                        if one.start < position <= one.end:
                            said = found.results.add(experiment=experiment, job=job)
                            fill_report(said.report, Report(position, {"acc": value}, 1.0), at=0.0)
                    for position in self.saved.get((experiment, job), []):
                        if one.start < position <= one.end:
                            sha256 = f"{experiment}{job}at{position}"
                            found.snapshots.add(
                                position=position, sha256=sha256, size_bytes=7, provider="framework", owner=experiment
                            )
        return found

    async def HasBlobs(self, request: pb.HasBlobsRequest) -> pb.HasBlobsResponse:
        there = [sha256 for sha256 in request.sha256 if sha256 not in self.gone]
        self.owned.setdefault(request.owner, []).extend(there)
        return pb.HasBlobsResponse(sha256=there)

    async def QueryJobs(self, request: pb.QueryJobsRequest) -> pb.QueryJobsResponse:
        jobs = []
        for (experiment, job), (given, _) in self._trials.items():
            if experiment == request.experiment:
                jobs.append(experiment_pb2.Job(id=job, hyperparameters=hyperparameters_to_proto(given)))
        return pb.QueryJobsResponse(jobs=jobs)


async def read(plan: Plan, seconds: float = SECONDS) -> tuple[EarlierTrial, ...]:
    return await PlanReader(plan, plan).read("root", "new", seconds)  # type: ignore[arg-type]  # what it needs of the stubs


def steps(at: int, value: int) -> Mapping[str, Any]:
    return {"lr": {"sequence": {"multi_step": {"milestones": [at], "values": [1, value]}}}}


def curves(found: Any) -> dict[str, list[tuple[int, float]]]:
    return {name: [(r.position, r.metrics["acc"]) for r in one.reports] for name, one in earlier_of(found).items()}


async def test_each_trial_has_its_whole_curve_whoever_trained_it_and_every_report_is_there_once() -> None:
    plan = Plan(
        {
            ("a", "1"): (steps(4, 2), {p: p / 10 for p in range(1, 9)}),
            ("a", "2"): (steps(4, 3), {p: p / 5 for p in range(5, 9)}),
            ("b", "1"): (steps(6, 4), {7: 0.5}),
        }
    )
    found = await read(plan)
    assert [(one.name, one.after, [r.position for r in one.reports]) for one in found] == [
        ("a/1", None, [1, 2, 3, 4, 5, 6, 7, 8]),
        ("a/2", ("a/1", 4), [5, 6, 7, 8]),
    ]
    assert found[1].hyperparameters == steps(4, 3)
    assert curves(found)["a/2"] == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4), (5, 1.0), (6, 1.2), (7, 1.4), (8, 1.6)]


async def test_what_is_saved_goes_with_who_has_the_results_and_is_the_new_experiment_s_too() -> None:
    plan = Plan(
        {
            ("a", "1"): (steps(4, 2), {p: p / 10 for p in range(1, 9)}),
            ("a", "2"): (steps(4, 3), {p: p / 5 for p in range(5, 8)}),
        }
    )
    plan.saved = {("a", "1"): [2, 4, 8], ("a", "2"): [3, 4, 6, 8]}
    plan.gone = {"a1at2"}
    found = await read(plan)
    assert {one.name: [(info.position, info.sha256) for info in one.snapshots] for one in found} == {
        "a/1": [(3, "a2at3"), (4, "a1at4"), (8, "a1at8")],
        "a/2": [(6, "a2at6")],
    }
    assert found[0].snapshots[0] == SnapshotInfo(3, "a2at3", 7, "framework")
    assert plan.owned == {"new": ["a1at4", "a1at8", "a2at3", "a2at6"]}


async def test_a_trial_that_others_have_gone_further_on_brings_nothing_new() -> None:
    plan = Plan(
        {("a", "1"): ({"lr": 1}, {1: 0.1, 2: 0.2}), ("b", "1"): ({"lr": 1}, {1: 0.1}), ("c", "1"): ({"lr": 2}, {})}
    )
    found = await read(plan)
    assert [(one.name, len(one.reports)) for one in found] == [("a/1", 2)]


async def test_a_plan_that_cannot_be_read_keeps_nobody_from_beginning(caplog: pytest.LogCaptureFixture) -> None:
    plan = Plan({("a", "1"): ({"lr": 1}, {1: 0.1})})
    plan.fails = True
    with caplog.at_level(logging.WARNING):
        assert await read(plan) == ()
        assert "the search plan cannot be read" in caplog.text
        plan.fails, plan.hangs = False, True
        assert await read(plan, 0.01) == ()
        assert "could not be read within 0.01 s" in caplog.text
