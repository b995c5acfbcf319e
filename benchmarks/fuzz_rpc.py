"""Does any request break a service? Random and hostile messages are sent to every method of a live cluster.

    python benchmarks/fuzz_rpc.py [--calls 5000] [--seed 0] [--json] [--only METHOD]

An embedded cluster runs jobs meanwhile. The calls go to all methods in turn, found by walking the descriptors of the protos,
health checks and reflection included. Half of them are mutations of valid calls, which another small cluster has recorded before
(`fuzzing.valid_messages`, `fuzzing.mutation`). The others send random fields with values that exist in the cluster, hostile values, or
bytes that are no message. Three of four calls carry a valid token of a kind that may call the method; the others carry none, a wrong
one, or one of another kind. Streams get several messages. Methods that only a scheduler may call, and that would end the cluster's own
scheduler if they succeeded (`BeginEpoch`, `AppendJournal`, ...), go to a second AppStat.

A finding is INTERNAL, UNKNOWN or DATA_LOSS as the code of a call, a process that has ended, a traceback in a log, or a cluster that
no longer answers at the end. The memory of each process is reported before and after. The exit code is 1 if there are findings.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import pkgutil
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import psutil
from figures.cluster import NOOP, embedded, ended, noop_spec
from fuzzing.mutation import MutationSource
from fuzzing.rpc_messages import MessageSource
from fuzzing.valid_messages import DATA_SET, record
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from observation import service_logs

import hopyard.v1
from hopyard._net.auth import CallerKind, SecretsFolder, new_token
from hopyard._net.auth.permissions import PERMISSIONS
from hopyard._net.auth.tickets import issue_ticket, node_key
from hopyard._net.rpc import channel
from hopyard._net.rpc.channel import Metadata, token_metadata
from hopyard._net.server.socket_folder import SocketFolder
from hopyard.client import AsyncClient
from hopyard.client.datasets import DataPartition, DataReplica
from hopyard.client.types import ExperimentState
from hopyard.errors import AlreadyExists, HopyardError
from hopyard.v1 import appstat_pb2, appstat_pb2_grpc

BAD: Final = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS)
ANSWERS: Final = {("PutBlob", grpc.StatusCode.DATA_LOSS)}
"""Codes of `BAD` that are the right answers of a method: the bytes of a blob do not have the hash that the client has named."""

SPARE: Final = {
    "BeginEpoch",
    "AppendJournal",
    "ImportJournal",
    "ReplaceProjections",
    "DeleteBlobs",
    "ReleaseBlobs",
    "SweepBlobs",
}
"""Methods that would change what the cluster's own scheduler stores; they go to the second AppStat."""

OWN_ERROR: Final = "Internal error from Core"
"""Details with which the client's gRPC ends a call itself, if the server ended it while a request was written."""

CALL_SECONDS: Final = 3.0
PARALLEL: Final = 4
MOST_EXPERIMENTS: Final = 20
"""Number of experiments above which the oldest are deleted."""

ROUND: Final = 100
"""Number of calls, rounded up to equally many of each method, after which the cluster gets live jobs again if calls have ended them,
and later calls use the ids that exist then."""


