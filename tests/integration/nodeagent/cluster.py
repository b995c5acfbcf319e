"""Helpers for tests of the node agent: a cluster with a fake scheduler and a fake store, and its trainer."""

from __future__ import annotations

import asyncio
import textwrap
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hopyard._net.rpc import Backoff
from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard._runtime import bundle
from hopyard.policy.vocabulary import RunKey
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.settings import AgentSettings, SlotSettings
from tests.integration.nodeagent.fakes import FakeScheduler, FakeStore
from tests.plugins.processes import is_running
from tests.timing import HANG_SECONDS

TRAINER = textwrap.dedent(
    '''
    """A trainer whose metrics depend on everything that a snapshot must hold."""

    import json
    import os
    import random
    import re
    import signal
    import sys
    import time

    from hopyard import Trainer


    leaked = []


    class Walk(Trainer):
        def build(self, hyperparameters):
            self.rng = random.Random(self.context.seed)
            self.x = 0.0
            print(f"job {self.context.job} begins")

        def setup(self, hyperparameters, changed):
            if hyperparameters.get("fail") == "setup":
                raise ValueError("a bad setup")
            self.step = hyperparameters["step"]

        def train(self):
            behaviour = self.hyperparameters.get("fail")
            if behaviour and self.position + 1 == self.hyperparameters.get("at", 3):
                if behaviour == "train":
                    raise ValueError("a bad iteration")
                if behaviour == "exit":
                    sys.exit(3)
                if behaviour == "kill":
                    print("about to die", flush=True)
                    os.kill(os.getpid(), signal.SIGKILL)
                if behaviour == "exit now":
                    print("last words", flush=True)
                    os._exit(3)
                if behaviour == "crash":
                    print("last words", flush=True)
                    os.kill(os.getpid(), signal.SIGSEGV)
                if behaviour == "grow":
                    grown = os.fork()  # its children count as well
                    if not grown:
                        while not os.path.exists(self.hyperparameters["gate"]):
                            time.sleep(0.01)
                        memory = b"x" * (1 << 30)
                        while not os.path.exists(self.hyperparameters["holds"]):
                            time.sleep(0.01)
                        os._exit(len(memory) >> 31)
                    os.waitpid(grown, 0)
                if behaviour == "leak":
                    leaked.append(b"x" * (640 << 20))
                if behaviour == "hang alone":
                    re.match(r"(a|a)+$", "a" * 64 + "b")  # in one call of C code, until the end of days
                if behaviour == "hang":
                    time.sleep(600)
            if self.hyperparameters.get("finish") == self.position + 1:
                self.finish()
            time.sleep(self.hyperparameters.get("seconds", 0.0))
            self.x += self.step * self.rng.gauss(0.0, 1.0)
            return {"x": self.x, "pid": float(os.getpid()), "threads": float(os.environ["OMP_NUM_THREADS"])}

        def evaluate(self):
            self.examples = 17
            return {"square": self.x**2}

        def save(self, directory):
            if self.hyperparameters.get("fail") == "save":
                raise ValueError("a bad save")
            (directory / "walk.json").write_text(json.dumps([self.x, self.rng.getstate()]))

        def load(self, directory):
            self.x, (version, internal, gauss) = json.loads((directory / "walk.json").read_text())
            self.rng.setstate((version, tuple(internal), gauss))


    class Other(Walk):
        pass


    class Heavy(Walk):
        def __del__(self):
            while not os.path.exists(self.hyperparameters["gate"]):
                time.sleep(0.01)
            open(self.hyperparameters["gone"], "w").close()


    class Marked(Walk):
        def build(self, hyperparameters):
            super().build(hyperparameters)
            partial = hyperparameters["mark"] + ".partial"
            with open(partial, "w") as file:
                file.write(f"{os.getpid()} {time.time_ns()}")
            os.rename(partial, hyperparameters["mark"])
            while hyperparameters.get("gate") and not os.path.exists(hyperparameters["gate"]):
                time.sleep(0.01)
            if hyperparameters.get("fail") == "build":
                raise ValueError("a bad model")
            if hyperparameters.get("fail") == "exit in build":
                os._exit(3)
    '''
)


async def gone(pid: int) -> None:
    """Wait until a process has ended."""
    async with asyncio.timeout(HANG_SECONDS):
        while is_running(pid):  # noqa: ASYNC110 (no event: it is no child of this process)
            await asyncio.sleep(0.02)


class Cluster:
    """A fake scheduler, a fake store, and the agents that a test starts."""

    def __init__(
        self, scheduler: FakeScheduler, store: FakeStore, scheduler_address: str, store_address: str, folder: Path
    ) -> None:
        self.scheduler = scheduler
        self.store = store
        self.scheduler_address = scheduler_address
        self.store_address = store_address
        self.folder = folder
        self.agents: dict[str, NodeAgent] = {}
        self.processes: list[Process] = []
        """Agents that run as processes."""
        code = folder / "code"
        code.mkdir()
        (code / "train.py").write_text(TRAINER)
        (code / "broken.py").write_text("import no_such_module\n")
        self.bundle = store.add(bundle.pack(code).data)

    def settings(self, node: str, *, slots: int = 1, **changes: Any) -> AgentSettings:
        """Return the settings of an agent of this cluster; `changes` replaces single fields."""
        layout = tuple(SlotSettings(id=f"{node}/{slot}", cpus=1) for slot in range(slots))
        values: dict[str, Any] = {
            "node": node,
            "scheduler": self.scheduler_address,
            "appstat": self.store_address,
            "data": self.folder / node,
            "slots": layout,
            "backoff": Backoff(first=0.02, most=0.1),
            "flush_seconds": HANG_SECONDS,
            "transfer_idle_seconds": HANG_SECONDS,
        }
        return AgentSettings(**(values | changes))

    async def agent(self, node: str = "a", **changes: Any) -> NodeAgent:
        """Start an agent in this process and wait for its session."""
        agent = self.agents[node] = NodeAgent(self.settings(node, **changes))
        await agent.start()
        await self.scheduler.connected(node)
        return agent

    def log(self, node: str, key: RunKey) -> str:
        """Return the log of a job's runs on a node."""
        return (self.folder / node / "logs" / "jobs" / key.stream / f"{key.job}.log").read_text()

    def start(
        self,
        key: RunKey,
        *,
        node: str = "a",
        slot: int = 0,
        hyperparameters: Mapping[str, Any] | None = None,
        trainer: str = "train.py:Walk",
        environment: Mapping[str, str] | None = None,
        memory_bytes: int = 0,
        **fields: Any,
    ) -> None:
        """Send the command to start a run of the test trainer; `fields` are further fields of `StartRun`."""
        program = wire.RunProgram(
            bundle=self.bundle,
            trainer=trainer,
            snapshot_provider="framework",
            environment=environment,
            memory_bytes=memory_bytes,
        )
        start = wire.StartRun(
            slot=f"{node}/{slot}",
            hyperparameters=hyperparameters_to_proto({"step": 0.5} | dict(hyperparameters or {})),
            seed=7,
            program=program,
            **{"world": 1, **fields},
        )
        self.scheduler.send(node, key, start=start)

    async def stop(self) -> None:
        """Stop all agents, and kill the agent processes that still run."""
        for process in self.processes:
            if process.returncode is None:
                process.kill()
            await process.wait()
        for agent in self.agents.values():
            await agent.stop()
