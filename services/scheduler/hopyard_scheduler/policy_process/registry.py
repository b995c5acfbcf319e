"""The register of the policies of this scheduler that run in processes."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from hopyard._net.auth import TokenAuthenticator
from hopyard._runtime.bundle import BundleError, unpack
from hopyard._runtime.policy_process.capabilities import capabilities_from_proto
from hopyard._runtime.processes.process_limits import ResourceLimits
from hopyard._runtime.processes.timeouts import TimeLimitExceeded, within
from hopyard.errors import HopyardError, InvalidInput
from hopyard.policy import ExperimentView, PolicyCapabilities
from hopyard.policy.invoke import brief
from hopyard.policy.vocabulary import StreamId
from hopyard.spec import ExperimentSpec, canonical_json
from hopyard.spec.models import PolicySpec
from hopyard.v1 import appstat_pb2, appstat_pb2_grpc
from hopyard.v1 import policy_pb2 as pb
from hopyard_engine.core.events import Event, PolicyProcess
from hopyard_engine.core.types import PlacedData, Settings
from hopyard_engine.policy_host import took_too_long
from hopyard_engine.policy_host.factory import need_fit, terms_of
from hopyard_scheduler.experiments.program import ExperimentProgram
from hopyard_scheduler.policy_process.command import CommandLauncher
from hopyard_scheduler.policy_process.connections import ConnectionLost, ConnectionRegistry, PolicyConnection
from hopyard_scheduler.policy_process.folders import PolicyFolders
from hopyard_scheduler.policy_process.inbound import InboundPolicy
from hopyard_scheduler.policy_process.own_policy import OwnPolicyLauncher
from hopyard_scheduler.policy_process.policy import Limits, ProcessSource, RemotePolicy
from hopyard_scheduler.policy_process.spawn import SpawnedPolicy
from hopyard_scheduler.policy_process.state_delta import terms_to_proto
from hopyard_scheduler.runtime.journal import persist

REVIEW_ABSENCE_SECONDS: Final = 15.0
"""Time limit in seconds for a process to connect for the review of a new experiment."""


MOST_REVIEWS: Final = 4
"""Maximum number of reviews at one time. Each may start a process; further reviews wait."""


class PolicyProcesses:
    """Creates policies that run in processes, and ends the processes that it has started for them.

    Args:
        registry: The register of the connections of policy processes.
        address: Returns the address of this scheduler. Called only after it listens.
        tokens: The tokens that this scheduler accepts, to which those of started processes are added.
        stub: Client of AppStat, from which code bundles are read.
        limits: Time limits of the processes.
        resources: Limits of the memory of the processes that the scheduler starts, and of the number of their children.
    """

    def __init__(
        self,
        registry: ConnectionRegistry,
        address: Callable[[], str],
        tokens: TokenAuthenticator,
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub,
        limits: Limits,
        resources: ResourceLimits | None = None,
    ) -> None:
        self._resources = resources or ResourceLimits()
        self._registry = registry
        self._address = address
        self._tokens = tokens
        self._stub = stub
        self._limits = limits
        self._folders = PolicyFolders()
        self._reviews = asyncio.Semaphore(MOST_REVIEWS)
        self._open: dict[str, RemotePolicy] = {}
        self._reviewing: set[ProcessSource] = set()
        self._post: Callable[[Event], None] = lambda event: None
        self._clock: Callable[[], float] = time.time

    def attach(self, post: Callable[[Event], None], clock: Callable[[], float]) -> None:
        """Connect the event queue, which receives a `PolicyProcess` event when a process connects or disconnects.

        Args:
            post: Adds an event to the queue.
            clock: Returns seconds since the Unix epoch.
        """
        self._post, self._clock = post, clock

    def policy(
        self,
        stream: StreamId,
        program: ExperimentProgram,
        journal: Callable[[], AsyncIterator[Event]],
        then: str = "",
    ) -> RemotePolicy:
        """Create the policy of a stream. Its state is rebuilt from the journal when a process connects.

        Args:
            stream: The id of the stream.
            program: The program of the stream's first experiment.
            journal: Reads all events of the stream.
            then: What a person should do when a process is available again; empty: resume the experiment.
        """
        spec = program.spec
        source = self._source(spec.policy, program.bundle)
        made = RemotePolicy(
            spec.policy.label,
            stream,
            canonical_json(spec),
            spec.policy.parameters,
            source,
            journal,
            self._limits,
            then or f"hopyard resume {stream}",
            lambda here, again: self._post(PolicyProcess(self._clock(), stream, here, again)),
            self._clock,
            own=not spec.policy.remote,
        )
        self._open[stream] = made
        return made

    def serves(self, name: str) -> bool:
        """Return True if a process that connected under this policy name is available to a new experiment."""
        return self._registry.has_waiting(name)

    async def start(self) -> None:
        """Delete the folders of policy processes that killed schedulers left."""
        await asyncio.to_thread(self._folders.remove_abandoned)

    async def over(self, stream: StreamId) -> None:
        """Close the policy of a finished stream. No effect if the stream has no policy in a process.

        Args:
            stream: The id of the stream.
        """
        made = self._open.get(stream)
        if made is not None:
            await made.close()
            if self._open.get(stream) is made:
                del self._open[stream]

    async def close(self) -> None:
        """Close all policies, end the reviews, and delete the files of their processes."""
        opened: list[RemotePolicy | ProcessSource] = [*self._open.values(), *self._reviewing]
        await asyncio.gather(*(one.close() for one in opened))
        self._open.clear()
        await asyncio.to_thread(self._folders.close)

    async def review(
        self, spec: ExperimentSpec, settings: Settings, data: PlacedData | None, bundle: str
    ) -> tuple[PolicyCapabilities, str]:
        """Ask a policy whether it can serve a new experiment, and which features of the engine it needs.

        Args:
            spec: The specification of the experiment.
            settings: The settings of the experiment.
            data: The data set of the experiment; None: it has none.
            bundle: The hash of its code bundle; empty: none.

        Returns:
            The capabilities of the policy, and a note for people; an empty note: there is nothing to say.

        Raises:
            InvalidInput: The policy cannot serve the experiment, or no process answers in time.
        """
        async with self._reviews:
            return await self._review(spec, settings, data, bundle)

    async def _review(
        self, spec: ExperimentSpec, settings: Settings, data: PlacedData | None, bundle: str
    ) -> tuple[PolicyCapabilities, str]:
        source = self._source(spec.policy, bundle)
        kept = False
        # A stop of the scheduler cancels the review without waiting for the end of its process, so `close` ends it, too.
        self._reviewing.add(source)
        try:
            connection = await self._connect(source, spec.policy)
            try:
                found = await self._reviewed(source, connection, spec, terms_of(settings, spec.space, data))
            finally:
                source.give_back(connection)
            kept = True
        finally:
            if not (kept and isinstance(source, InboundPolicy)):
                await source.close()
            self._reviewing.discard(source)
        label = spec.policy.label
        if found.error:
            said = brief(found.error)
            raise InvalidInput(f"policy {label}: {said}" if spec.policy.remote else said)
        try:
            capabilities = capabilities_from_proto(found)
        except InvalidInput as error:
            raise InvalidInput(f"policy {label}: {error}") from error
        need_fit(spec, capabilities)
        return capabilities, f"policy {label}: {brief(found.note)}" if found.note else ""

    async def _connect(self, source: ProcessSource, policy: PolicySpec) -> PolicyConnection:
        seconds = REVIEW_ABSENCE_SECONDS
        try:
            return await within(seconds, source.take(StreamId("")))
        except TimeLimitExceeded:
            raise InvalidInput(f"policy {policy.label}: {source.absent} (waited {seconds:g} s)") from None
        except HopyardError as error:
            raise InvalidInput(f"policy {policy.label}: {error}") from error

    async def _reviewed(
        self, source: ProcessSource, connection: PolicyConnection, spec: ExperimentSpec, view: ExperimentView
    ) -> pb.PolicyReviewed:
        terms = terms_to_proto(view)
        terms.space_json = json.dumps(spec.space.to_dict())
        terms.constraints.extend(spec.constraints)
        parameters = json.dumps(spec.policy.parameters)
        review = pb.PolicyReview(spec_json=canonical_json(spec), parameters_json=parameters, experiment=terms)
        label, seconds = spec.policy.label, self._limits.answer
        try:
            await connection.send(pb.DriveResponse(review=review))
            said = await within(seconds, connection.receive())
        except TimeLimitExceeded:
            connection.close(InvalidInput(f"policy {label}: took longer than {seconds:g} s for a review"))
            if not spec.policy.remote:
                raise InvalidInput(took_too_long(label, seconds, None)) from None
            raise InvalidInput(f"policy {label}: its process took longer than {seconds:g} s for the review") from None
        except ConnectionLost:
            output = f"; its last output: {last}" if (last := source.last_output) else ""
            raise InvalidInput(f"policy {label}: its process ended during the review{output}") from None
        if said.WhichOneof("message") != "reviewed":
            found = said.WhichOneof("message")
            connection.close(InvalidInput(f"found {found}, needed is reviewed"))
            raise InvalidInput(f"policy {label}: its process answered the review with {found}, needed is reviewed")
        return said.reviewed

    def _source(self, policy: PolicySpec, bundle: str) -> ProcessSource:
        if policy.dials_in:
            return InboundPolicy(policy.dials_in, self._registry, self._address)
        launcher = (
            CommandLauncher(policy.command, self._registry, self._address, self._tokens)
            if policy.command is not None
            else OwnPolicyLauncher(policy.name)
        )
        code = (lambda: self._packed(bundle)) if bundle else None
        return SpawnedPolicy(launcher, code, bundle, self._folders, self._resources)

    @asynccontextmanager
    async def unpacked(self, bundle: str) -> AsyncIterator[Path]:
        """Unpack a code bundle into a new folder, which is deleted when the context ends.

        Raises:
            InvalidInput: The bundle cannot be unpacked.
            NotFound: There is no such bundle.
        """
        packed = await persist(lambda: self._packed(bundle))
        folder = self._folders.make()
        try:
            await asyncio.to_thread((folder / "bundle").write_bytes, packed)
            await asyncio.to_thread(unpack, folder / "bundle", folder / "code", bundle)
            yield folder / "code"
        except BundleError as error:
            raise InvalidInput(f"bundle: {error}") from error
        finally:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))

    async def _packed(self, bundle: str) -> bytes:
        request = appstat_pb2.GetBlobRequest(sha256=bundle)
        return b"".join([part.data async for part in self._stub.GetBlob(request)])