@dataclass
class Report:
    """The result of a run.

    Attributes:
        calls: Number of calls.
        mutated: Number of those calls that are mutations of valid ones.
        unrecorded: Methods of which no valid call is known.
        incomplete: Parts of the recording that failed, with the error.
        fewest: The method with the fewest calls, and their number.
        codes: Number of calls by status code.
        findings: What was wrong: method and message, each with its number of occurrences.
        dead: Processes that have ended.
        tracebacks: Number of tracebacks by the name of the log.
        memory_begin: Resident bytes of each process before.
        memory_warm: Resident bytes of each process after the first tenth of the calls, when modules are imported and caches are filled.
        memory_end: Resident bytes of each process after.
    """

    calls: int = 0
    mutated: int = 0
    unrecorded: list[str] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)
    fewest: tuple[str, int] = ("", 0)
    codes: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    dead: list[str] = field(default_factory=list)
    tracebacks: dict[str, int] = field(default_factory=dict)
    memory_begin: dict[str, int] = field(default_factory=dict)
    memory_warm: dict[str, int] = field(default_factory=dict)
    memory_end: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong."""
        return not (self.incomplete or self.findings or self.dead or self.tracebacks)


def methods() -> list[MethodDescriptor]:
    """Return the methods of all services of Hopyard, of health checks and of reflection, sorted by full name."""
    found: dict[str, MethodDescriptor] = {}
    modules = [module.name for module in pkgutil.iter_modules(hopyard.v1.__path__, "hopyard.v1.")]
    for name in (*modules, "grpc_health.v1.health_pb2", "grpc_reflection.v1alpha.reflection_pb2"):
        if name.endswith("_pb2"):
            services = importlib.import_module(name).DESCRIPTOR.services_by_name
            found |= {method.full_name: method for service in services.values() for method in service.methods}
    return [found[name] for name in sorted(found)]


class Callers:
    """Returns the headers of callers of each kind.

    Args:
        data: Data folder of the cluster.
        spare: Data folder of the second AppStat.
        node: Name of the node whose agent has its folder in the cluster's data folder.
        seed: Determines which calls carry a wrong token.
    """

    def __init__(self, data: Path, spare: Path, node: str, seed: int) -> None:
        self._folders = {False: SecretsFolder(data / "secrets"), True: SecretsFolder(spare / "secrets")}
        self._key = node_key(self._folders[False].ticket_key(), node)
        self._random = random.Random(seed)

    def headers(self, method: MethodDescriptor, message: bytes, *, spare: bool) -> Metadata:
        """Return the headers of one call of a method whose first message is `message`."""
        kinds = PERMISSIONS.get(f"/{method.containing_service.full_name}/{method.name}", frozenset())
        if not kinds or self._random.random() < 0.25:
            wrong = self._random.choice(("", "hop_user_00000000_" + "a" * 43, "~", *CallerKind))
            return token_metadata(
                self._token(CallerKind(wrong), method, message, spare) if wrong in list(CallerKind) else wrong
            )
        return token_metadata(self._token(self._random.choice(sorted(kinds)), method, message, spare))

    def _token(self, kind: CallerKind, method: MethodDescriptor, message: bytes, spare: bool) -> str:
        match kind:
            case CallerKind.USER | CallerKind.NODE | CallerKind.SERVICE:
                return self._folders[spare].token(kind)
            case CallerKind.TICKET:
                return issue_ticket(self._key, method.name, _object_of(method, message), time.time())
            case CallerKind.RUN:
                return _run_token()
            case CallerKind.POLICY:
                return new_token(kind).text  # No policy runs in a process of its own here.


def _object_of(method: MethodDescriptor, message: bytes) -> str:
    """Return the object for which a ticket must be issued so that a call of NodeAgentService is accepted."""
    try:
        request: Any = GetMessageClass(method.input_type).FromString(message)
    except DecodeError:
        return ""
    match method.name:
        case "FetchSnapshot":
            return str(request.sha256)
        case "StreamLogs":
            return f"{request.experiment}/{request.job}"
        case "JoinGang":
            return f"{request.run.experiment}/{request.run.job}"
        case _:
            return ""


def _run_token() -> str:
    """Return the token of a training process below this process; empty: none runs."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if token := process.environ().get("HOPYARD_TOKEN"):
                return token
    return ""


