"""Commands that create and change experiments. The module `queries` reads experiments."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal
from weakref import WeakValueDictionary

from hopyard._common.plugins import PluginError
from hopyard.errors import Conflict, DataLoss, InvalidInput
from hopyard.policy import ENDLESS, PolicyCapabilities, capabilities_of
from hopyard.policy.vocabulary import ExperimentId, ExperimentState, JobState, StreamId
from hopyard.spec import ExperimentSpec, canonical_json
from hopyard.spec.models import REMOTE
from hopyard.v1 import appstat_pb2, experiment_pb2
from hopyard_engine.core import Core
from hopyard_engine.core.events import ExperimentJoined, JobsRetried, Operated, Requested, StreamCreated, Updated
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state.timers import IdleTimer
from hopyard_engine.core.types import EarlierTrial, PlacedData, PolicyVersion, Settings
from hopyard_engine.policy_host.factory import need_fit, new_policy, review, unseen_metric, with_capabilities
from hopyard_engine.settings import settings_of
from hopyard_scheduler.experiments.job_requests import JobRequest, check, known
from hopyard_scheduler.experiments.program import ExperimentProgram, need_agreement, program_of
from hopyard_scheduler.experiments.reload import reloads
from hopyard_scheduler.experiments.scaling_profiles import measured
from hopyard_scheduler.experiments.spec_thread import SpecThread
from hopyard_scheduler.experiments.update_request import UpdateRequest, need_pattern, update_of
from hopyard_scheduler.policy_process.placement import runs_inline, trusted_plugins
from hopyard_scheduler.request_ids import check_request_id
from hopyard_scheduler.runtime.journal import persist
from hopyard_scheduler.runtime.projections import was_unreadable
from hopyard_scheduler.runtime.recovery import RecoveryResult, readable_rows, replay
from hopyard_scheduler.runtime.runtime import Runtime, experiment_of
from hopyard_scheduler.search_plan.mismatch import unlike_others
from hopyard_scheduler.search_plan.reader import PlanReader, hash_of_code

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc
    from hopyard_scheduler.data.catalog import Catalog
    from hopyard_scheduler.experiments.queries import ExperimentQueries
    from hopyard_scheduler.external_requests.generator_client import Generators
    from hopyard_scheduler.external_requests.predictions.probe import Predictors

_SUFFIX = 6

_LOG = logging.getLogger(__name__)


class ExperimentCommands:
    """Creates and changes experiments on behalf of clients. Validates each request before it becomes an event.

    Args:
        runtime: The event loop of the scheduler.
        queries: Reads experiments.
        generators: Validates the generator of a new experiment.
        predictors: Validates the predictor of a new experiment.
        catalog: Provides the data set of a new experiment.
        plans: Reads earlier training that a new experiment can reuse.
        stub: Client of AppStat.

    Attributes:
        queries: Reads experiments.
    """

    def __init__(
        self,
        runtime: Runtime,
        queries: ExperimentQueries,
        generators: Generators,
        predictors: Predictors,
        catalog: Catalog,
        plans: PlanReader,
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub,
    ) -> None:
        self.queries = queries
        self._runtime = runtime
        self._generators = generators
        self._predictors = predictors
        self._catalog = catalog
        self._plans = plans
        self._stub = stub
        self._specs = SpecThread()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._bundles: Counter[str] = Counter()  # Number of experiments that are being created with each code bundle.
        self._claimed: set[str] = set()  # Ids of experiments that are being created or imported, and of imported ones.

    # ------------------------------------------------------------------------------------------------------------ create

    async def create(self, text: str, source: str, bundle: str, request: str, interpreter: str) -> tuple[str, str]:
        """Validate, create and start an experiment.

        Args:
            text: The text of the experiment file.
            source: The name of the file for error messages; empty: "experiment".
            bundle: The hash of the code bundle; empty: none.
            request: Idempotency key: a repeated call returns the experiment that the first call created.
            interpreter: The path of the Python interpreter of the client, for the runs; empty: unknown.

        Returns:
            The id of the experiment, and a note for people about it; an empty note: there is nothing to say.

        Raises:
            InvalidInput: The experiment is invalid. The message lists all errors.
            Conflict: An earlier call with this idempotency key created a different experiment.
        """
        check_request_id(request)
        async with self._locks.setdefault(f"create {request}", asyncio.Lock()), self._using(bundle):
            try:
                return await self._create(text, source, bundle, request, interpreter)
            except InvalidInput as error:
                raise await self._specs.locate(error, text, source or "experiment") from error

    @asynccontextmanager
    async def _using(self, bundle: str) -> AsyncIterator[None]:
        """Mark a code bundle (empty: none) as used until the context ends, while an experiment is created with it.

        Meanwhile `unused` yields False, so the bundle is not deleted.
        """
        async with self._locks.setdefault(f"code {bundle}", asyncio.Lock()):
            self._bundles[bundle] += 1
        try:
            yield
        finally:
            self._bundles[bundle] -= 1

    @asynccontextmanager
    async def unused(self, bundle: str) -> AsyncIterator[bool]:
        """Yield whether no experiment uses a code bundle. Until the context ends, the creation of one that uses it waits.

        Unfinished and ended experiments count, and those that are being created.

        Args:
            bundle: SHA-256 of the bundle.
        """
        async with self._locks.setdefault(f"code {bundle}", asyncio.Lock()):
            yield not self._bundles[bundle] and bundle not in {
                one.bundle for one in await persist(self.queries.show_all)
            }

    def loading(self, stream: StreamId) -> asyncio.Lock:
        """Return the lock that is held while a stream is loaded from the journal into the core, or while it is deleted."""
        return self._locks.setdefault(f"load {stream}", asyncio.Lock())

    async def _create(self, text: str, source: str, bundle: str, request: str, interpreter: str) -> tuple[str, str]:
        spec = await self._specs.load(text, source or "experiment")
        settings = settings_of(spec)
        # Report errors in the data set first.
        data = self._catalog.place(spec.data) if spec.data is not None else None
        if bundle:
            await self._need_bundle(bundle)
        capabilities, note = await self._try_policy(spec, settings, data, bundle)
        note = "; ".join(said for said in (note, unseen_metric(spec, data)) if said)
        spec = spec.with_generator(capabilities.generator)
        trusted = trusted_plugins(spec)
        note = "; ".join(said for said in (note, trusted) if said)
        if "predictor" in spec.model_fields_set:
            await self._predictors.check(spec.predictor, bundle)
        settings = with_capabilities(settings, capabilities)
        if spec.snapshot.ship_every is not None:
            settings = replace(settings, ship_every=spec.snapshot.ship_every)
        payload = await self._specs.payload(partial(_payload, spec, bundle, interpreter, request))
        if capabilities.shares or capabilities.scales:
            settings = _known_by(settings, capabilities, program_of(payload), await hash_of_code(self._stub, bundle))
        known, name = await self._named(_slug(spec.name), payload)
        if known:
            return name, note
        if trusted:
            _LOG.warning("experiment %s: %s", name, trusted)
        try:
            knows = await self._begin(name, spec, settings, payload, capabilities.version)
        except BaseException:
            self._generators.abandon(ExperimentId(name))
            raise
        finally:
            self.give_back([name])
        if settings.plan and not knows:
            unlike = await unlike_others(
                self._stub, await self.queries.show_all(damaged=True), name, program_of(payload)
            )
            note = "; ".join(said for said in (note, unlike) if said)
        return name, note

    @reloads
    async def _begin(
        self, name: str, spec: ExperimentSpec, settings: Settings, payload: dict[str, str], version: str
    ) -> bool:
        """Create the stream of a new experiment, or add the experiment to its group.

        Args:
            name: The claimed id of the experiment.
            spec: Its specification, parsed from the experiment file.
            settings: The values of the specification that the core uses, in the core's form.
            payload: The specification and other inputs, for the first event of the experiment.
            version: The version of its policy.

        Returns:
            True if a new stream was created that reuses earlier training.

        Raises:
            InvalidInput: The generator is invalid, or the experiment does not fit its group.
        """
        if spec.share is None:
            reads = await self._generators.validate(ExperimentId(name), payload["spec"])
            settings = replace(settings, generator_reads=reads)
            return await self._begin_stream(name, spec, settings, payload, version)
        async with self._locks.setdefault(f"share {spec.share}", asyncio.Lock()):
            group = self._group(spec)
            reads = await self._generators.validate(ExperimentId(name), payload["spec"])
            settings = replace(settings, generator_reads=reads)
            if group is None:
                return await self._begin_stream(name, spec, settings, payload, version)
            experiments = self._runtime.core.streams[StreamId(group)].experiments
            earlier = await self._earlier(StreamId(group), settings, experiments)
            await self._runtime.apply(
                ExperimentJoined(self._runtime.clock(), StreamId(group), ExperimentId(name), settings, payload, earlier)
            )
        return False  # The group may still have earlier training to share.

    async def _begin_stream(
        self, name: str, spec: ExperimentSpec, settings: Settings, payload: dict[str, str], version: str
    ) -> bool:
        earlier = await self._earlier(StreamId(name), settings)
        scaling = await measured(self._stub, settings.training) if settings.training else ()
        async with self._catalog.using:
            data = self._catalog.place(spec.data) if spec.data is not None else None
            policy = PolicyVersion(spec.policy.label, version)
            created = StreamCreated(
                self._runtime.clock(), StreamId(name), settings, payload, data, earlier, scaling, policy
            )
            await self._runtime.apply(created)
        return bool(earlier)

    async def _earlier(
        self, stream: StreamId, settings: Settings, experiments: Collection[str] = ()
    ) -> tuple[EarlierTrial, ...]:
        """Return the earlier training that a stream can reuse; empty if its policy does not share training.

        Args:
            stream: The id of the stream, which becomes an owner of the snapshots.
            settings: The settings of the new experiment, in the form in which the core uses them.
            experiments: Experiments of the stream itself, whose training is omitted.
        """
        return await self._plans.read(settings.plan, stream, without=experiments) if settings.plan else ()

    def _group(self, spec: ExperimentSpec) -> str | None:
        """Return the id of the unfinished group with the `share` key of a new experiment; None: there is no such group.

        Args:
            spec: The specification of the new experiment, which has a `share` key.

        Raises:
            InvalidInput: The policy, metric, unit, data set, or the CPUs or GPUs per job differ from those of the group's
                first experiment.
        """
        for stream in self._runtime.core.streams.values():
            other = self._runtime.program(stream.founder.id).spec
            if other.share == spec.share and not stream.state.ended:
                need_agreement(spec, other, stream.id)
                return stream.id
        return None

    async def _named(self, slug: str, payload: Mapping[str, str]) -> tuple[bool, str]:
        """Return the experiment of an earlier call with the same idempotency key, or claim a new id.

        An id ends with a prefix of the hash of its idempotency key: 6 digits, or more if the shorter id is taken.

        Args:
            slug: The first part of a new id.
            payload: The inputs of the new experiment, including its idempotency key.

        Returns:
            True and the id of the earlier experiment, or False and a newly claimed id.

        Raises:
            Conflict: The earlier call created an experiment from other inputs.
        """
        digest = hashlib.sha256(payload["request"].encode()).hexdigest()
        taken = {found.id for found in await self.queries.show_all(damaged=True)}
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
        """Claim the id `name` for an experiment that is about to be created.

        Returns:
            True if the id is claimed now; False if an experiment exists with this id, or it was claimed before.

        Raises:
            Conflict: An experiment with this id is being deleted.
        """
        if any(name in event.experiments for event in self._runtime.core.cluster.open_deletions.values()):
            raise Conflict(f"experiment {name} is being deleted; try again in a moment")
        if (
            name in self._claimed
            or name in {found.id for found in await self.queries.show_all(damaged=True)}
            or name in self._claimed
        ):
            return False
        self._claimed.add(name)
        return True

    def give_back(self, names: Iterable[str]) -> None:
        """Release the claimed ids `names`, whether or not their experiments were created.

        Ids that are not claimed are ignored.
        """
        self._claimed.difference_update(names)

    async def _try_policy(
        self, spec: ExperimentSpec, settings: Settings, data: PlacedData | None, bundle: str
    ) -> tuple[PolicyCapabilities, str]:
        policy, policies = spec.policy, self._runtime.policies
        if not runs_inline(policy):
            return await policies.review(spec, settings, data, bundle)
        try:
            made = new_policy(policy.name, policy.parameters)
            capabilities = capabilities_of(made)
            need_fit(spec, capabilities)
            return capabilities, review(policy.name, made, settings, spec.space, data)
        except PluginError as error:
            hint = (
                f"; a process serves {REMOTE}{policy.name}: did you mean that?" if policies.serves(policy.name) else ""
            )
            raise InvalidInput(f"policy: {error}{hint}") from error

    async def _need_bundle(self, bundle: str) -> None:
        found = await self._stub.HasBlobs(appstat_pb2.HasBlobsRequest(sha256=[bundle]))
        if bundle not in found.sha256:
            raise InvalidInput(f"bundle: {bundle} is not in the snapshot store; put it there first (PutBlob)")

    # ------------------------------------------------------------------------------------------------------------ change

    @reloads
    async def operate(self, name: str, action: Literal["pause", "resume", "stop", "close"]) -> None:
        """Pause, resume, stop or close an experiment.

        Args:
            name: The id of the experiment.
            action: The operation. "stop" ends the experiment as STOPPED, "close" as COMPLETED. Both have no effect on
                an experiment that has ended.

        Raises:
            NotFound: The experiment does not exist.
            Conflict: The experiment has ended and cannot be paused or resumed.
        """
        stream, experiment = await self.loaded(name)
        if experiment.state.ended and action not in ("stop", "close"):
            raise Conflict(
                f"experiment {name} is {experiment.state.value} ({experiment.reason}); run `hopyard extend` to continue it"
            )
        await self._runtime.apply(
            Operated(self._runtime.clock(), stream.id, action, ExperimentId(name), ends_if_done=action == "pause")
        )

    @reloads
    async def keep(self, name: str) -> None:
        """Restart the idle time of an experiment that waits for job requests. It has no effect on one that does not.

        The idle time is the time without requests after which such an experiment ends.

        Args:
            name: The id of the experiment.

        Raises:
            NotFound: The experiment does not exist.
            Conflict: The experiment has ended or is ending.
        """
        stream, experiment = await self.loaded(name)
        if experiment.state.ended or experiment.state is ExperimentState.ENDING:
            raise Conflict(f"experiment {name} is {experiment.state.value} ({experiment.reason})")
        if stream.due(IdleTimer(ExperimentId(name))) is not None:
            await self._runtime.apply(Operated(self._runtime.clock(), stream.id, "keep", ExperimentId(name)))

    @reloads
    async def extend(self, name: str, jobs: int, max_iterations: int, seconds: float, request: str) -> None:
        """Give an experiment, which may have ended, more jobs, positions or time. At least one of them must be given.

        Args:
            name: The id of the experiment.
            jobs: The number of additional jobs; 0: none.
            max_iterations: The new maximum position of a job; 0: unchanged.
            seconds: Additional seconds of its time limit; 0: none.
            request: Idempotency key: a repeated call with the same key extends nothing again.

        Raises:
            InvalidInput: Nothing is extended, a value is negative or too large, the new maximum position is less than
                the present one, `seconds` is given and the experiment has no time limit, or the idempotency key is empty.
            NotFound: The experiment does not exist.
            Conflict: The stream of the experiment was stopped after an error in the engine (quarantine).
        """
        stream, experiment = await self.loaded(name)
        check_request_id(request)
        if not math.isfinite(seconds) or jobs >= ENDLESS or max_iterations >= ENDLESS:
            raise InvalidInput(f"an extension is finite and at most {ENDLESS - 1} jobs or units")
        if jobs < 0 or seconds < 0:
            raise InvalidInput(f"found jobs {jobs} and seconds {seconds:g}, allowed are 0 or more")
        if max_iterations and max_iterations < (furthest := experiment.settings.max_position):
            raise InvalidInput(f"max_iterations: found {max_iterations}, allowed are the present {furthest} or more")
        if (present := experiment.settings.jobs) < ENDLESS <= present + jobs:
            raise InvalidInput(f"jobs: found {jobs}, allowed is 0 to {ENDLESS - 1 - present}: stop.jobs is {present}")
        if not (jobs or max_iterations or seconds):
            raise InvalidInput("extend by jobs, max_iterations or seconds")
        if seconds and experiment.settings.max_seconds is None:
            raise InvalidInput(
                f"seconds: found {seconds:g}, but experiment {name} has no time limit (stop.max_time); it runs as long as it needs"
            )
        now = self._runtime.clock()
        await self._change(
            Updated(now, stream.id, request, jobs, max_iterations or None, seconds, experiment=ExperimentId(name))
        )

    @reloads
    async def retry(self, name: str, jobs: Sequence[str], request: str) -> list[experiment_pb2.Job]:
        """Let failed jobs of an experiment, which may have ended, start again.

        Args:
            name: The id of the experiment.
            jobs: Ids of failed jobs; empty: all failed jobs.
            request: Idempotency key: a repeated call with the same key retries nothing again.

        Returns:
            The jobs that start again, in the order of `jobs`; in a repeated call the given jobs, or, without `jobs`, those that are
            FAILED now.

        Raises:
            InvalidInput: There is no idempotency key.
            NotFound: The experiment does not exist.
            Conflict: No job has failed, one of the given jobs cannot start again, the experiment is ending, or its stream
                was stopped after an error in the engine (quarantine). Nothing is retried.
        """
        stream, experiment = await self.loaded(name)
        check_request_id(request)
        repeated = request in stream.requests
        own = [job for job in stream.jobs.values() if job.experiment is experiment]
        wanted = list(dict.fromkeys(jobs)) or [job.id for job in own if job.state is JobState.FAILED]
        if not wanted and not repeated:
            raise Conflict(f"experiment {name} has no failed job")
        if not repeated:
            retried = JobsRetried(self._runtime.clock(), stream.id, request, tuple(wanted), ExperimentId(name))
            await self._change(retried)
        return self.queries.shown_jobs(stream, [stream.jobs[job] for job in wanted if job in stream.jobs])

    @reloads
    async def update(self, name: str, terms: UpdateRequest) -> None:
        """Change the metric, the target or the weight of an experiment, or its maximum number of slots or of jobs in training.

        Args:
            name: The id of the experiment.
            terms: The changes.

        Raises:
            InvalidInput: A value is invalid, or nothing is changed.
            NotFound: The experiment does not exist.
            Conflict: The metric cannot change: decisions depend on the present one, or no report contains the new one. Or the
                stream of the experiment was stopped after an error in the engine (quarantine).
        """
        stream, experiment = await self.loaded(name)
        if terms.metric:
            need_pattern(self._runtime.program(ExperimentId(name)).spec, terms.metric, running=bool(stream.live))
        await self._change(update_of(self._runtime.clock(), stream.id, experiment, terms))

    @reloads
    async def request(self, name: str, wanted: Sequence[JobRequest]) -> list[experiment_pb2.Job]:
        """Request configurations, each to be trained up to a position, as jobs of an experiment.

        Args:
            name: The id of the experiment.
            wanted: The requests. A request with an idempotency key that was accepted before creates no new job.

        Returns:
            One job for each request, also for repeated ones, in the order of the requests.

        Raises:
            InvalidInput: Requests are invalid. The message lists all errors; no request is accepted.
            NotFound: The experiment does not exist.
            Conflict: The policy of the experiment serves no requests, the experiment has ended or is ending, or an
                idempotency key belongs to another request.
        """
        stream, experiment = await self.loaded(name)
        if not stream.settings.requests:
            policy = self._runtime.program(stream.founder.id).spec.policy.label
            raise Conflict(f"experiment {name}: its policy {policy} serves no requests; a stage_tree does")
        space = self._runtime.program(ExperimentId(name)).spec.search_space
        check(wanted, space, experiment.settings.max_position)
        wanted = [each._replace(hyperparameters=space.normalize(each.hyperparameters)) for each in wanted]
        # One call at a time: each call recognizes the requests of earlier calls. `more` is the number of following new requests.
        async with self._locks.setdefault(f"request {stream.id}", asyncio.Lock()):
            new = [each for each in wanted if not known(stream, experiment, each)]
            if new and (experiment.state.ended or experiment.state is ExperimentState.ENDING):
                raise Conflict(
                    f"experiment {name} is {experiment.state.value} ({experiment.reason}); run `hopyard extend` to continue it"
                )
            at = self._runtime.clock()
            asked = [
                Requested(at, stream.id, each.request, each.hyperparameters, each.position, ExperimentId(name), more)
                for each, more in zip(new, reversed(range(len(new))), strict=True)
            ]
            refused = [text for text in await asyncio.gather(*map(self._runtime.operate, asked)) if text]
        if refused:
            raise Conflict(refused[0])
        return self.queries.shown_jobs(
            stream,
            [stream.jobs[experiment.requested[each.request]] for each in wanted if known(stream, experiment, each)],
        )

    async def _change(self, event: Updated | JobsRetried) -> None:
        refused = await self._runtime.operate(event)
        if refused:
            raise Conflict(refused)

    async def loaded(self, name: str) -> tuple[Stream, Experiment]:
        """Return the stream of an experiment, and the experiment. If they are not in memory, replay them from the journal.

        Args:
            name: The id of the experiment, which may have ended.

        Raises:
            NotFound: The experiment does not exist.
            DataLoss, RecordError: Its journal cannot be read.
        """
        known = self._runtime.core.find(ExperimentId(name))
        if known is None:
            shown = await self.queries.show(name)
            stream = StreamId(shown.group or name)
            async with self.loading(stream):
                if self._runtime.core.find(ExperimentId(name)) is None:
                    try:
                        await self._load(stream, shown)
                    except DataLoss:
                        await self.queries.show(name)  # NotFound: it was deleted while this call waited for `loading`.
                        raise
        return experiment_of(self._runtime.core, ExperimentId(name))

    async def _load(self, name: StreamId, shown: experiment_pb2.Experiment) -> None:
        """Replay a stream from its journal while its loading is locked. `shown` is one of its experiments.

        If its journal could not be read before, the rows of its experiments are written again, and it continues in the state that the
        journal records. It has lost the slots that it held there (`Core.admit`).
        """
        apart, found = Core(), RecoveryResult()
        await replay(apart, self._runtime.journal, name, found)
        if was_unreadable(shown):
            rows = await readable_rows(self._runtime.journal, name)
            await self._runtime.journal.append([], rows, self._runtime.clock())
        self._runtime.install(apart.streams[name], found)


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


def _known_by(settings: Settings, capabilities: PolicyCapabilities, program: ExperimentProgram, code: str) -> Settings:
    """Return the settings with the hashes under which training and scaling profiles are shared between experiments.

    Args:
        settings: The settings of the experiment.
        capabilities: State whether the policy shares training, and whether it uses scaling profiles.
        program: The program of the experiment.
        code: A hash of the files in the code bundle; empty: the experiment has no code bundle, so scaling profiles are
            not shared.
    """
    if capabilities.shares:
        settings = replace(settings, plan=program.root(code), lasting=True)
    if capabilities.scales and code:
        settings = replace(settings, training=program.training(code))
    return settings


def _payload(spec: ExperimentSpec, bundle: str, interpreter: str, request: str) -> dict[str, str]:
    return {
        "name": spec.name,
        "spec": canonical_json(spec),
        "bundle": bundle,
        "interpreter": interpreter,
        "request": request,
    }
