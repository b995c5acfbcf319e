"""The figure `scale`: what a report and a new job cost if the experiment already has many finished jobs.

The finished jobs are produced by the real core and the real policy with simulated runs, and written into the experiment's journal. Then
a normal cluster is started on that journal, and the experiment is extended by jobs that really train.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import replay

from figures.cluster import NOOP, cpu_seconds, embedded, ended, noop_spec
from figures.frame import Sample
from hopyard._net.auth import CallerKind, find_token
from hopyard._net.rpc import channel
from hopyard.client.types import Experiment
from hopyard.errors import NotFound
from hopyard.policy.vocabulary import StreamId
from hopyard.spec import parse_spec
from hopyard.v1 import appstat_pb2_grpc
from hopyard_appstat.service import AppStatService
from hopyard_engine.core.effects import AskOutside
from hopyard_engine.core.events import NodeJoined
from hopyard_engine.core.types import SlotSpec
from hopyard_engine.policy_host.factory import host_of
from hopyard_engine.replay import Replay
from hopyard_hpgen.generators.random import RandomGenerator
from hopyard_scheduler.experiments.program import program_of
from hopyard_scheduler.runtime.journal import Journal

SLOTS: Final = 2
FEW: Final = 100
MANY: Final = 10_000
RATIO: Final = 1.2
SHORT: Final = 10
LONG: Final = 20_000
WARM: Final = 20
JOBS: Final = 256
"""Number of measured short jobs, after `WARM` others. Short jobs give the cost of a job, long jobs the cost of a report."""


async def measure(folder: Path) -> list[Sample]:
    """Measure once."""
    samples = []
    for what, iterations, unit, scale in (("a job", SHORT, "ms", 1e3), ("a report", LONG, "us", 1e6)):
        cost, whole = {}, {}
        for finished in (FEW, MANY):
            cost[finished], whole[finished] = await _cost(folder / f"{iterations}-{finished}", finished, iterations)
        samples.append(
            Sample(
                name=f"CPU of {what} beside {MANY:,} finished jobs, to that beside {FEW}",
                value=cost[MANY] / cost[FEW],
                unit="x",
                most=RATIO,
                baseline=1.0,
                against="the same cost",
                beside={f"{unit} {what}, beside {finished:,}": cost[finished] * scale for finished in cost}
                | {f"CPU s from extension to end, beside {finished:,}": whole[finished] for finished in cost},
            )
        )
    return samples


async def _cost(data: Path, finished: int, iterations: int) -> tuple[float, float]:
    """Return the CPU seconds of all processes per further job or report, and for the whole extension of the experiment.

    Only the middle part of the extension is measured: at its start, the generator repeats its earlier proposals, which is no cost of a
    job.

    Args:
        data: Data folder of the cluster.
        finished: Number of finished jobs of the experiment.
        iterations: Iterations of each job: SHORT measures jobs, LONG measures reports.
    """
    async with embedded(data, 0) as (_, client):
        spec = noop_spec(finished, iterations, generator={"name": "random", "seed": 1})
        experiment = await client.create(spec, NOOP)
    await _finish(data, experiment, iterations)
    async with embedded(data, SLOTS) as (_, client):
        # Read the existing journal and start the training processes before the measurement.
        await ended(client, await client.extend(experiment, jobs=SLOTS))
        before = finished + SLOTS
        jobs = WARM + JOBS + WARM if iterations == SHORT else SLOTS
        begun = cpu_seconds()
        await client.extend(experiment, jobs=jobs)

        async def progress() -> int:
            if iterations == SHORT:
                return (await client.get(experiment)).jobs.get("COMPLETED", 0) - before
            live = [await client.job(experiment, str(before + number + 1)) for number in range(SLOTS)]
            return sum(job.position for job in live)

        total = jobs if iterations == SHORT else SLOTS * LONG
        first = await _until(progress, total // 10), cpu_seconds()
        last = await _until(progress, total * 9 // 10), cpu_seconds()
        experiment = await ended(client, experiment)
        whole = cpu_seconds() - begun
    assert experiment.jobs == {"COMPLETED": before + jobs}, experiment.jobs
    return (last[1] - first[1]) / (last[0] - first[0]), whole


async def _until(progress: Callable[[], Awaitable[int]], least: int) -> int:
    while True:
        with suppress(NotFound):  # A job has not been created yet.
            if (found := await progress()) >= least:
                return found
        await asyncio.sleep(0.05)


class _World(replay.World):
    """A simulated cluster that proposes the same configurations as the experiment's generator will when it is opened again."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(1, slots=0)
        spec = parse_spec(experiment.spec)
        self._generator = RandomGenerator(spec.space, spec.generator.seed)
        self._asked = 0

    def propose(self, question: AskOutside) -> object:
        self._asked += 1
        return self._generator.create(question.payload["job"], self._asked - 1)


async def _finish(data: Path, experiment: Experiment, iterations: int) -> None:
    """Complete all jobs of an experiment that has not started, by simulated runs, and append that to its journal."""
    appstat = AppStatService(data=data)
    address = await appstat.start()
    try:
        async with channel(address, token=find_token(CallerKind.SERVICE, address)) as link:
            stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(link)
            journal = Journal(stub)
            await journal.begin("benchmark")
            world = _World(experiment)
            driven = Replay(world.core, lambda x: host_of(program_of(x.founder.payload).spec))
            async for event in journal.read(StreamId(experiment.id)):
                driven.take(event)
                world.now = max(world.now, event.at)
            assert driven.experiment is not None
            world.core.recovered()
            world.hosts[experiment.id] = driven.host or host_of(program_of(driven.experiment.founder.payload).spec)
            world.first = iterations if iterations == LONG else 1  # Long jobs report once, at their ends.
            world.feed(NodeJoined(world.now, "local", "1", tuple(SlotSpec(f"local/{i}") for i in range(SLOTS))))
            while world.step():
                if len(world.records) > replay.BATCH:
                    await replay.write(journal, world)
            await replay.write(journal, world)
            assert driven.experiment.state.ended, driven.experiment.reason
    finally:
        await appstat.stop(1)