class Fuzzer:
    """Sends hostile calls to services.

    Args:
        addresses: Address of each service by its full name; the key "spare" is the second AppStat.
        source: Draws the random messages.
        mutations: Draws the mutations of valid calls.
        seed: Determines the order of the methods.
        report: Receives the result.
        callers: Returns the headers of each call; None: calls have no token.
    """

    def __init__(
        self,
        addresses: dict[str, str],
        source: MessageSource,
        mutations: MutationSource,
        seed: int,
        report: Report,
        callers: Callers | None = None,
    ) -> None:
        self._source = source
        self._mutations = mutations
        self._random = random.Random(seed)
        self._report = report
        self._callers = callers
        self._made: Counter[str] = Counter()
        self._channels = {
            name: grpc.aio.insecure_channel(address, (("grpc.use_local_subchannel_pool", 1),))
            for name, address in addresses.items()
        }

    async def close(self) -> None:
        """Close the connections."""
        for opened in self._channels.values():
            await opened.close()

    async def run(self, calls: int, chosen: Sequence[MethodDescriptor]) -> None:
        """Make `calls` calls of the chosen methods, several at the same time."""
        left = iter(range(calls))
        order = list(chosen)
        self._random.shuffle(order)

        async def worker() -> None:
            for number in left:
                method = order[number % len(order)]
                self._made[method.full_name] += 1
                await self._call(method)

        await asyncio.gather(*(worker() for _ in range(PARALLEL)))
        self._report.fewest = min(
            ((name, self._made[name]) for name in (one.full_name for one in chosen)), key=itemgetter(1)
        )

    async def _call(self, method: MethodDescriptor) -> None:
        service = method.containing_service.full_name
        spare = method.name in SPARE
        opened = self._channels.get("spare" if spare else service)
        if opened is None:
            return
        messages = self._mutations.draw(method, elsewhere=spare) if self._random.random() < 0.5 else []
        if messages:
            self._report.mutated += 1
        else:
            count = self._random.choice((0, 1, 1, 2, 5)) if method.client_streaming else 1
            messages = [self._source.draw(method.input_type) for _ in range(count)]
        headers = (
            self._callers.headers(method, (messages or [b""])[0], spare=spare) if self._callers is not None else ()
        )
        code, text = await self._outcome(opened, f"/{service}/{method.name}", method, messages, headers)
        self._report.calls += 1
        if text == OWN_ERROR:
            self._report.codes["ended by the client's gRPC"] += 1
            return
        self._report.codes[code.name] += 1
        if code in BAD and (method.name, code) not in ANSWERS:
            self._report.findings[f"{method.full_name}: {code.name}: {text:.200}"] += 1

    async def _outcome(
        self,
        opened: grpc.aio.Channel,
        name: str,
        method: MethodDescriptor,
        messages: Sequence[bytes],
        headers: Metadata,
    ) -> tuple[grpc.StatusCode, str]:
        """Make one call with serialized messages, and return its status code and message."""
        options: dict[str, Any] = {"timeout": CALL_SECONDS, "metadata": headers}
        patience = self._random.choice((0.05, 0.3))

        async def requests() -> AsyncIterator[bytes]:
            for message in messages:
                yield message
            if self._random.random() < 0.3:
                await asyncio.sleep(patience)

        kind = ("stream" if method.client_streaming else "unary") + ("_stream" if method.server_streaming else "_unary")
        given = requests() if method.client_streaming else messages[0]
        call = getattr(opened, kind)(name)(given, **options)
        try:
            if method.server_streaming:
                with suppress(TimeoutError):
                    async with asyncio.timeout(patience):
                        async for _ in call:
                            pass
            else:
                answer = await call
                if method.name == "BeginEpoch":
                    # Writes with another epoch are refused before they are looked at.
                    epoch = appstat_pb2.BeginEpochResponse.FromString(answer).epoch
                    self._mutations.numbers = {"epoch": [epoch]}
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        except asyncio.InvalidStateError:
            pass
        except asyncio.CancelledError:  # gRPC raises it, too, for a call that the client itself has ended.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
        finally:
            call.cancel()
        return grpc.StatusCode.OK, ""


async def keep_busy(client: AsyncClient, node: str, folder: Path) -> None:
    """Make sure that jobs run on the only node, that a study is open, and that a data set exists; undo a drain.

    Each report and each experiment stays in the scheduler's memory, which would hide what the calls leave there. Therefore jobs
    report five times a second, and old experiments are deleted.

    Args:
        client: A client of the cluster.
        node: Id of the node.
        folder: Folder for the file of the data set.
    """
    await client.undrain_node(node)
    experiments = await client.experiments()
    running = {one.name for one in experiments[:MOST_EXPERIMENTS] if one.state is ExperimentState.RUNNING}
    for old in experiments[MOST_EXPERIMENTS:]:
        with suppress(HopyardError):  # It is ending, or its group has younger members.
            await client.stop(old)
            await client.delete([old], force=True)
    if not running - {"study"}:
        paced = noop_spec(1000, 500, name="long", trainer="train.py:Paced", snapshot={"every": 50, "keep_best": 0})
        await client.create(paced, NOOP)
    if "study" not in running:
        stop = {"jobs": 0, "max_iterations": 9, "idle": 600}
        terms = noop_spec(0, 9, name="study", trainer="train.py:Paced", policy="stage_tree", stop=stop)
        study = await client.create(terms, NOOP)
        await client.request(study, {"x": 0.5}, 3)
    file = folder / "numbers.csv"
    file.write_text("1,2,3\n")
    with suppress(AlreadyExists):
        await client.register_data(DATA_SET, [DataPartition("train/0", replicas=(DataReplica(node, str(file)),))])


