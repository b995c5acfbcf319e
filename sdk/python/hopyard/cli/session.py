"""A `run` or `resume` from beginning to end: cluster, experiment, live view, Ctrl-C, result."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from hopyard.cli.connect import choose, find, running_server
from hopyard.cli.errors import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, Interrupted
from hopyard.cli.interrupts import Interrupts
from hopyard.cli.live import LiveModel
from hopyard.cli.live.screen import shown
from hopyard.cli.output import emit, emit_json, say
from hopyard.client import converters
from hopyard.client.address import DEFAULT_DATA
from hopyard.client.aio import AsyncClient
from hopyard.client.embedded import EmbeddedCluster
from hopyard.client.submission import Submission, prepare
from hopyard.client.types import Experiment, ExperimentState, JobState
from hopyard.errors import Conflict, NotFound

T = TypeVar("T")

SUSPEND_SECONDS: Final = 120.0
"""How long all runs may take to save after Ctrl-C. Each goes on to the end of its iteration first."""

_POLL_SECONDS: Final = 0.1


class Session:
    """One `run` or `resume`.

    Args:
        server: A running cluster's address; None: one of its own in `data`, unless a cluster serves that already.
        data: The data directory.
        slots: Machines of an own cluster; None: what the experiment says.
        purpose: For whoever finds the directory locked.
    """

    def __init__(self, server: str | None, data: Path, slots: int | None, purpose: str) -> None:
        self._server = server
        self._data = data
        self._slots = slots
        self._purpose = purpose
        self._own: EmbeddedCluster | None = None
        self._interrupts = Interrupts()

    async def follow(
        self, begin: Callable[[AsyncClient], Coroutine[Any, Any, Experiment]], source: str, json: bool
    ) -> int:
        """Start an experiment with `begin`, watch it to its end, print the result; answers the exit code."""
        with self._interrupts:
            try:
                async with self._connected() as client:
                    experiment = await self._unless_interrupted(self._begin(begin(client)))
                    return await self._watch(client, experiment, source, json)
            except Interrupted:
                say("interrupted")
                return EXIT_INTERRUPTED

    async def _unless_interrupted(self, work: Coroutine[Any, Any, T]) -> T:
        return await self._interrupts.unless(self._interrupts.first, work)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncClient]:
        server = self._server or await self._unless_interrupted(running_server(self._data))
        if server is not None:
            self._server = server
            async with AsyncClient(server) as client:
                yield client
            return
        say(f"starting a cluster in {self._data}")
        self._own = EmbeddedCluster(self._data, slots=0, purpose=self._purpose)
        try:
            async with AsyncClient(await self._unless_interrupted(self._own.start())) as client:
                yield client
        finally:
            try:
                await self._interrupts.unless(self._interrupts.second, self._own.stop())
            except Interrupted:
                self._own.kill()
                await self._own.stop()

    async def _begin(self, work: Coroutine[Any, Any, Experiment]) -> Experiment:
        """Begin, and bring the machines: at the same time, when their number is known before."""
        own, slots = self._own, self._slots
        if own is None:
            return await work
        if slots is not None:
            agent = asyncio.create_task(own.start_agent(slots), name="agent")
            try:
                experiment = await work
                await agent
            finally:
                agent.cancel()
                await asyncio.gather(agent, return_exceptions=True)
            return experiment
        experiment = await work
        if not experiment.state.ended:
            resources = experiment.spec.get("resources") or {}
            await own.start_agent(
                default_slots(resources.get("slots"), (resources.get("per_job") or {}).get("cpus", 1))
            )
        return experiment

    async def _watch(self, client: AsyncClient, experiment: Experiment, source: str, json: bool) -> int:
        model = LiveModel(source, slots=self._own.slots if self._own else None, server=self._server or "")
        feeding = asyncio.create_task(feed(client, experiment, model), name="watch")
        waits: list[asyncio.Task[Any]] = [feeding, asyncio.create_task(self._interrupts.first.wait(), name="interrupt")]
        if self._own is not None:
            waits.append(asyncio.create_task(self._own.died(), name="cluster"))
        try:
            async with shown(model):
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if self._interrupts.first.is_set() and not feeding.done():
                    await self._suspend(client, experiment, model, feeding)
            if len(waits) == 3 and waits[2].done() and not feeding.done():
                waits[2].result()
            if feeding.done():
                feeding.result()
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        return await self._result(client, experiment, json)

    async def _suspend(
        self, client: AsyncClient, experiment: Experiment, model: LiveModel, feeding: asyncio.Task[None]
    ) -> None:
        """Pause the experiment and wait until its runs are saved; a second signal ends the wait."""
        model.note = "suspending... (Ctrl-C again quits at once)"

        async def paused() -> None:
            try:
                await client.pause(experiment)
            except Conflict:
                return  # it has ended meanwhile
            end = time.monotonic() + SUSPEND_SECONDS
            while not feeding.done() and not (model.experiment and model.experiment.state is ExperimentState.PAUSED):
                if time.monotonic() > end:
                    say(f"not every job has saved within {SUSPEND_SECONDS:g} s; those go back to their last snapshot")
                    return
                await asyncio.sleep(_POLL_SECONDS)

        await self._interrupts.unless(self._interrupts.second, paused())

    async def _result(self, client: AsyncClient, experiment: Experiment, json: bool) -> int:
        present = await client.get(experiment)
        jobs = await client.jobs(experiment)
        if json:
            best = next((job for job in jobs if job.id == present.best_job), None)
            emit_json({"experiment": present, "best": best, "jobs": jobs})
        else:
            from hopyard.cli.tables import summary

            emit(summary(present, jobs))
        if jobs and all(job.state is JobState.FAILED for job in jobs):
            say(f"error: every job failed; its output: hopyard logs {present.id} {jobs[0].id}{self._where}")
            return EXIT_FAILED
        if present.state.ended:
            return EXIT_FAILED if present.state is ExperimentState.FAILED else EXIT_DONE
        say(f"suspended; go on with: {self.resume_command(present)}")
        return EXIT_INTERRUPTED

    def resume_command(self, experiment: Experiment) -> str:
        """What the person types to go on."""
        return f"hopyard resume {experiment.id}{self._where}"

    @property
    def _where(self) -> str:
        """The options that lead other commands to this cluster."""
        if self._own is None and self._server is not None:
            return f" --server {self._server}"
        return "" if self._data == DEFAULT_DATA else f" --data {self._data}"


async def feed(client: AsyncClient, experiment: Experiment, model: LiveModel) -> None:
    """Keep a model up to date until the experiment ends."""
    model.apply(experiment, time.monotonic())
    by_job: dict[str, list[Any]] = {}
    for one in await client.statistics(experiment):
        by_job.setdefault(one.job, []).append(one)
    for job, statistics in by_job.items():
        model.load_curve(job, converters.curve(statistics, experiment.metric.name))
    async with aclosing(client.watch(experiment)) as changes:
        async for change in changes:
            model.apply(change, time.monotonic())


def default_slots(asked: int | None, cpus: int) -> int:
    """Machines for an experiment on this computer: what it asks for, else as many as the CPUs hold with `cpus` each."""
    return asked or max(1, len(os.sched_getaffinity(0)) // max(1, cpus))


def run_file(
    file: Path, *, folder: Path | None, slots: int | None, server: str | None, data: Path | None, json: bool
) -> int:
    """Carry out `hopyard run`; answers the exit code."""
    # Before anything is started, so that a mistake in the file costs no waiting.
    submission: Submission = prepare(file, folder)
    address, directory = choose(server, data)

    resources = submission.spec.resources
    machines = slots or default_slots(resources.slots, resources.per_job.cpus)

    async def main() -> int:
        session = Session(address, directory, machines, "hopyard run")
        return await session.follow(lambda client: client.create(submission), submission.spec.name, json)

    return asyncio.run(main())


def resume_experiment(
    given: str | None, *, slots: int | None, server: str | None, data: Path | None, json: bool
) -> int:
    """Carry out `hopyard resume`; answers the exit code."""
    address, directory = choose(server, data)
    if address is None and not (directory / "cluster.lock").exists():
        raise NotFound(f"{directory}: no cluster has run here, so there is nothing to resume; name another with --data")

    async def begin(client: AsyncClient) -> Experiment:
        experiment = await find(client, given)
        if experiment.state.ended:
            say(f"{experiment.name} ({experiment.id}) has ended already")
            return experiment
        if experiment.state in (ExperimentState.PAUSED, ExperimentState.PAUSING):
            return await client.resume(experiment)
        return experiment

    async def main() -> int:
        return await Session(address, directory, slots, "hopyard resume").follow(begin, given or "", json)

    return asyncio.run(main())
