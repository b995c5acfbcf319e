"""Reading of the search plan: earlier training that a new experiment can reuse.

The plan is read once, before the experiment is created, and becomes part of the first record of its journal, so a
replay needs no other source. The snapshots get the new experiment's stream as an additional owner, so the store keeps
them independently of the earlier experiments. If the experiment is never created, `hopyard gc` deletes them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from google.protobuf.json_format import Parse

from hopyard._net.rpc.values import hyperparameters_from_proto, report_from_proto
from hopyard._runtime.bundle import BundleError, code_files, code_hash
from hopyard.errors import HopyardError, InvalidInput
from hopyard.policy.vocabulary import Report
from hopyard.v1 import appstat_pb2 as pb
from hopyard.v1 import experiment_pb2
from hopyard_engine.core.types import EarlierTrial, SnapshotInfo

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc

_LOG = logging.getLogger(__name__)

Code = TypeVar("Code")

REPORTS: Final = 50_000
"""Maximum number of reports to load, because they become part of one record."""

SECONDS: Final = 30.0
"""Time limit of reading, in seconds."""

_PAGE: Final = 5000

_HASHES: Final = 1000


async def hash_of_code(stub: appstat_pb2_grpc.AppStatServiceAsyncStub, bundle: str) -> str:
    """Returns a hash of the files in a code bundle, without experiment files; empty without a bundle.

    Raises:
        InvalidInput: The blob is not a bundle.
    """
    return await _read_code(stub, bundle, code_hash) if bundle else ""


async def files_of_code(stub: appstat_pb2_grpc.AppStatServiceAsyncStub, bundle: str) -> dict[str, str]:
    """Returns the files that `hash_of_code` covers, each with a text that identifies its content; empty without a bundle.

    Raises:
        InvalidInput: The blob is not a bundle.
    """
    return await _read_code(stub, bundle, code_files) if bundle else {}


async def _read_code(
    stub: appstat_pb2_grpc.AppStatServiceAsyncStub, bundle: str, read: Callable[[bytes], Code]
) -> Code:
    parts = [part.data async for part in stub.GetBlob(pb.GetBlobRequest(sha256=bundle))]
    try:
        return await asyncio.to_thread(read, b"".join(parts))
    except BundleError as error:
        raise InvalidInput(f"bundle: {error}") from error


@dataclass
class _Node:
    """A node of the search plan.

    Attributes:
        key: The key of the node.
        start: The position at which it begins.
        results: Reports by position.
        snapshots: Snapshots by position.
        references: Experiment, job and end position of each trial that passes through the node.
    """

    key: str
    start: int
    results: dict[int, Report] = field(default_factory=dict)
    snapshots: dict[int, SnapshotInfo] = field(default_factory=dict)
    references: list[tuple[str, str, int]] = field(default_factory=list)


class PlanReader:
    """Reads the search plan.

    Args:
        plan: The search plan service.
        appstat: AppStat, which has the configurations of jobs.
    """

    def __init__(
        self, plan: appstat_pb2_grpc.SearchPlanServiceAsyncStub, appstat: appstat_pb2_grpc.AppStatServiceAsyncStub
    ) -> None:
        self._plan = plan
        self._appstat = appstat

    async def read(
        self, root: str, owner: str, seconds: float = SECONDS, without: Collection[str] = ()
    ) -> tuple[EarlierTrial, ...]:
        """Reads the trials below a root.

        If they cannot be read, or not in time, it logs a warning and returns none, so the experiment starts without
        them.

        Args:
            root: The root of the search plan.
            owner: The stream of the new experiment, which becomes an owner of the snapshots.
            seconds: Time limit.
            without: Experiments whose trials are left out.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self._owned(await self._read(root, without), owner)
        except TimeoutError:
            _LOG.warning("the search plan could not be read within %g s: what it holds may be trained again", seconds)
        except HopyardError as error:
            _LOG.warning("the search plan cannot be read, so what it holds may be trained again: %s", error)
        return ()

    async def _read(self, root: str, without: Collection[str]) -> tuple[EarlierTrial, ...]:
        nodes, read = list[_Node](), 0
        request = pb.ListPlanNodesRequest(root=root, page_size=_PAGE)
        while True:
            page = await self._plan.ListPlanNodes(request)
            for node in page.nodes:
                if node.reached > node.start and read < REPORTS:
                    nodes.append(await self._node(node.key, node.start))
                    read += len(nodes[-1].results)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                break
        if read >= REPORTS:
            _LOG.warning("the search plan holds more than %d results: what begins last may be trained again", REPORTS)
        ways: dict[tuple[str, str], list[tuple[_Node, int]]] = {}
        for each in nodes:  # Nodes are sorted by start, so the nodes of a trial are in order.
            for experiment, job, end in each.references:
                if experiment in without:
                    continue
                ways.setdefault((experiment, job), []).append((each, end))
        configurations: dict[str, Mapping[str, Mapping[str, Any]]] = {}
        for experiment in sorted({experiment for experiment, _ in ways}):
            configurations[experiment] = await self._configurations(experiment)
        return _trials(ways, configurations)

    async def _node(self, key: str, start: int) -> _Node:
        found, request = _Node(key, start), pb.GetPlanNodeRequest(key=key, page_size=_PAGE)
        while True:
            page = await self._plan.GetPlanNode(request)
            found.references += [(one.experiment, one.job, one.end) for one in page.references]
            for saved in page.snapshots:
                info = SnapshotInfo(saved.position, saved.sha256, saved.size_bytes, saved.provider)
                found.snapshots.setdefault(saved.position, info)
            for one in page.results:
                if not one.report.part:
                    found.results.setdefault(one.report.position, report_from_proto(one.report))
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return found

    async def _owned(self, trials: tuple[EarlierTrial, ...], owner: str) -> tuple[EarlierTrial, ...]:
        """Returns the trials with only the snapshots that the store has, and makes `owner` an owner of these."""
        hashes = sorted({info.sha256 for trial in trials for info in trial.snapshots})
        there = set[str]()
        for start in range(0, len(hashes), _HASHES):
            request = pb.HasBlobsRequest(sha256=hashes[start : start + _HASHES], owner=owner)
            there.update((await self._appstat.HasBlobs(request)).sha256)
        return tuple(
            replace(trial, snapshots=tuple(info for info in trial.snapshots if info.sha256 in there))
            for trial in trials
        )

    async def _configurations(self, experiment: str) -> Mapping[str, Mapping[str, Any]]:
        """Returns the configurations of an experiment's jobs by id, in order of creation."""
        found: dict[str, Mapping[str, Any]] = {}
        request = pb.QueryJobsRequest(experiment=experiment, page_size=_PAGE)
        while True:
            page = await self._appstat.QueryJobs(request)
            for row in page.jobs:
                if row.state != "REMOVED":
                    job = Parse(row.detail_json, experiment_pb2.Job(), ignore_unknown_fields=True)
                    found[row.id] = hyperparameters_from_proto(job.hyperparameters)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return found