async def known_texts(client: AsyncClient) -> dict[str, list[str]]:
    """Return texts that exist in the cluster, by the name of the fields that take them."""
    experiments = await client.experiments()
    found = [job for one in experiments for job in await client.jobs(one)]
    jobs = sorted({job.id for job in found})
    ids = [one.id for one in experiments]
    nodes = await client.nodes()
    names = [one.id for one in nodes]
    slots = [f"{name}/0" for name in names]
    bundles = [one.bundle for one in experiments if one.bundle]
    snapshots = [one.sha256 for job in found for one in job.snapshots]
    return {
        "experiment": ids,
        "experiments": ids,
        "stream": ids,
        "group": ids,
        "job": jobs,
        "jobs": jobs,
        "parent": jobs,
        "node": [*names * 3, "stranger"],
        "slot": slots,
        "slots": slots,
        "Slot.id": slots,
        "Experiment.id": ids,
        "Job.id": jobs,
        "Node.id": names,
        "address": [one.address for one in nodes],
        "sha256": [*bundles, *snapshots],
        "bundle": bundles,
        "owner": [*ids, "bundles"],
        "": [*ids, *jobs, *names],
    }


def services_of(folder: Path) -> dict[str, psutil.Process]:
    """Return the services that run below this process with data in `folder`, by name."""
    names = {"nodeagent": "agent", "embedded": "scheduler, appstat, hpgen", "appstat": "second appstat"}
    found = {}
    for process in psutil.Process().children():
        line = " ".join(process.cmdline())
        if str(folder) in line:
            found[next((name for part, name in names.items() if part in line), line)] = process
    return found


def resident(processes: dict[str, psutil.Process]) -> dict[str, int]:
    """Return the resident bytes of those of the processes that run."""
    found = {}
    for name, process in processes.items():
        with suppress(psutil.Error):
            found[name] = process.memory_info().rss
    return found


