"""A policy, a generator, a solver and a predictor that harm their process. What they take from the computer is bounded.

Each of them writes the memory of its process into the folder `where` before it harms for the first time, and the time when it does.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from hopyard.generator import Generator
from hopyard.policy import (
    CONTINUE,
    PARK,
    AnswerReady,
    Cluster,
    Decision,
    IterationFinish,
    Policy,
    PredictionReady,
    command_buffer,
)
from hopyard.predictor import Prediction, Predictor, Question
from hopyard.solver import Solver
from hopyard.space import Configuration, Space
from hopyard_hpgen.generators.random import RandomGenerator
from hopyard_policies.default import DefaultPolicy

STRUCK: Final = "struck"
"""The file with the time of the first harm, in seconds since the Unix epoch."""

FORKS: Final = 300
"""Number of processes that a plugin forks. It is above the limit, which is 256."""

FLOOD: Final = 100_000
"""Number of commands in one answer of a policy. It is above the limit, which is 10,000, and their size is below that of an answer."""

_BLOCK_BYTES: Final = 32 << 20
_BLOCKS: Final = 80
"""Number of blocks of memory that a plugin takes: 2.5 GiB, above the limit, which is 2 GiB."""

_FOREVER: Final = 600.0


def note_memory(kind: str, where: Path) -> None:
    """Write the resident and the unique memory of this process in KiB into the folder, unless this process has done so before."""
    sizes: dict[str, int] = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        sizes[name] = int(rest.split()[0])
    found = {"resident": sizes["Rss"], "unique": sizes["Private_Clean"] + sizes["Private_Dirty"]}
    with suppress(FileExistsError), (where / f"{kind}-{os.getpid()}.memory").open("x") as file:
        json.dump(found, file)


def harm(how: str, where: Path) -> None:
    """Harm this process: exit, crash, loop, take memory, or fork.

    Args:
        how: The name of the harm.
        where: The folder into which the time of the first harm is written.
    """
    note_harm(where)
    _HARMS[how]()


def note_harm(where: Path) -> None:
    """Write the time into the folder, unless it contains the time of an earlier harm."""
    with suppress(FileExistsError), (where / STRUCK).open("x") as file:
        file.write(repr(time.time()))


def _exit() -> None:
    os._exit(0)


def _crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _loop() -> None:
    while True:
        pass


def _memory() -> None:
    held = [b"x" * _BLOCK_BYTES for _ in range(_BLOCKS)]
    time.sleep(_FOREVER + len(held))


def _forks() -> None:
    for _ in range(FORKS):
        if os.fork() == 0:
            os.setsid()
            time.sleep(_FOREVER)
            os._exit(0)
    time.sleep(_FOREVER)


_HARMS: Final[dict[str, Callable[[], None]]] = {
    "exit": _exit,
    "crash": _crash,
    "loop": _loop,
    "memory": _memory,
    "forks": _forks,
}


class HostilePolicy(DefaultPolicy):
    """A policy that harms at its first report.

    Args:
        how: What it does: a name that `harm` knows, "flood" or "garbage".
        where: The folder for its notes.
    """

    def __init__(self, how: str, where: str) -> None:
        super().__init__()
        self._how, self._where = how, Path(where)
        note_memory("policy", self._where)

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """Harm the process."""
        if self._how == "flood":
            note_harm(self._where)
            _flood(cluster)
        elif self._how == "garbage":
            note_harm(self._where)
            _send_garbage()
        else:
            harm(self._how, self._where)
        return super().on_iteration_finish(cluster, event)


def _flood(cluster: Cluster) -> None:
    """Give far more commands than an answer may have, after the removal of the limit in this process, so that they are sent."""
    command_buffer.most_commands = lambda jobs: sys.maxsize
    for _ in range(FLOOD):
        cluster.create_job()


def _send_garbage() -> None:
    """Write to every socket of this process what is no message, then wait."""
    for handle in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(handle).st_mode):
                os.write(handle, b"\xff" * 1000)
    time.sleep(_FOREVER)


class HostileGenerator(Generator):
    """A generator that harms at the second proposal; the others are random.

    Args:
        space: The search space.
        seed: The seed.
        how: What it does: a name that `harm` knows, "raise" or "huge".
        where: The folder for its notes.
        **parameters: Any further parameter is an error.
    """

    def __init__(self, space: Space, seed: int, *, how: str, where: str, **parameters: Any) -> None:
        super().__init__(space, seed, **parameters)
        self._how, self._where = how, Path(where)
        self._random = RandomGenerator(space, seed)
        note_memory("generator", self._where)

    def create(self, job: str, ordinal: int) -> Configuration | None:
        """Return a random configuration, and harm the process at the second call."""
        if ordinal == 1:
            if self._how in _HARMS:
                harm(self._how, self._where)
            note_harm(self._where)
            if self._how == "raise":
                raise RuntimeError("out of ideas")
            return {"x": "x" * 2_000_000}
        return self._random.create(job, ordinal)


class HostileSolver(Solver):
    """A solver that harms as its payload `how` says, with its notes in the folder `where`."""

    def solve(self, payload: Any, seconds: float) -> Any:
        """Harm the process."""
        where = Path(payload["where"])
        note_memory("solver", where)
        harm(payload["how"], where)


class HostilePredictor(Predictor):
    """A predictor that harms at the first question.

    Args:
        how: What it does: a name that `harm` knows.
        where: The folder for its notes.
        **parameters: Any further parameter is an error.
    """

    def __init__(self, how: str, where: str, **parameters: Any) -> None:
        super().__init__(**parameters)
        self._how, self._where = how, Path(where)

    def predict(self, question: Question) -> Prediction:
        """Harm the process."""
        note_memory("predictor", self._where)
        harm(self._how, self._where)
        raise AssertionError(f"{self._how} has not ended this process")


class Asks(Policy):
    """Trains each job for one iteration, asks a solver or the predictor, and trains the job to its end after the answer.

    Args:
        solver: Name of the solver; empty: it asks for a prediction.
        payload: The question to the solver.
        seconds: The time limit of the solver in seconds.
    """

    def __init__(self, solver: str = "", payload: Any = None, seconds: float = 1.0) -> None:
        self._solver, self._payload, self._seconds = solver, payload, seconds
        self._asked: dict[str, str] = {}

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Create all jobs, and start idle ones."""
        for _ in range(cluster.experiment.jobs_left):
            cluster.create_job()
        for slot, job in zip(cluster.idle_slots(), cluster.idle_jobs(), strict=False):
            cluster.start_job(job.id, slot.id, until=max(1, job.position))

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """Ask once for each job, and park it."""
        if not event.at_until or event.position == cluster.jobs[event.job].max_position:
            return CONTINUE
        if self._solver:
            ticket = cluster.ask(self._solver, self._payload, seconds=self._seconds)
        else:
            ticket = cluster.predict(event.job)
        self._asked[ticket] = event.job
        return PARK

    def on_answer(self, cluster: Cluster, answer: AnswerReady) -> None:
        """Continue the job."""
        self._continue(cluster, answer.ticket)

    def on_prediction(self, cluster: Cluster, prediction: PredictionReady) -> None:
        """Continue the job."""
        self._continue(cluster, prediction.ticket)

    def _continue(self, cluster: Cluster, ticket: str) -> None:
        if ticket in self._asked:  # Else it is the answer to `amend_run`.
            job = cluster.jobs[self._asked.pop(ticket)]
            cluster.amend_run(job.id, until=job.max_position)
