"""What people do with experiments: create, look, act. The domain behind ExperimentService."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Literal
from weakref import WeakValueDictionary

from google.protobuf.json_format import Parse

from hopyard import __version__
from hopyard.errors import Conflict, InvalidInput, NotFound
from hopyard.rpc.values import report_to_proto
from hopyard.serving.threads import TooLong
from hopyard.spec import ExperimentSpec, canonical_json, load_spec
from hopyard.v1 import appstat_pb2, experiment_pb2
from hopyard_scheduler.converters import PHASES, experiment_to_proto, job_to_proto, point_to_proto
from hopyard_scheduler.core import Core
from hopyard_scheduler.core.events import ExperimentCreated, Operated, Updated
from hopyard_scheduler.core.experiment import Experiment, Phase
from hopyard_scheduler.live import Live
from hopyard_scheduler.policies import new_policy
from hopyard_scheduler.policyhost import took_too_long
from hopyard_scheduler.program import ENDLESS, settings_of
from hopyard_scheduler.recovery import Recovered, replay

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc
    from hopyard_scheduler.outside import Generators

_ROWS = 1000
_OVER = frozenset(PHASES.to_proto(phase) for phase in Phase if phase.over)


class FrontDoor:
    """Experiments of this cluster: those in the core, and finished ones as AppStat remembers them.

    Args:
        live: The shell.
        generators: Validates an experiment's generator.
        stub: AppStat.
        appstat_address: For clients.
    """

    def __init__(
        self,
        live: Live,
        generators: Generators,
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub,
        appstat_address: str,
    ) -> None:
        self._live = live
        self._generators = generators
        self._stub = stub
        self._appstat_address = appstat_address
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # ------------------------------------------------------------------------------------------------------------ create

    async def create(self, text: str, source: str, bundle: str, request: str, interpreter: str) -> str:
        """Validates and starts an experiment; answers its id.

        Raises:
            InvalidInput: Everything that is wrong with it.
        """
        if not request:
            raise InvalidInput("request_id: is required; it makes the call idempotent")
        async with self._locks.setdefault(f"create {request}", asyncio.Lock()):
            return await self._create(text, source, bundle, request, interpreter)

    async def _create(self, text: str, source: str, bundle: str, request: str, interpreter: str) -> str:
        spec = load_spec(text, source or "experiment")
        settings = settings_of(spec)
        await self._try_policy(spec)
        if bundle:
            await self._need_bundle(bundle)
        name = f"{_slug(spec.name)}-{hashlib.sha256(request.encode()).hexdigest()[:6]}"
        known = await self._known(name)
        if known is not None:
            return known
        await self._generators.validate(name, canonical_json(spec))
        await self._live.apply(
            ExperimentCreated(self._live.clock(), name, settings, _payload(spec, bundle, interpreter, request))
        )
        return name

    async def _try_policy(self, spec: ExperimentSpec) -> None:
        policy, patience = spec.policy, self._live.patience
        try:
            await patience.threads.call(lambda: new_policy(policy.name, policy.parameters), patience.seconds)
        except TooLong as error:
            raise InvalidInput(took_too_long(policy.name, patience.seconds, None)) from error

    async def _known(self, name: str) -> str | None:
        """The experiment that an earlier call with this request id made: ids are made of request ids."""
        try:
            return (await self.show(name)).id
        except NotFound:
            return None

    async def _need_bundle(self, bundle: str) -> None:
        found = await self._stub.HasBlobs(appstat_pb2.HasBlobsRequest(sha256=[bundle]))
        if bundle not in found.sha256:
            raise InvalidInput(f"bundle: {bundle} is not in the snapshot store; put it there first (PutBlob)")

    # -------------------------------------------------------------------------------------------------------------- look

    async def show(self, name: str) -> experiment_pb2.Experiment:
        """An experiment as it stands.

        Raises:
            NotFound: Names those there are.
        """
        x = self._live.core.experiments.get(name)
        if x is not None:
            return experiment_to_proto(x, self._live.clock())
        found = await self.show_all()
        match = next((e for e in found if e.id == name), None)
        if match is None:
            known = ", ".join(e.id for e in found[:10]) or "none"
            raise NotFound(f"there is no experiment {name!r}; there are: {known}")
        return match

    async def show_all(self) -> list[experiment_pb2.Experiment]:
        """All experiments, newest first."""
        found = {x.id: experiment_to_proto(x, self._live.clock()) for x in self._live.core.experiments.values()}
        token = ""
        while True:
            request = appstat_pb2.QueryExperimentsRequest(page_size=_ROWS, page_token=token)
            rows = await self._stub.QueryExperiments(request)
            for row in rows.experiments:
                if row.id not in found:
                    found[row.id] = Parse(row.detail_json, experiment_pb2.Experiment(), ignore_unknown_fields=True)
            token = rows.next_page_token
            if not token:
                return sorted(found.values(), key=lambda e: (-e.created_at, e.id))

    async def jobs(self, name: str) -> list[experiment_pb2.Job]:
        """The jobs of an experiment in order of creation.

        Raises:
            NotFound: There is no such experiment.
        """
        x = self._live.core.experiments.get(name)
        if x is not None:
            return [job_to_proto(x, job) for job in x.jobs.values()]
        await self.show(name)
        jobs, token = [], ""
        while True:
            request = appstat_pb2.QueryJobsRequest(experiment=name, page_size=_ROWS, page_token=token)
            rows = await self._stub.QueryJobs(request)
            jobs += [
                Parse(row.detail_json, experiment_pb2.Job(), ignore_unknown_fields=True)
                for row in rows.jobs
                if row.state != "REMOVED"
            ]
            token = rows.next_page_token
            if not token:
                return jobs

    async def job(self, name: str, job: str) -> experiment_pb2.Job:
        """One job.

        Raises:
            NotFound: There is no such experiment or job.
        """
        x = self._live.core.experiments.get(name)
        if x is not None and job in x.jobs:
            return job_to_proto(x, x.jobs[job])
        found = next((j for j in await self.jobs(name) if j.id == job), None) if x is None else None
        if found is None:
            raise NotFound(f"experiment {name} has no job {job!r}")
        return found

    async def watch(self, name: str) -> AsyncIterator[experiment_pb2.WatchExperimentResponse]:
        """The present state of the experiment and its jobs, then every change until it is over."""
        if name not in self._live.core.experiments:
            yield experiment_pb2.WatchExperimentResponse(experiment=await self.show(name))
            for job in await self.jobs(name):
                yield experiment_pb2.WatchExperimentResponse(job=job)
            return
        x = self._live.core.experiments[name]
        watcher = self._live.watchers.add(name)
        try:
            for known in list(x.jobs.values()):
                yield experiment_pb2.WatchExperimentResponse(job=job_to_proto(x, known))
                for point in x.curve(known):
                    yield experiment_pb2.WatchExperimentResponse(report=point_to_proto(known.id, point))
            while True:
                await watcher.wait()
                while watcher.jobs:
                    changed = x.jobs.get(next(iter(watcher.jobs)))
                    del watcher.jobs[next(iter(watcher.jobs))]
                    if changed is not None:
                        yield experiment_pb2.WatchExperimentResponse(job=job_to_proto(x, changed))
                while watcher.reports:
                    accepted = watcher.reports.popleft()
                    report = experiment_pb2.JobReport(job=accepted.job, report=report_to_proto(accepted.report))
                    yield experiment_pb2.WatchExperimentResponse(report=report)
                if watcher.changed:
                    watcher.changed = False
                    shown = experiment_to_proto(x, self._live.clock())
                    yield experiment_pb2.WatchExperimentResponse(experiment=shown)
                    if shown.state in _OVER and not (watcher.jobs or watcher.reports):
                        return
        finally:
            self._live.watchers.remove(name, watcher)

    def cluster(self) -> experiment_pb2.GetClusterResponse:
        """Where the other services answer."""
        return experiment_pb2.GetClusterResponse(
            epoch=self._live.journal.epoch, appstat_address=self._appstat_address, version=__version__
        )

    # --------------------------------------------------------------------------------------------------------------- act

    async def operate(self, name: str, action: Literal["pause", "resume", "stop"]) -> None:
        """Pauses, resumes or stops.

        Raises:
            Conflict: A finished experiment cannot be resumed.
        """
        x = await self.loaded(name)
        if x.phase.over and action != "stop":
            raise Conflict(f"experiment {name} is {x.phase.value} ({x.reason}); hopyard extend goes on with it")
        await self._live.apply(Operated(self._live.clock(), name, action))

    async def extend(self, name: str, jobs: int, max_iterations: int, seconds: float, request: str) -> None:
        """More jobs, longer jobs, more time.

        Raises:
            InvalidInput: Nothing to extend, or less than there is.
        """
        x = await self.loaded(name)
        if not request:
            raise InvalidInput("request_id: is required; it makes the call idempotent")
        if not math.isfinite(seconds) or jobs > ENDLESS or max_iterations > ENDLESS:
            raise InvalidInput(f"an extension is finite and at most {ENDLESS} jobs or units")
        if jobs < 0 or seconds < 0 or (max_iterations and max_iterations < x.settings.max_position):
            raise InvalidInput(f"an extension is not less than there is (max_iterations {x.settings.max_position})")
        if not (jobs or max_iterations or seconds):
            raise InvalidInput("extend by jobs, max_iterations or seconds")
        await self._change(Updated(self._live.clock(), name, request, jobs, max_iterations or None, seconds))

    async def update(self, name: str, target: float | None, weight: float | None, slots: int | None) -> None:
        """Changes target, weight or slots.

        Raises:
            InvalidInput: A weight or slots that cannot be.
        """
        await self.loaded(name)
        if (weight is not None and weight <= 0) or (slots is not None and slots < 1):
            raise InvalidInput(f"weight must be above 0 and slots at least 1, found {weight} and {slots}")
        request = f"update-{uuid.uuid4()}"
        await self._change(Updated(self._live.clock(), name, request, target=target, weight=weight, slots=slots))

    async def _change(self, event: Updated) -> None:
        refused = await self._live.operate(event)
        if refused:
            raise Conflict(refused)

    async def loaded(self, name: str) -> Experiment:
        """The experiment in the core: a finished one is replayed from its journal first.

        Raises:
            NotFound: There is none.
        """
        async with self._locks.setdefault(f"load {name}", asyncio.Lock()):
            if name not in self._live.core.experiments:
                await self.show(name)
                apart, found = Core(), Recovered()
                await replay(apart, self._live.journal, name, found, self._live.patience)
                self._live.install(apart.experiments[name], found)
        return self._live.core.experiments[name]


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "experiment"


def _payload(spec: ExperimentSpec, bundle: str, interpreter: str, request: str) -> dict[str, str]:
    return {
        "name": spec.name,
        "spec": canonical_json(spec),
        "bundle": bundle,
        "interpreter": interpreter,
        "request": request,
    }