async def hunt(folder: Path, calls: int, seed: int, only: str) -> Report:
    """Start a cluster with jobs in `folder`, send `calls` calls, and return the report."""
    report = Report()
    with tempfile.TemporaryDirectory(prefix="hopyard-recorded-") as scratch:
        recordings, problems = await record(Path(scratch))
    chosen = [method for method in methods() if only in method.full_name]
    report.unrecorded = [one.full_name for one in chosen if one.full_name not in recordings]
    report.incomplete = [f"{part}: {problem}" for part, problem in problems.items()]
    async with AsyncExitStack() as stack:
        _, client = await stack.enter_async_context(embedded(folder / "data", 2))
        spare = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hopyard_appstat", "--data", str(folder / "spare")),
            stderr=stack.enter_context((folder / "spare.log").open("wb")),
        )
        try:
            await ended(client, await client.create(noop_spec(4, 20), NOOP))
            addresses = {"spare": await asyncio.to_thread(wait_for_text, folder / "spare" / "appstat.address")}
            files = {"AppStatService": "appstat", "SearchPlanService": "appstat", "CatalogService": "appstat"}
            files |= {"HyperparameterGeneratorService": "hpgen", "NodeAgentService": "agent/agent"}
            for method in methods():
                service = method.containing_service
                path = folder / "data" / f"{files.get(service.name, 'scheduler')}.address"
                if service.name != "ApplicationService":
                    addresses[service.full_name] = path.read_text().strip()
            processes = services_of(folder)
            sockets = SocketFolder(folder / "data" / "agent").path
            addresses["hopyard.v1.ApplicationService"] = f"unix:{sockets}/application.sock"
            report.memory_begin = resident(processes)
            (node,) = await client.nodes()
            callers = Callers(folder / "data", folder / "spare", node.id, seed)
            source = MessageSource(seed, {})
            mutations = MutationSource(source, recordings)
            token = SecretsFolder(folder / "spare" / "secrets").token(CallerKind.SERVICE)
            async with channel(addresses["spare"], token=token) as opened:
                stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(opened)
                mutations.numbers = {"epoch": [(await stub.BeginEpoch(appstat_pb2.BeginEpochRequest())).epoch]}
            fuzzer = Fuzzer(addresses, source, mutations, seed, report, callers)
            try:
                size = -(-ROUND // len(chosen)) * len(chosen)
                for done in range(0, calls, size):
                    try:
                        await keep_busy(client, node.id, folder)
                    except HopyardError as error:
                        report.findings[f"jobs cannot be kept running: {type(error).__name__}: {error}"] += 1
                    source.known = await known_texts(client)
                    await fuzzer.run(min(size, calls - done), chosen)
                    if not report.memory_warm and 10 * (done + size) >= calls:
                        report.memory_warm = resident(processes)
            finally:
                await fuzzer.close()
            report.memory_end = resident(processes)
            report.dead = [name for name, process in processes.items() if not process.is_running()]
            for name, address in addresses.items():
                async with grpc.aio.insecure_channel(address) as reached:
                    try:
                        await health_pb2_grpc.HealthStub(reached).Check(health_pb2.HealthCheckRequest(), timeout=20)
                    except grpc.aio.AioRpcError as error:
                        report.dead.append(f"{name}: {error.code().name}")
        finally:
            with suppress(ProcessLookupError):
                spare.terminate()
            await spare.wait()
    report.tracebacks = tracebacks(folder)
    return report


def tracebacks(folder: Path) -> dict[str, int]:
    """Return the number of tracebacks in each log of a service below `folder` that has some."""
    logs = (path for path in folder.rglob("*.log") if "jobs" not in path.parts)
    return {str(one.log.relative_to(folder)): one.count for one in service_logs.tracebacks(logs)}


def wait_for_text(file: Path) -> str:
    """Wait up to 60 seconds until a file exists and has text, and return the text."""
    for _ in range(600):
        if file.exists() and (text := file.read_text().strip()):
            return text
        time.sleep(0.1)
    raise TimeoutError(f"{file} does not appear")


def main() -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5000, help="number of calls")
    parser.add_argument("--seed", type=int, default=0, help="seed of methods and messages")
    parser.add_argument("--only", default="", help="only methods whose full name contains this text")
    parser.add_argument("--keep", type=Path, help="folder for the data and logs of the cluster, which is kept")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hopyard-fuzz-") as scratch:
        folder = Path(given.keep or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(hunt(folder, given.calls, given.seed, given.only))
    if given.json:
        print(json.dumps(vars(report)))  # `asdict` turns a `Counter` of counts into one of pairs.
        return 0 if report.ok else 1
    print(f"at least {report.fewest[1]} calls of each method, the fewest of {report.fewest[0]}")
    print(f"{report.mutated} of {report.calls} calls are mutations of valid ones")
    for text in report.unrecorded:
        print(f"no valid calls: {text}")
    for text in report.incomplete:
        print(f"INCOMPLETE recording: {text}")
    print(f"{report.calls} calls: {', '.join(f'{name} {count}' for name, count in report.codes.most_common())}")
    for name, size in report.memory_begin.items():
        warm, end = report.memory_warm.get(name, 0), report.memory_end.get(name, 0)
        print(
            f"memory of {name}: {size >> 20} MiB before, {warm >> 20} MiB after a tenth of the calls, {end >> 20} MiB at the end"
        )
    for text, count in report.findings.most_common():
        print(f"FINDING {count} x {text}")
    for text in report.dead:
        print(f"DEAD {text}")
    for log, count in report.tracebacks.items():
        print(f"{count} TRACEBACKS in {log}")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
