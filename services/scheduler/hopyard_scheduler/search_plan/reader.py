"""Reading of the search plan: earlier training that a new experiment can reuse.

The plan is read once, before the experiment is created. The result becomes part of the first record of the experiment's
journal, so a replay needs no other source. The stream of the new experiment becomes an additional owner of the
snapshots, so the store retains them independently of the earlier experiments. If the experiment is never created,
`hopyard gc` deletes them.

A trial is the training of one configuration in an earlier experiment.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar, cast

from hopyard._net.rpc.values import hyperparameters_from_proto, report_from_proto
from hopyard._runtime.bundle import BundleError, code_files, code_hash
from hopyard.errors import HopyardError, InvalidInput
from hopyard.policy.vocabulary import Report
from hopyard.v1 import appstat_pb2 as pb
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

_SPOOLED_BYTES: Final = 4 * 1024 * 1024
"""Size up to which a code bundle is kept in memory; larger ones are written to a temporary file."""

_MOST_PACKED_BYTES: Final = 256 * 1024 * 1024


async def hash_of_code(stub: appstat_pb2_grpc.AppStatServiceAsyncStub, bundle: str) -> str:
    """Return a hash of the files in a code bundle, without experiment files (YAML); empty if `bundle` is empty.

    Args:
        stub: Client of AppStat, from which the bundle is read.
        bundle: The hash of the bundle; empty: the experiment has no bundle.

    Raises:
        InvalidInput: The blob with this hash is not a bundle.
    """
    return await _read_code(stub, bundle, code_hash) if bundle else ""


async def files_of_code(stub: appstat_pb2_grpc.AppStatServiceAsyncStub, bundle: str) -> dict[str, str]:
    """Return, for each file that `hash_of_code` covers, a text that identifies its content; empty if `bundle` is empty.

    Args:
        stub: Client of AppStat, from which the bundle is read.
        bundle: The hash of the bundle; empty: the experiment has no bundle.

    Raises:
        InvalidInput: The blob with this hash is not a bundle.
    """
    return await _read_code(stub, bundle, code_files) if bundle else {}


async def _read_code(
    stub: appstat_pb2_grpc.AppStatServiceAsyncStub, bundle: str, read: Callable[[BinaryIO], Code]
) -> Code:
    size = 0
    with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES) as file:
        async for part in stub.GetBlob(pb.GetBlobRequest(sha256=bundle)):
            size += len(part.data)
            if size > _MOST_PACKED_BYTES:
                raise InvalidInput(f"bundle: it has more than {_MOST_PACKED_BYTES} bytes, which no bundle has")
            await asyncio.to_thread(file.write, part.data)
        file.seek(0)
        try:
            return await asyncio.to_thread(read, cast("BinaryIO", file))
        except BundleError as error:
            raise InvalidInput(f"bundle: {error}") from error


@dataclass
class _Node:
    """A node of the search plan, as read from AppStat: a range of positions that trials with equal hyperparameters share.

    Attributes:
        key: The key that identifies the node in AppStat.
        start: The position at which it begins.
        results: Reports by position.
        snapshots: Snapshots by position.
        references: Experiment id, job id and end position of each trial that passes through the node.
    """

    key: str
    start: int
    results: dict[int, Report] = field(default_factory=dict)
    snapshots: dict[int, SnapshotInfo] = field(default_factory=dict)
    references: list[tuple[str, str, int]] = field(default_factory=list)


class PlanReader:
    """Reads the search plan and makes a new experiment's stream an owner of the snapshots that it can reuse.

    Args:
        plan: Client of the search plan service.
        appstat: Client of AppStat, from which the configurations of jobs are read.
    """

    def __init__(
        self, plan: appstat_pb2_grpc.SearchPlanServiceAsyncStub, appstat: appstat_pb2_grpc.AppStatServiceAsyncStub
    ) -> None:
        self._plan = plan
        self._appstat = appstat

    async def read(
        self, root: str, owner: str, seconds: float = SECONDS, without: Collection[str] = ()
    ) -> tuple[EarlierTrial, ...]:
        """Return the trials below a root of the search plan, with those of their snapshots that the store has.

        If AppStat fails or the time limit is exceeded, it logs a warning and returns an empty tuple. The experiment
        then starts without earlier training.

        Args:
            root: The root of the search plan (`ExperimentProgram.root`).
            owner: The stream of the new experiment. It becomes an owner of the snapshots.
            seconds: Time limit in seconds.
            without: Ids of experiments whose trials are omitted.
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
        """Make a stream an owner of the trials' snapshots in the store. Their bytes are not verified, because that may take long.

        Args:
            trials: Trials of earlier experiments.
            owner: The id of the stream.

        Returns:
            The trials, without the snapshots that the store does not have.
        """
        hashes = sorted({info.sha256 for trial in trials for info in trial.snapshots})
        there = set[str]()
        for start in range(0, len(hashes), _HASHES):
            request = pb.HasBlobsRequest(sha256=hashes[start : start + _HASHES], owner=owner, sizes_only=True)
            there.update((await self._appstat.HasBlobs(request)).sha256)
        return tuple(
            replace(trial, snapshots=tuple(info for info in trial.snapshots if info.sha256 in there))
            for trial in trials
        )

    async def _configurations(self, experiment: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the configurations of an experiment's jobs by job id, in order of creation."""
        found: dict[str, Mapping[str, Any]] = {}
        request = pb.QueryJobsRequest(experiment=experiment, page_size=_PAGE)
        while True:
            page = await self._appstat.QueryJobs(request)
            found.update({job.id: hyperparameters_from_proto(job.hyperparameters) for job in page.jobs})
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return found


def _trials(
    ways: Mapping[tuple[str, str], list[tuple[_Node, int]]],
    configurations: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> tuple[EarlierTrial, ...]:
    """Return the trials, each with only the results and snapshots that no preceding trial in the returned tuple has.

    Trials without new results are omitted.

    Args:
        ways: By experiment id and job id: the nodes on the path of the trial in order, each with the position at which
            the trial leaves the node.
        configurations: By experiment id and job id: the configuration.
    """
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
    """Return the leading part of a trial's path that has results, without gaps between nodes.

    Args:
        way: The nodes of the path in order, each with the position at which the trial leaves the node.

    Returns:
        Nodes, each with the position of the trial's last result in it.
    """
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
