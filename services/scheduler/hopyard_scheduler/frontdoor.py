"""What people do with experiments: create, look, act. The domain behind ExperimentService."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Literal
from weakref import WeakValueDictionary

from google.protobuf.json_format import Parse

from hopyard import __version__
from hopyard.errors import Conflict, InvalidInput, NotFound
from hopyard.plugins import PluginError
from hopyard.policy import ENDLESS
from hopyard.rpc.values import report_to_proto
from hopyard.serving.threads import TooLong
from hopyard.spec import ExperimentSpec, canonical_json, load_spec, placed
from hopyard.spec.models import REMOTE
from hopyard.v1 import appstat_pb2, experiment_pb2
from hopyard_scheduler.converters import PHASES, experiment_to_proto, job_to_proto, point_to_proto
from hopyard_scheduler.core import Core
from hopyard_scheduler.core.events import ExperimentCreated, MemberJoined, Operated, Requested, Updated
from hopyard_scheduler.core.experiment import Experiment
from hopyard_scheduler.core.member import Member, Phase
from hopyard_scheduler.core.model import Job
from hopyard_scheduler.core.values import EarlierTrial, PlacedData, Settings
from hopyard_scheduler.core.waiting import Waiting
from hopyard_scheduler.live import Live, experiment_of
from hopyard_scheduler.loading import PlanReader, hash_of_code
from hopyard_scheduler.policies import Wishes, need_fit, new_policy, review, unseen_metric
from hopyard_scheduler.policyhost import took_too_long
from hopyard_scheduler.program import need_agreement, program_of, settings_of
from hopyard_scheduler.reasons import AGAIN_SECONDS, Told
from hopyard_scheduler.recovery import Recovered, replay
from hopyard_scheduler.terms import Terms, update_of
from hopyard_scheduler.wanted import Wanted, check, known

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc
    from hopyard_scheduler.catalog import Catalog
    from hopyard_scheduler.outside import Generators
    from hopyard_scheduler.predictors import Predictors

_ROWS = 1000
_SUFFIX = 6
_OVER = frozenset(PHASES.to_proto(phase) for phase in Phase if phase.over)


class FrontDoor:
    """Experiments of this cluster: those in the core, and finished ones as AppStat remembers them.

    Args:
        live: The shell.
        generators: Validates an experiment's generator.
        predictors: Validates its predictor.
        catalog: Knows its data.
        plans: Reads what earlier experiments have trained.
        stub: AppStat.
        appstat_address: For clients.
    """

    def __init__(
        self,
        live: Live,
        generators: Generators,
        predictors: Predictors,
        catalog: Catalog,
        plans: PlanReader,
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub,
        appstat_address: str,
    ) -> None:
        self._live = live
        self._generators = generators
        self._predictors = predictors
        self._catalog = catalog
        self._plans = plans
        self._stub = stub
        self._appstat_address = appstat_address
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._claimed: set[str] = set()  # Ids that are about to be taken, and those that were imported.

    # ------------------------------------------------------------------------------------------------------------ create

    async def create(self, text: str, source: str, bundle: str, request: str, interpreter: str) -> tuple[str, str]:
        """Validates and starts an experiment.

        Returns:
            Its id, and what its policy says of its terms; empty: nothing.

        Raises:
            InvalidInput: Everything that is wrong with it.
            Conflict: An earlier call with this request id asked for another experiment.
        """
        if not request:
            raise InvalidInput("request_id: is required; it makes the call idempotent")
        async with self._locks.setdefault(f"create {request}", asyncio.Lock()):
            try:
                return await self._create(text, source, bundle, request, interpreter)
            except InvalidInput as error:
                raise placed(error, text, source or "experiment") from error

    async def _create(self, text: str, source: str, bundle: str, request: str, interpreter: str) -> tuple[str, str]:
        spec = load_spec(text, source or "experiment")
        settings = settings_of(spec)
        # What is wrong with its data is said before anything else is done.
        data = self._catalog.place(spec.data) if spec.data is not None else None
        if bundle:
            await self._need_bundle(bundle)
        wishes, note = await self._try_policy(spec, settings, data, bundle)
        note = "; ".join(said for said in (note, unseen_metric(spec, data)) if said)
        spec = spec.with_generator(wishes.generator)
        if "predictor" in spec.model_fields_set:
            await self._predictors.check(spec.predictor)
        settings = replace(
            settings,
            statistics=wishes.statistics,
            every_iteration=wishes.every_iteration,
            ends_jobs=wishes.ends_jobs,
            forks=wishes.forks,
            forks_newest=wishes.forks_newest,
            rebuilds=wishes.rebuilds,
            evaluates=wishes.evaluates,
            ship_every=wishes.ship_every if spec.snapshot.ship_every is None else settings.ship_every,
            requests=wishes.requests,
            whole=True,
        )
        payload = _payload(spec, bundle, interpreter, request)
        if wishes.shares:
            root = program_of(payload).root(await hash_of_code(self._stub, bundle))
            settings = replace(settings, plan=root, lasting=True)
        known, name = await self._named(_slug(spec.name), payload)
        if known:
            return name, note
        try:
            return await self._begin(name, spec, settings, payload), note
        finally:
            self.give_back([name])

    async def _begin(self, name: str, spec: ExperimentSpec, settings: Settings, payload: dict[str, str]) -> str:
        if spec.share is None:
            reads = await self._generators.validate(name, payload["spec"])
            settings = replace(settings, generator_reads=reads)
            await self._begin_stream(name, spec, settings, payload)
            return name
        async with self._locks.setdefault(f"share {spec.share}", asyncio.Lock()):
            group = self._group(spec)
            reads = await self._generators.validate(name, payload["spec"])
            settings = replace(settings, generator_reads=reads)
            if group is None:
                await self._begin_stream(name, spec, settings, payload)
            else:
                members = self._live.core.experiments[group].members
                earlier = await self._earlier(group, settings, members)
                await self._live.apply(MemberJoined(self._live.clock(), group, name, settings, payload, earlier))
        return name

    async def _begin_stream(self, name: str, spec: ExperimentSpec, settings: Settings, payload: dict[str, str]) -> None:
        earlier = await self._earlier(name, settings)
        async with self._catalog.using:
            data = self._catalog.place(spec.data) if spec.data is not None else None
            await self._live.apply(ExperimentCreated(self._live.clock(), name, settings, payload, data, earlier))

    async def _earlier(
        self, stream: str, settings: Settings, members: Collection[str] = ()
    ) -> tuple[EarlierTrial, ...]:
        """What earlier experiments have trained that one in a stream shares; its members are none of them."""
        return await self._plans.read(settings.plan, stream, without=members) if settings.plan else ()

    def _group(self, spec: ExperimentSpec) -> str | None:
        """The live group with an experiment's `share` key; None: it begins one.

        Raises:
            InvalidInput: It does not agree with what the group goes by.
        """
        for x in self._live.core.experiments.values():
            other = self._live.program(x.id).spec
            if other.share == spec.share and not x.phase.over:
                need_agreement(spec, other, x.id)
                return x.id
        return None

    async def _named(self, slug: str, payload: Mapping[str, str]) -> tuple[bool, str]:
        """Whether an earlier call with this request id made an experiment, and its id or one that is free, now claimed.

        Ids end with the beginning of their request id's hash, longer where two hashes begin alike.

        Raises:
            Conflict: That call asked for another experiment.
        """
        digest = hashlib.sha256(payload["request"].encode()).hexdigest()
        taken = {found.id for found in await self.show_all()}
        for name in sorted(taken):
            ending = name.rpartition("-")[2]
            if len(ending) >= _SUFFIX and digest.startswith(ending):
                earlier = (await self.loaded(name))[1].payload
                if earlier["request"] == payload["request"]:
                    _need_equal(name, earlier, payload)
                    return True, name
        length, taken = _SUFFIX, taken | self._claimed
        while f"{slug}-{digest[:length]}" in taken:
            length += 1
        name = f"{slug}-{digest[:length]}"
        self._claimed.add(name)
        return False, name

    async def claim(self, name: str) -> bool:
        """Keeps an id for an experiment that is about to be there. False: it is taken."""
        if name in self._claimed or name in {found.id for found in await self.show_all()} or name in self._claimed:
            return False
        self._claimed.add(name)
        return True

    def give_back(self, names: Iterable[str]) -> None:
        """These ids are not claimed any more: the experiments are known by now, or there will be none."""
        self._claimed.difference_update(names)

    async def _try_policy(
        self, spec: ExperimentSpec, settings: Settings, data: PlacedData | None, bundle: str
    ) -> tuple[Wishes, str]:
        policy, patience = spec.policy, self._live.patience
        if policy.remote:
            assert self._live.remotes is not None
            return await self._live.remotes.review(spec, settings, data, bundle)

        def tried() -> tuple[Wishes, str]:
            made = new_policy(policy.name, policy.parameters)
            wishes = Wishes.of(made)
            need_fit(spec, wishes)
            return wishes, review(spec.policy.name, made, settings, spec.space, data)

        try:
            return await patience.threads.call(tried, patience.seconds)
        except TooLong as error:
            raise InvalidInput(took_too_long(policy.name, patience.seconds, None)) from error
        except PluginError as error:
            remotes = self._live.remotes
            served = remotes is not None and remotes.serves(policy.name)
            hint = f"; a process serves {REMOTE}{policy.name}: did you mean that?" if served else ""
            raise InvalidInput(f"policy: {error}{hint}") from error

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
        known = self._live.core.find(name)
        if known is not None:
            return self._shown(*known)
        found = await self.show_all()
        match = next((e for e in found if e.id == name), None)
        if match is None:
            names = ", ".join(e.id for e in found[:10]) or "none"
            raise NotFound(f"there is no experiment {name!r}; there are: {names}")
        return match

    async def show_all(self) -> list[experiment_pb2.Experiment]:
        """All experiments, newest first."""
        found = {
            member.id: self._shown(x, member)
            for x in self._live.core.experiments.values()
            for member in x.members.values()
        }
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
        known = self._live.core.find(name)
        if known is not None:
            x, member = known
            waiting = self._waiting(x)
            return [job_to_proto(x, job, waiting.job(job)) for job in x.jobs.values() if job.member is member]
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
        known = self._live.core.find(name)
        if known is not None and job in known[0].jobs and known[0].jobs[job].member is known[1]:
            return self.shown_job(known[0], known[0].jobs[job])
        found = next((j for j in await self.jobs(name) if j.id == job), None) if known is None else None
        if found is None:
            raise NotFound(f"experiment {name} has no job {job!r}")
        return found

    def shown_job(self, x: Experiment, job: Job) -> experiment_pb2.Job:
        """A job of the core as it stands, and why it waits."""
        return job_to_proto(x, job, self._waiting(x).job(job))

    def _shown(self, x: Experiment, member: Member) -> experiment_pb2.Experiment:
        return experiment_to_proto(x, member, self._live.clock(), self._waiting(x).experiment(member))

    def _waiting(self, x: Experiment) -> Waiting:
        return Waiting(x, self._live.core.cluster, self._live.clock(), self._live.absent(x.id))

    async def watch(self, name: str) -> AsyncIterator[experiment_pb2.WatchExperimentResponse]:
        """The present state of the experiment and its jobs, then every change until it is over.

        What a job waits for changes with others' doing: that is told within a second or two.
        """
        known = self._live.core.find(name)
        if known is None:
            yield experiment_pb2.WatchExperimentResponse(experiment=await self.show(name))
            for job in await self.jobs(name):
                yield experiment_pb2.WatchExperimentResponse(job=job)
            return
        x, member = known
        watcher = self._live.watchers.add(name)
        told = Told(self._live.core, x, member, self._live.clock, lambda: self._live.absent(x.id))
        try:
            for present in [job for job in x.jobs.values() if job.member is member]:
                yield told.job(present)
                for point in x.curve(present):
                    yield experiment_pb2.WatchExperimentResponse(report=point_to_proto(present.id, point))
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_SECONDS):
                        await watcher.wait()
                while watcher.jobs:
                    changed = x.jobs.get(next(iter(watcher.jobs)))
                    del watcher.jobs[next(iter(watcher.jobs))]
                    if changed is not None:
                        yield told.job(changed)
                while watcher.reports:
                    accepted = watcher.reports.popleft()
                    for one in (accepted.report, accepted.combined):
                        if one is not None:
                            report = experiment_pb2.JobReport(job=accepted.job, report=report_to_proto(one))
                            yield experiment_pb2.WatchExperimentResponse(report=report)
                if watcher.changed:
                    watcher.changed = False
                    shown = told.experiment()
                    over = shown.experiment.state in _OVER
                    if over and not self._live.published(name):
                        continue  # its end is told once it is journalled, with all that belongs to it
                    yield shown
                    if over and not (watcher.jobs or watcher.reports):
                        return
                for news in told.news():
                    yield news
        finally:
            self._live.watchers.remove(name, watcher)

    def cluster(self) -> experiment_pb2.GetClusterResponse:
        """Where the other services answer."""
        return experiment_pb2.GetClusterResponse(
            epoch=self._live.journal.epoch,
            appstat_address=self._appstat_address,
            version=__version__,
            trouble=self._live.journal.trouble,
            now=self._live.clock(),
        )

    # --------------------------------------------------------------------------------------------------------------- act

    async def operate(self, name: str, action: Literal["pause", "resume", "stop"]) -> None:
        """Pauses, resumes or stops.

        Raises:
            Conflict: A finished experiment cannot be resumed.
        """
        x, member = await self.loaded(name)
        if member.phase.over and action != "stop":
            raise Conflict(
                f"experiment {name} is {member.phase.value} ({member.reason}); hopyard extend goes on with it"
            )
        await self._live.apply(Operated(self._live.clock(), x.id, action, name))

    async def extend(self, name: str, jobs: int, max_iterations: int, seconds: float, request: str) -> None:
        """More jobs, longer jobs, more time.

        Raises:
            InvalidInput: Nothing to extend, or less than there is.
        """
        x, member = await self.loaded(name)
        if not request:
            raise InvalidInput("request_id: is required; it makes the call idempotent")
        if not math.isfinite(seconds) or jobs > ENDLESS or max_iterations > ENDLESS:
            raise InvalidInput(f"an extension is finite and at most {ENDLESS} jobs or units")
        if jobs < 0 or seconds < 0 or (max_iterations and max_iterations < member.settings.max_position):
            raise InvalidInput(
                f"an extension is not less than there is (max_iterations {member.settings.max_position})"
            )
        if not (jobs or max_iterations or seconds):
            raise InvalidInput("extend by jobs, max_iterations or seconds")
        now = self._live.clock()
        await self._change(Updated(now, x.id, request, jobs, max_iterations or None, seconds, member=name))

    async def update(self, name: str, terms: Terms) -> None:
        """Changes target, weight, slots or concurrency.

        Raises:
            InvalidInput: A term that cannot be, or nothing to change.
        """
        x, member = await self.loaded(name)
        await self._change(update_of(self._live.clock(), x.id, member, terms))

    async def request(self, name: str, wanted: Sequence[Wanted]) -> list[experiment_pb2.Job]:
        """Has configurations trained to positions, each as a job of its own.

        Raises:
            InvalidInput: What is wrong with which of them; then none is asked for.
            Conflict: The experiment takes no requests (any more), or a request id stands for another request.
        """
        x, member = await self.loaded(name)
        if not x.settings.requests:
            policy = self._live.program(x.id).spec.policy.label
            raise Conflict(f"experiment {name}: its policy {policy} serves no requests; a stage_tree does")
        check(wanted, self._live.program(name).spec.search_space, member.settings.max_position)
        new = [each for each in wanted if not known(x, member, each)]
        if new and (member.phase.over or member.phase is Phase.ENDING):
            raise Conflict(
                f"experiment {name} is {member.phase.value} ({member.reason}); hopyard extend goes on with it"
            )
        at = self._live.clock()
        asked = (Requested(at, x.id, each.request, each.hyperparameters, each.position, name) for each in new)
        refused = [text for text in await asyncio.gather(*map(self._live.operate, asked)) if text]
        if refused:
            raise Conflict(refused[0])
        # The same id may have come twice at the same time.
        return [self.shown_job(x, x.jobs[x.requested[each.request]]) for each in wanted if known(x, member, each)]

    async def _change(self, event: Updated) -> None:
        refused = await self._live.operate(event)
        if refused:
            raise Conflict(refused)

    async def loaded(self, name: str) -> tuple[Experiment, Member]:
        """The experiment in the core, with its stream: one that is not there is replayed from its journal first.

        Raises:
            NotFound: There is none.
        """
        known = self._live.core.find(name)
        if known is None:
            stream = (await self.show(name)).group or name
            async with self._locks.setdefault(f"load {stream}", asyncio.Lock()):
                if self._live.core.find(name) is None:
                    apart, found = Core(), Recovered()
                    await replay(apart, self._live.journal, stream, found, self._live.patience)
                    self._live.install(apart.experiments[stream], found)
        return experiment_of(self._live.core, name)


def _need_equal(name: str, earlier: Mapping[str, str], now: Mapping[str, str]) -> None:
    words = {"spec": "specification", "bundle": "code bundle", "interpreter": "interpreter"}
    other = [word for field, word in words.items() if earlier[field] != now[field]]
    if other:
        raise Conflict(
            f"request_id: {now['request']!r} made experiment {name}, with another {' and '.join(other)}; a new experiment "
            "needs a request_id of its own"
        )


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
