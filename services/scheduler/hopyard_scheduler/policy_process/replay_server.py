"""A server to which policy processes connect during an offline replay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Final

from hopyard._net.server import Server
from hopyard.errors import Unavailable
from hopyard.policy.vocabulary import StreamId
from hopyard.v1 import appstat_pb2_grpc, policy_pb2_grpc
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.events import Event, PolicyAnswered, PolicyFailed
from hopyard_engine.core.state.stream import Stream
from hopyard_scheduler.experiments.program import ExperimentProgram
from hopyard_scheduler.policy_process.connections import REQUEST_BYTES, ConnectionRegistry
from hopyard_scheduler.policy_process.policy import Limits, RemotePolicy
from hopyard_scheduler.policy_process.registry import PolicyProcesses
from hopyard_scheduler.servicers.policies import PolicyServicer

LIMITS: Final = Limits(answer=60.0, absence=60.0)


class BlockingHost:
    """A policy in a process with a blocking interface: `answer` returns the answer to an up-call. A replay uses it as the policy.

    A thread calls it while the event loop exchanges messages with the process.

    Args:
        policy: The policy.
        loop: The event loop that serves the process.
    """

    def __init__(self, policy: RemotePolicy, loop: asyncio.AbstractEventLoop) -> None:
        self._policy = policy
        self._loop = loop

    def answer(self, stream: Stream, call: UpCall) -> PolicyAnswered | PolicyFailed:
        """Send one up-call to the process and block until its answer. It must not be called on the thread of the event loop.

        Args:
            stream: The stream of the up-call.
            call: The up-call.

        Raises:
            Unavailable: No process connected in time, or none answered. Other failures of the policy are returned.
        """
        asking = self._policy.answer(stream, call, nullcontext())
        found = asyncio.run_coroutine_threadsafe(asking, self._loop).result()
        if isinstance(found, PolicyFailed) and found.unheard:
            raise Unavailable(str(found.reason))
        return found


@asynccontextmanager
async def dialled(
    stream: StreamId,
    program: ExperimentProgram,
    journal: Callable[[], AsyncIterator[Event]],
    stub: appstat_pb2_grpc.AppStatServiceAsyncStub,
    say: Callable[[str], None],
) -> AsyncIterator[BlockingHost]:
    """Serve the policy process of an experiment while the context is open. The context value passes up-calls to the process.

    If no process connects within `LIMITS.absence` seconds, `BlockingHost.answer` raises Unavailable.

    Args:
        stream: The id of the stream.
        program: The program of the experiment. If it has a policy command, this function starts the command.
        journal: Reads all events of the stream.
        stub: Client of AppStat, from which the code bundle is read.
        say: Shows a text to people: how to start the process, if they must start it.
    """
    registry = ConnectionRegistry()
    server = Server("replay", request_bytes=REQUEST_BYTES)
    policies = PolicyProcesses(registry, lambda: server.address, server.tokens, stub, LIMITS)
    server.add(
        policy_pb2_grpc.add_PolicyServiceServicer_to_server, PolicyServicer(registry), "hopyard.v1.PolicyService"
    )
    await server.start()
    try:
        policy = policies.policy(stream, program, journal, then="replay it again")
        if name := program.spec.policy.dials_in:
            say(
                f"the policy of {stream} runs in a process of its own; waiting up to {LIMITS.absence:g} s for one: "
                f"hopyard policy serve module:Class --name {name} --server {server.address}"
            )
        yield BlockingHost(policy, asyncio.get_running_loop())
    finally:
        await policies.close()
        registry.close()
        await server.stop(1.0)