def _trials(
    ways: Mapping[tuple[str, str], list[tuple[_Node, int]]],
    configurations: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> tuple[EarlierTrial, ...]:
    """Returns the trials; each has only the results that no earlier one has. Trials without new results are left out."""
    found: list[EarlierTrial] = []
    covered: dict[str, tuple[str, int]] = {}
    for experiment, known in configurations.items():
        for job, configuration in known.items():
            way = _trained(ways.get((experiment, job), []))
            if not way:
                continue
            name, after = f"{experiment}/{job}", None
            for node, end in reversed(way):
                if node.key in covered:
                    other, until = covered[node.key]
                    after = (other, min(until, end))
                    break
            begin = after[1] if after is not None else 0
            reports = [
                report
                for node, end in way
                for position, report in sorted(node.results.items())
                if begin < position <= end
            ]
            if not reports:
                continue
            snapshots = [
                info
                for node, end in way
                for position, info in sorted(node.snapshots.items())
                if begin < position <= end
            ]
            found.append(EarlierTrial(name, configuration, tuple(reports), after, tuple(snapshots)))
            for node, end in way:
                if end > covered.get(node.key, ("", 0))[1]:
                    covered[node.key] = name, end
    return tuple(found)


def _trained(way: list[tuple[_Node, int]]) -> list[tuple[_Node, int]]:
    """Returns the leading part of a trial's path that has results, without gaps between nodes."""
    found: list[tuple[_Node, int]] = []
    at = 0
    for node, end in way:
        reached = max((position for position in node.results if position <= end), default=0)
        if node.start != at or not reached:
            break
        found.append((node, reached))
        if reached < end:
            break
        at = end
    return found
