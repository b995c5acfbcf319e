"""Helpers for tests of policy processes, and simulated searches whose policies run in such processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hopyard._net.server import Server
from hopyard.policy import Policy
from hopyard.policy.vocabulary import StreamId
from hopyard.v1 import policy_pb2_grpc
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Effect, Record, UpCall
from hopyard_engine.core.events import Event, PolicyAnswered, PolicyFailed
from hopyard_engine.core.state.stream import Stream
from hopyard_scheduler.policy_process.command import CommandLauncher
from hopyard_scheduler.policy_process.connections import ConnectionRegistry
from hopyard_scheduler.policy_process.folders import PolicyFolders
from hopyard_scheduler.policy_process.inbound import InboundPolicy
from hopyard_scheduler.policy_process.own_policy import OwnPolicyLauncher
from hopyard_scheduler.policy_process.policy import Limits, ProcessSource, RemotePolicy
from hopyard_scheduler.policy_process.spawn import SpawnedPolicy
from hopyard_scheduler.servicers.policies import PolicyServicer
from hopyard_simulator import Result, Workload, simulate, world
from tests.conftest import require_system_package
from tests.timing import HANG_SECONDS

ROOT = Path(__file__).parents[3]
NODE = ROOT / "examples" / "node_policy"
SERVE = (sys.executable, "-m", "hopyard.cli.main", "policy", "serve")
LIMITS = Limits(answer=HANG_SECONDS, absence=HANG_SECONDS)

T = TypeVar("T")


@contextmanager
def serving(*arguments: str, where: Path = ROOT) -> Iterator[subprocess.Popen[bytes]]:
    """Context manager that runs `hopyard policy serve` with these arguments."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOPYARD_")}
    process = subprocess.Popen([*SERVE, *arguments], cwd=where, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait(HANG_SECONDS)


class Post:
    """The service to which policy processes connect; it has its own thread and event loop, because simulations block the test's."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="post", daemon=True)
        self._thread.start()
        self.registry, self.folders = ConnectionRegistry(), PolicyFolders()
        self._server = Server("test")
        servicer = PolicyServicer(self.registry)
        self._server.add(policy_pb2_grpc.add_PolicyServiceServicer_to_server, servicer, "hopyard.v1.PolicyService")
        self.address = self.do(self._server.start())

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop of the service and return its result."""
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(2 * HANG_SECONDS)

    def close(self) -> None:
        """Close all connections and stop the service."""
        self._loop.call_soon_threadsafe(self.registry.close)
        self.do(self._server.stop(1.0))
        self.folders.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG_SECONDS)
        self._loop.close()

    def dialled(self, name: str) -> ProcessSource:
        """Return a source of processes that connect under `name` and were started elsewhere."""
        return InboundPolicy(name, self.registry, lambda: self.address)

    def own(self, policy: str) -> SpawnedPolicy:
        """Return a source that starts a process of this Python interpreter for `policy`."""
        return SpawnedPolicy(OwnPolicyLauncher(policy), None, "", self.folders)

    def started(self, *command: str) -> SpawnedPolicy:
        """Return a source that starts a process with `command`."""
        launcher = CommandLauncher(command, self.registry, lambda: self.address, self._server.tokens)
        return SpawnedPolicy(launcher, None, "", self.folders)


class Far:
    """A policy host, as the simulator uses it, whose policy runs in a process.

    Args:
        post: The service to which the process connects.
        source: Where the process comes from.
        parameters: Parameters of the policy.
        events: The events so far, as in a journal.
        disturb: Called in a thread at each up-call, while the up-call is answered.
    """

    def __init__(
        self,
        post: Post,
        source: ProcessSource,
        parameters: Mapping[str, Any],
        events: list[Event],
        disturb: Callable[[UpCall], None] = lambda call: None,
    ) -> None:
        async def journal() -> AsyncIterator[Event]:
            for event in list(events):
                yield event

        self._post = post
        self._disturb = disturb
        self.policy = RemotePolicy("far", StreamId("x"), "{}", parameters, source, journal, LIMITS, "try again")

    def answer(self, experiment: Stream, call: UpCall) -> PolicyAnswered | PolicyFailed:
        disturbing = threading.Thread(target=self._disturb, args=(call,))
        disturbing.start()
        answer = self._post.do(self.policy.answer(experiment, call, nullcontext()))
        disturbing.join()
        return answer

    def confidences(self, experiment: Stream, at: float) -> dict[str, float]:
        """Return nothing: the simulator asks for confidences, and a policy in another process has none here."""
        return {}


def searched(
    workload: Workload,
    policy: str,
    monkeypatch: pytest.MonkeyPatch,
    host: Callable[[Policy, list[Event]], Any] | None = None,
    **terms: Any,
) -> tuple[Result, list[Event]]:
    """Return the result of a simulated search, and its journal.

    Args:
        workload: What is trained.
        policy: Name of the policy.
        monkeypatch: Replaces the simulator's policy host.
        host: Makes a policy host from the policy and the journal so far; None: the policy runs in this process.
        terms: Further arguments of the simulation.
    """
    events: list[Event] = []

    class Recording(Core):
        def handle(self, event: Event) -> list[Effect]:
            effects = super().handle(event)
            events.extend(e.event for e in effects if isinstance(e, Record) and e.stream != "cluster")
            return effects

    with monkeypatch.context() as patch:
        patch.setattr(world, "Core", Recording)
        if host is not None:
            patch.setattr(world, "PolicyHost", lambda policy, recorded: host(policy, events))
        return simulate(workload, policy, **terms), events


@pytest.fixture(scope="session")
def node_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the JavaScript example with its packages installed."""
    require_system_package("nodejs", "node")
    npm = require_system_package("npm", "npm")
    folder = tmp_path_factory.mktemp("node") / "node_policy"
    shutil.copytree(NODE, folder, ignore=shutil.ignore_patterns("node_modules"))
    done = subprocess.run(
        [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=2 * HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"npm cannot install the example's packages: {done.stderr.strip()[-500:]}"
    return folder
