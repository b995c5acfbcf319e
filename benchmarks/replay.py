"""How fast is a replay, and how fast does a scheduler start if there are many finished experiments?

    python benchmarks/replay.py [--events 100000] [--finished 1000] [--json]

Both are measured on a real AppStat (SQLite in a temporary folder) over gRPC on loopback. The journal is produced by the real core with
simulated runs on eight slots, so it contains what a live cluster would have written. Each figure has a baseline of the same run: only
reading the same records, and a start without experiments.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from hopyard._net.auth import CallerKind, find_token
from hopyard._net.rpc import channel
from hopyard.policy import CONTINUE, TERMINATE, Cluster, Decision, IterationFinish, JobView, Policy
from hopyard.policy.vocabulary import DecisionKind, JobState, Report, RunEndReason, RunKey, StreamId
from hopyard.spec import canonical_json, parse_spec
from hopyard.v1 import appstat_pb2, appstat_pb2_grpc
from hopyard_appstat.service import AppStatService
from hopyard_engine.core import Core
from hopyard_engine.core.effects import (
    AskOutside,
    Decide,
    ExperimentChanged,
    JobChanged,
    Record,
    ReportAccepted,
    Send,
    Start,
    UpCall,
)
from hopyard_engine.core.events import (
    Answered,
    Ended,
    Event,
    NodeJoined,
    Reports,
    RunBody,
    RunMessage,
    SnapshotStored,
    SnapshotTaken,
    Started,
    StreamCreated,
)
from hopyard_engine.core.types import SlotSpec, SnapshotInfo
from hopyard_engine.explain.story import Story
from hopyard_engine.journal.codec import encode, kind_of
from hopyard_engine.policy_host import Host
from hopyard_engine.policy_host.factory import host_of
from hopyard_engine.replay import Replay
from hopyard_engine.settings import settings_of
from hopyard_hpgen.service import HpgenService
from hopyard_scheduler.experiments.program import program_of
from hopyard_scheduler.runtime.journal import Journal, JournalEntry
from hopyard_scheduler.runtime.projections import Changes
from hopyard_scheduler.search_plan.projection import PlanRows
from hopyard_scheduler.service import SchedulerService

SLOTS = 8
LENGTH = 60
BATCH = 1_000


class Racing(Policy):
    """Decides after each iteration by the order of arrival: a job that arrives late and is far below the best value is terminated."""

    def __init__(self) -> None:
        self.best: dict[int, float] = {}
        self.created = 0

    def allocate_jobs(self, cluster: Cluster) -> None:
        for slot in cluster.idle_slots():
            job = cluster.get_idle_job()
            if job is None:
                break
            cluster.start_job(job, slot.id)
        if cluster.experiment.jobs_left and not any(j.state is JobState.CREATING for j in self._newest(cluster)):
            cluster.create_job()
            self.created += 1

    def _newest(self, cluster: Cluster) -> list[JobView]:
        newest = cluster.jobs.get(str(self.created))
        return [newest] if newest is not None else []

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        value = event.report.metrics["accuracy"]
        best = self.best.setdefault(event.position, value)
        self.best[event.position] = max(best, value)
        if event.position >= 20 and value < 0.5 * best:
            return TERMINATE
        return CONTINUE if event.at_until else Decision.proceed(event.position + 1)


class World:
    """The real core and a policy with simulated agents whose training takes no time. It collects what a live cluster would journal."""

    def __init__(self, seed: int, slots: int = SLOTS) -> None:
        self.core = Core()
        self.rng = random.Random(seed)
        self.now = 1_700_000_000.0
        self.records: list[Record] = []
        self.changes = Changes()
        self.hosts: dict[str, Host] = {}
        self.sequences: dict[RunKey, int] = {}
        self.runs: dict[RunKey, Iterator[RunBody]] = {}
        self.first = 1  # The position of the first report of a run.
        if slots:
            self.feed(NodeJoined(self.now, "n", "1", tuple(SlotSpec(f"n/{i}") for i in range(slots))))

    def propose(self, question: AskOutside) -> object:
        return {"lr": self.rng.random(), "width": self.rng.randrange(1, 9)}

    def feed(self, event: Event) -> None:
        waiting, calls = deque([event]), deque[UpCall]()
        while waiting or calls:
            if not waiting:
                call = calls.popleft()
                stream = self.core.streams[call.stream]
                if stream.conversation.is_answered_by(call.number):
                    waiting.append(self.hosts[stream.id].answer(stream, call))
                continue
            for effect in self.core.handle(waiting.popleft()):
                match effect:
                    case Record():
                        self.records.append(effect)
                    case UpCall():
                        calls.append(effect)
                    case AskOutside():
                        waiting.append(Answered(self.now, effect.stream, effect.ticket, self.propose(effect)))
                    case Send(body=Start() as start):
                        self.runs[effect.run] = _train(start, self.rng.random(), self.first)
                    case Send(body=Decide(kind=DecisionKind.TERMINATE)):
                        position = self.core.streams[effect.run.stream].jobs[effect.run.job].position
                        self.runs[effect.run] = iter([Ended(RunEndReason.TERMINATED, position)])
                    case JobChanged() | ExperimentChanged() | ReportAccepted():
                        self.changes.note(effect)
                    case _:
                        pass

    def create(self, name: str, spec: dict[str, object]) -> None:
        text = canonical_json(parse_spec(spec))
        payload = {"name": name, "spec": text, "bundle": "", "interpreter": "", "request": name}
        program = program_of(payload)
        self.hosts[name] = host_of(program.spec)
        self.feed(StreamCreated(self.now, StreamId(name), settings_of(program.spec), payload))

    def step(self) -> bool:
        """Process one message of one run. Return False if there is no run."""
        if not self.runs:
            return False
        key = self.rng.choice(list(self.runs))
        body = next(self.runs[key], None)
        if body is None:
            del self.runs[key]
            return True
        self.now += 0.01
        self.sequences[key] = self.sequences.get(key, 0) + 1
        self.feed(RunMessage(self.now, *key, self.sequences[key], body))
        return True


def _train(start: Start, quality: float, reported: int) -> Iterator[RunBody]:
    first = start.snapshot.position if start.snapshot is not None else 0
    yield Started(first)
    for position in range(max(first + 1, reported), start.until + 1):
        at_until = position == start.until
        metrics = {"accuracy": quality * position / LENGTH, "loss": 1 / position}
        yield Reports((Report(position, metrics, 0.5, at_until=at_until),))
    info = SnapshotInfo(start.until, f"{quality:.60f}", 1_000)
    yield SnapshotTaken(info)
    yield Ended(RunEndReason.UNTIL, start.until, info)
    yield SnapshotStored(start.until, info.sha256)


def spec(jobs: int, length: int, policy: str) -> dict[str, object]:
    return {
        "name": "bench",
        "trainer": "train.py:Bench",
        "metric": {"name": "accuracy", "mode": "max"},
        "space": {"lr": {"uniform": [0.0, 1.0]}, "width": {"choice": [1, 2, 3, 4, 5, 6, 7, 8]}},
        "policy": policy,
        "stop": {"jobs": jobs, "max_iterations": length},
    }


async def write(journal: Journal, world: World) -> None:
    """Append the records that the world has collected to a journal, and then their projections."""
    entries = [JournalEntry(r.stream, kind_of(r.event), encode(r.event)) for r in world.records]
    for begin in range(0, len(entries), BATCH):
        await journal.append(entries[begin : begin + BATCH], [], world.now)
    rows = list(world.changes.rows(world.core, world.now, PlanRows()))
    for begin in range(0, len(rows), BATCH):
        await journal.append([], rows[begin : begin + BATCH], world.now)
    world.records, world.changes = [], Changes()


async def bare(stub: appstat_pb2_grpc.AppStatServiceAsyncStub, stream: str) -> tuple[int, float]:
    """Return the number of records of a stream and the seconds to read them, without processing them."""
    began, found = time.perf_counter(), 0
    async for response in stub.ReadJournal(appstat_pb2.ReadJournalRequest(stream=stream)):
        found += len(response.records)
    return found, time.perf_counter() - began


async def measure_replay(folder: Path, events: int, policy: str, length: int) -> dict[str, object]:
    world = World(1)
    world.create("long", spec(1_000_000, length, policy))
    while len(world.records) < events and world.step():
        pass
    appstat = AppStatService(data=folder)
    address = await appstat.start()
    try:
        async with channel(address, token=find_token(CallerKind.SERVICE, address)) as link:
            stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(link)
            journal = Journal(stub)
            await journal.begin("benchmark")
            await write(journal, world)
            count, reading = await bare(stub, "long")
            began = time.perf_counter()
            async for _ in Journal(stub).read(StreamId("long")):
                pass
            decoding = time.perf_counter() - began
            began, used = time.perf_counter(), time.process_time()
            driven = Replay(Core(), lambda x: host_of(program_of(x.founder.payload).spec))
            async for event in Journal(stub).read(StreamId("long")):
                driven.take(event)
            replaying, cpu = time.perf_counter() - began, time.process_time() - used
            began, story = time.perf_counter(), Story()
            async for event in Journal(stub).read(StreamId("long")):
                story.tell(event)
            telling = time.perf_counter() - began
    finally:
        await appstat.stop(1)
    assert driven.number == count
    assert driven.first is None, driven.first
    return {
        "policy": policy,
        "events": count,
        "jobs": len(world.core.streams[StreamId("long")].jobs),
        "up_calls": driven.up_calls,
        "decisions_equal": driven.first is None,
        "read_seconds": reading,
        "read_and_decode_seconds": decoding,
        "replay_seconds": replaying,
        "replay_cpu_seconds": cpu,
        "replay_events_per_second": count / replaying,
        "story_seconds": telling,
    }


async def measure_restart(folder: Path, finished: int) -> dict[str, float]:
    empty = await _start(folder / "empty", None, 0)
    world = World(2)
    for index in range(finished):
        world.create(f"done-{index:06d}", spec(2, 4, "default"))
        while world.step():
            pass
    assert all(x.state.ended for x in world.core.streams.values())
    beside = await _start(folder / "full", world, finished)
    return {f"{name}_seconds": value for name, value in beside.items()} | {
        "finished": finished,
        **{f"{name}_beside_nothing_seconds": value for name, value in empty.items() if name != "read_rows"},
    }


async def _start(folder: Path, world: World | None, finished: int) -> dict[str, float]:
    """Return the seconds that a scheduler needs to start, in this process and as a separate process, and to only read the rows.

    `world` contains `finished` finished experiments, which are written first; None: there are none.
    """
    appstat, hpgen = AppStatService(data=folder), HpgenService()
    address, generators = await appstat.start(), await hpgen.start()
    try:
        async with channel(address, token=find_token(CallerKind.SERVICE, address)) as link:
            stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(link)
            if world is not None:
                journal = Journal(stub)
                await journal.begin("benchmark")
                await write(journal, world)
            began, token, rows = time.perf_counter(), "", 0
            while True:
                request = appstat_pb2.QueryExperimentsRequest(page_size=1000, page_token=token)
                page = await stub.QueryExperiments(request)
                rows, token = rows + len(page.experiments), page.next_page_token
                if not token:
                    break
            reading = time.perf_counter() - began
        assert rows == finished
        began = time.perf_counter()
        scheduler = SchedulerService(appstat=address, hpgen=generators)
        try:
            await scheduler.start()
            serving = time.perf_counter() - began
        finally:
            await scheduler.stop(1)
        return {
            "start": serving,
            "process": await asyncio.to_thread(_process, folder, address, generators),
            "read_rows": reading,
        }
    finally:
        await hpgen.stop(1)
        await appstat.stop(1)


def _process(folder: Path, appstat: str, hpgen: str) -> float:
    """Return the seconds from starting a scheduler process until it serves, with its imports."""
    command = [sys.executable, "-m", "hopyard_scheduler", "--appstat", appstat, "--hpgen", hpgen]
    served, began = folder / "scheduler.address", time.perf_counter()
    with subprocess.Popen([*command, "--data", str(folder)], stderr=subprocess.DEVNULL) as process:
        try:
            while not served.exists():
                if process.poll() is not None or time.perf_counter() - began > 60:
                    raise RuntimeError(f"{' '.join(command)}: does not serve (exit code {process.returncode})")
                time.sleep(0.01)
            return time.perf_counter() - began
        finally:
            process.terminate()


async def main(events: int, finished: int, as_json: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        replays = [
            await measure_replay(Path(name) / f"{policy[:6]}-{length}", events, policy, length)
            for policy, length in (("replay:Racing", LENGTH), ("default", 20 * LENGTH), ("default", LENGTH))
        ]
        restart = await measure_restart(Path(name) / "restart", finished)
    if as_json:
        print(json.dumps({"replays": replays, "restart": restart}, indent=2))
        return
    columns = ("read", "read_and_decode", "replay", "replay_cpu", "story")
    print(f"{'policy':<14}{'events':>8}{'up-calls':>9}{'jobs':>6}{'events/s':>10}  seconds: " + ", ".join(columns))
    for r in replays:
        seconds = "".join(f"{r[f'{column}_seconds']:>9.2f}" for column in columns)
        print(
            f"{r['policy']:<14}{r['events']:>8}{r['up_calls']:>9}{r['jobs']:>6}{r['replay_events_per_second']:>10.0f}  {seconds}"
        )
    print(
        f"scheduler start: {restart['start_seconds']:.3f} s beside {restart['finished']} finished experiments, "
        f"{restart['start_beside_nothing_seconds']:.3f} s beside none; as a process {restart['process_seconds']:.2f} s and "
        f"{restart['process_beside_nothing_seconds']:.2f} s; reading their rows {restart['read_rows_seconds']:.3f} s"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--finished", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parent))  # Where `replay:Racing` is found.
    asyncio.run(main(given.events, given.finished, given.json))
