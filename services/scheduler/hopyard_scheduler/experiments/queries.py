"""Queries of experiments and jobs. The module `commands` changes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from hopyard import __version__
from hopyard._net.rpc.values import report_to_proto
from hopyard.errors import DataLoss, NotFound
from hopyard.policy.vocabulary import ExperimentId, ExperimentState
from hopyard.v1 import appstat_pb2, experiment_pb2
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.explain.waiting_reasons import WaitingReasons
from hopyard_scheduler.converters import EXPERIMENT_STATES, experiment_to_proto, job_to_proto, point_to_proto
from hopyard_scheduler.experiments.waiting_reasons import AGAIN_SECONDS, WatcherState
from hopyard_scheduler.experiments.watchers import Watcher
from hopyard_scheduler.runtime.projections import has_damaged_row
from hopyard_scheduler.runtime.runtime import Runtime

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc

REPEAT_SECONDS: Final = 20.0
"""Seconds after which a watch repeats the state of its experiment."""

_ROWS = 1000
_OVER = frozenset(EXPERIMENT_STATES.to_proto(state) for state in ExperimentState if state.ended)


class ExperimentQueries:
    """Reads experiments and jobs: those that the scheduler has in memory (in the core), and other finished ones from AppStat.

    Args:
        runtime: The event loop of the scheduler.
        stub: Client of AppStat.
        appstat_address: The address of AppStat for clients.
    """

    def __init__(self, runtime: Runtime, stub: appstat_pb2_grpc.AppStatServiceAsyncStub, appstat_address: str) -> None:
        self._runtime = runtime
        self._stub = stub
        self._appstat_address = appstat_address
        self.warning: Callable[[], str] = lambda: ""
        """Returns a warning about the cluster that is shown with each unfinished experiment; empty: none."""

    async def show(self, name: str) -> experiment_pb2.Experiment:
        """Return an experiment with the reason for its state, or the reason why it waits.

        Args:
            name: The id of the experiment.

        Raises:
            NotFound: The experiment does not exist. The message lists some existing ones.
        """
        known = self._runtime.core.find(ExperimentId(name))
        if known is not None:
            return self._shown(*known)
        found = await self.show_all(damaged=True)
        match = next((e for e in found if e.id == name), None)
        if match is None:
            names = ", ".join(e.id for e in found[:10]) or "none"
            raise NotFound(f"there is no experiment {name!r}; there are: {names}")
        return match

    async def show_all(self, *, damaged: bool = False) -> list[experiment_pb2.Experiment]:
        """Return all experiments of the cluster, unfinished and ended ones, in descending order of creation.

        Args:
            damaged: Whether experiments with a damaged row are included, of which little more than the id is known. They have the
                reason ROW_UNREADABLE.

        Raises:
            DataLoss: The row of an experiment is damaged, and `damaged` is False. The message says how to mend it.
        """
        found = {
            experiment.id: self._shown(stream, experiment)
            for stream in self._runtime.core.streams.values()
            for experiment in stream.experiments.values()
        }
        token = ""
        while True:
            request = appstat_pb2.QueryExperimentsRequest(page_size=_ROWS, page_token=token)
            page = await self._stub.QueryExperiments(request)
            for experiment in (*page.experiments, *page.damaged):
                if has_damaged_row(experiment) and not damaged:
                    raise DataLoss(f"experiment {experiment.id}: {experiment.reason}")
                found.setdefault(ExperimentId(experiment.id), experiment)
            token = page.next_page_token
            if not token:
                return sorted(found.values(), key=lambda e: (-e.created_at, e.id))

    async def jobs(self, name: str) -> list[experiment_pb2.Job]:
        """Return the jobs of an experiment in order of creation.

        Args:
            name: The id of the experiment.

        Raises:
            NotFound: The experiment does not exist.
        """
        known = self._runtime.core.find(ExperimentId(name))
        if known is not None:
            stream, experiment = known
            return self.shown_jobs(stream, [job for job in stream.jobs.values() if job.experiment is experiment])
        await self.show(name)
        jobs, token = list[experiment_pb2.Job](), ""
        while True:
            request = appstat_pb2.QueryJobsRequest(experiment=name, page_size=_ROWS, page_token=token)
            page = await self._stub.QueryJobs(request)
            jobs += page.jobs
            token = page.next_page_token
            if not token:
                return jobs

    async def job(self, name: str, job: str) -> experiment_pb2.Job:
        """Return a job of an experiment.

        Args:
            name: The id of the experiment.
            job: The id of the job.

        Raises:
            NotFound: The experiment or the job does not exist.
        """
        known = self._runtime.core.find(ExperimentId(name))
        if known is not None and job in known[0].jobs and known[0].jobs[job].experiment is known[1]:
            return self.shown_job(known[0], known[0].jobs[job])
        found = next((j for j in await self.jobs(name) if j.id == job), None) if known is None else None
        if found is None:
            raise NotFound(f"experiment {name} has no job {job!r}")
        return found

    def shown_job(self, stream: Stream, job: Job) -> experiment_pb2.Job:
        """Convert `job`, a job of `stream`, for clients, with the reason why it waits, if it waits. The core must have the stream."""
        return job_to_proto(stream, job, self._waiting(stream).job(job))

    def shown_jobs(self, stream: Stream, jobs: Sequence[Job]) -> list[experiment_pb2.Job]:
        """Convert `jobs` of `stream` for clients, each with the reason why it waits, if it waits. The core must have the stream."""
        waiting = self._waiting(stream)
        return [job_to_proto(stream, job, waiting.job(job)) for job in jobs]

    def _shown(self, stream: Stream, experiment: Experiment) -> experiment_pb2.Experiment:
        shown = experiment_to_proto(
            stream, experiment, self._runtime.clock(), self._waiting(stream).experiment(experiment)
        )
        if not (shown.warning or experiment.state.ended):
            shown.warning = self.warning()
        return shown

    def _waiting(self, stream: Stream) -> WaitingReasons:
        return WaitingReasons(
            stream, self._runtime.core.cluster, self._runtime.clock(), self._runtime.absent(stream.id)
        )

    async def watch(self, name: str, watcher: Watcher) -> AsyncGenerator[experiment_pb2.WatchExperimentResponse]:
        """Yield the present state of an experiment and its jobs, then the changed states and new reports until the experiment ends.

        A slow reader gets the newest state of a changed experiment or job instead of each intermediate state.

        A reason for waiting may change with other experiments. Such changes are yielded within about two seconds. The state of the
        experiment is yielded at least every `REPEAT_SECONDS`, so that the client can distinguish a quiet experiment from a lost
        connection. If the experiment has ended, only the present state is yielded.

        Args:
            name: The id of the experiment.
            watcher: A new watcher, which collects the changes until they are yielded.

        Raises:
            NotFound: The experiment does not exist.
        """
        turn = self._runtime.watchers.queue.turn
        known = self._runtime.core.find(ExperimentId(name))
        if known is None:
            yield experiment_pb2.WatchExperimentResponse(experiment=await self.show(name))
            for job in await self.jobs(name):
                yield experiment_pb2.WatchExperimentResponse(job=job)
            return
        stream, experiment = known
        self._runtime.watchers.add(name, watcher)
        told = WatcherState(
            self._runtime.core, stream, experiment, self._runtime.clock, lambda: self._runtime.absent(stream.id)
        )
        try:
            for present in [job for job in stream.jobs.values() if job.experiment is experiment]:
                await turn()
                yield told.job(present)
                for point in stream.curve(present):
                    await turn()
                    yield experiment_pb2.WatchExperimentResponse(report=point_to_proto(present.id, point))
            loop = asyncio.get_running_loop()
            repeat_at = loop.time() + REPEAT_SECONDS
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_SECONDS):
                        await watcher.wait()
                if loop.time() >= repeat_at:
                    watcher.changed = True
                    repeat_at = loop.time() + REPEAT_SECONDS
                while watcher.jobs:
                    touched = next(iter(watcher.jobs))
                    del watcher.jobs[touched]
                    await turn()
                    changed = stream.jobs.get(touched)
                    gone = experiment_pb2.WatchExperimentResponse(job_gone=touched)
                    yield told.job(changed) if changed is not None else gone
                while watcher.reports:
                    accepted = watcher.reports.popleft()
                    for one in (accepted.report, accepted.combined):
                        if one is not None:
                            await turn()
                            report = experiment_pb2.JobReport(job=accepted.job, report=report_to_proto(one))
                            yield experiment_pb2.WatchExperimentResponse(report=report)
                if watcher.changed:
                    await turn()
                    watcher.changed = False
                    shown = told.experiment()
                    over = shown.experiment.state in _OVER
                    if over and not self._runtime.published(ExperimentId(name)):
                        continue  # The end is sent after it is journalled, with all other changes.
                    if over and (watcher.jobs or watcher.reports):
                        watcher.changed = True
                        continue  # The end is sent last. What was published with the other changes wakes the watcher.
                    yield shown
                    if over:
                        return
                await turn()
                for news in told.news():
                    yield news
                    await turn()
        finally:
            self._runtime.watchers.remove(name, watcher)

    def cluster(self) -> experiment_pb2.GetClusterResponse:
        """Return the address of AppStat, and the scheduler's epoch, version, present time and journal error.

        The time is in seconds since the Unix epoch. The error is empty if the journal works.
        """
        return experiment_pb2.GetClusterResponse(
            epoch=self._runtime.journal.epoch,
            appstat_address=self._appstat_address,
            version=__version__,
            trouble=self._runtime.journal.trouble,
            now=self._runtime.clock(),
        )
