"""What a report and a created job cost beside many finished jobs of the same experiment.

The finished jobs are made by the real core and the real policy with simulated runs, and written into the experiment's journal.
Then a cluster is started on that journal as ever, and the experiment is extended by jobs that really train.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import replay

from figures.cluster import NOOP, cpu_seconds, embedded, ended, noop_spec
from figures.frame import Sample
from hopyard.client.types import Experiment
from hopyard.rpc import channel
from hopyard.spec import parse_spec
from hopyard.v1 import appstat_pb2_grpc
from hopyard_appstat.service import AppStatService
from hopyard_hpgen.generators.random import RandomGenerator
from hopyard_scheduler.core.effects import AskOutside
from hopyard_scheduler.core.events import MachineSpec, NodeJoined
from hopyard_scheduler.journal import Journal
from hopyard_scheduler.policies import host_of
from hopyard_scheduler.program import program_of
from hopyard_scheduler.replaying import Replay

SLOTS: Final = 2
FEW: Final = 100
MANY: Final = 10_000
RATIO: Final = 1.2
SHORT: Final = 10
LONG: Final = 2_000
JOBS: Final = 128
"""Short jobs, whose cost is that of a job; and as many reports as long jobs make, whose cost is that of a report."""


async def measure(folder: Path) -> list[Sample]:
    """One run."""
    samples = []
    for what, unit, jobs, iterations in (("a job", "ms", JOBS, SHORT), ("a report", "us", SLOTS, LONG)):
        per = 1e3 / JOBS if iterations == SHORT else 1e6 / (SLOTS * LONG)
        cost = {}
        for finished in (FEW, MANY):
            cost[finished] = per * await _cost(folder / f"{iterations}-{finished}", finished, jobs, iterations)
        samples.append(
            Sample(
                name=f"CPU of {what} beside {MANY:,} finished jobs, to that beside {FEW}",
                value=cost[MANY] / cost[FEW],
                unit="x",
                most=RATIO,
                baseline=1.0,
                against="the same cost",
                beside={f"{unit} {what}, beside {finished:,}": cost[finished] for finished in cost},
            )
        )
    return samples


async def _cost(data: Path, finished: int, jobs: int, iterations: int) -> float:
    """CPU seconds of all processes for so many jobs more, in an experiment that has finished so many."""
    async with embedded(data, 0) as (_, client):
        spec = noop_spec(finished, iterations, generator={"name": "random", "seed": 1})
        experiment = await client.create(spec, NOOP)
    await _finish(data, experiment, iterations)
    async with embedded(data, SLOTS) as (_, client):
        # What is there is read, and the runners are started, before it is measured.
        await ended(client, await client.extend(experiment, jobs=SLOTS))
        used = cpu_seconds()
        experiment = await ended(client, await client.extend(experiment, jobs=jobs))
        used = cpu_seconds() - used
    assert experiment.jobs == {"COMPLETED": finished + SLOTS + jobs}, experiment.jobs
    return used


class _World(replay.World):
    """Proposes what the experiment's generator will propose when it is opened again."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(1, machines=0)
        spec = parse_spec(experiment.spec)
        self._generator = RandomGenerator(spec.space, spec.generator.seed)
        self._asked = 0

    def propose(self, question: AskOutside) -> object:
        self._asked += 1
        return self._generator.create(question.payload["job"], self._asked - 1)


async def _finish(data: Path, experiment: Experiment, iterations: int) -> None:
    """Lets simulated runs finish all jobs of an experiment that was created and not begun, into its journal."""
    appstat = AppStatService(data=data)
    address = await appstat.start()
    try:
        async with channel(address) as link:
            stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(link)
            journal = Journal(stub)
            await journal.begin("benchmark")
            world = _World(experiment)
            driven = Replay(world.core, lambda x: host_of(program_of(x.founder.payload).spec))
            async for event in journal.read(experiment.id):
                driven.take(event)
                world.now = max(world.now, event.at)
            assert driven.experiment is not None
            world.core.recovered()
            world.hosts[experiment.id] = driven.host or host_of(program_of(driven.experiment.founder.payload).spec)
            world.first = iterations if iterations == LONG else 1  # Long jobs report once, at their ends.
            world.feed(NodeJoined(world.now, "local", "1", tuple(MachineSpec(f"local/{i}") for i in range(SLOTS))))
            while world.step():
                if len(world.records) > replay.BATCH:
                    await replay.write(journal, world)
            await replay.write(journal, world)
            assert driven.experiment.phase.over, driven.experiment.reason
    finally:
        await appstat.stop(1)
