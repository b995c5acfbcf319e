"""Runs the determinism cases of a conformance suite in fresh processes, and compares the answers of its policy."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

from hopyard.policy.base import Policy
from hopyard.policy.testing.history import HistoryEntry, replay
from hopyard.policy.testing.view import describe
from hopyard.policy.testing.virtual import VirtualCluster
from hopyard.policy.vocabulary import DecisionKind, TerminateJob

Task: TypeAlias = Literal["record", "repeat"]
Answers: TypeAlias = list[tuple[str, str]]
"""For each up-call of a schedule its description and its answer, as texts."""

REBUILDS: Final = (0.5, 2.3, 5.7, 11.1)
"""The times in seconds at which the policy of a schedule is replaced by a rebuilt one."""
_PROGRAM: Final = "import sys; from hopyard.policy.testing.determinism import write; write(*sys.argv[1:])"
_SECONDS: Final = 150.0


class Suite(Protocol):
    """What is used of a conformance suite."""

    def make_policy(self) -> Policy:
        """Return a new policy."""
        ...

    def eventful(self, seed: int) -> VirtualCluster:
        """Create a virtual cluster with a random schedule."""
        ...


@functools.lru_cache(maxsize=16)
def answers(module: str, suite: str, task: Task, hash_seed: str, seeds: tuple[int, ...]) -> Mapping[str, Answers]:
    """Run schedules of a suite in a fresh process, and return the answers of its policy. The result is cached.

    Args:
        module: The name of the suite's module.
        suite: The name of the suite's class.
        task: What the process does. "record": each schedule once, under the names "0", "1", ... "repeat": the same schedules in the
            opposite order, so that others have run before, under "run 0", ...; each is replayed on a second policy ("replay 0", ...)
            and, after all of them, run with policies that are rebuilt at the times `REBUILDS` ("rebuilt 0", ...).
        hash_seed: The value of PYTHONHASHSEED.
        seeds: The seeds of the schedules (`eventful`).

    Raises:
        AssertionError: The suite is not at the top level of its module, or the process failed.
    """
    assert "." not in suite, f"define {suite} at the top of its module"
    with tempfile.TemporaryDirectory(prefix="hopyard-determinism-") as folder:
        file = Path(folder) / "answers.json"
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", _PROGRAM, module, suite, task, json.dumps(seeds), str(file)]
        done = subprocess.run(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
        assert done.returncode == 0, done.stdout
        return {name: [tuple(each) for each in lines] for name, lines in json.loads(file.read_text()).items()}


def write(module: str, suite: str, task: Task, seeds: str, file: str) -> None:
    """Do the task of a process of `answers`, and write the answers to a file.

    Args:
        module: The name of the suite's module.
        suite: The name of the suite's class.
        task: What to do.
        seeds: The seeds of the schedules, as JSON.
        file: The path of the file.
    """
    made: Suite = getattr(importlib.import_module(module), suite)()
    schedules = list(enumerate(json.loads(seeds)))
    found: dict[str, Answers] = {}
    if task == "record":
        for number, seed in schedules:
            found[f"{number}"] = _shown(made.eventful(seed).run())
    else:
        for number, seed in reversed(schedules):
            history = made.eventful(seed).run()
            found[f"run {number}"] = _shown(history)
            found[f"replay {number}"] = _shown(replay(made.make_policy(), history))
        for number, seed in schedules:
            found[f"rebuilt {number}"] = _shown(_rebuilt(made, seed))
    Path(file).write_text(json.dumps(found))


def first_difference(one: Sequence[tuple[str, str]], other: Sequence[tuple[str, str]]) -> str:
    """Return the first up-call with different answers in two runs of a schedule, and both answers; empty if there is none."""
    for (call, answer), (_, again) in zip(one, other, strict=False):
        if answer != again:
            return f"{call}: first {answer}, then {again}"
    return "" if len(one) == len(other) else f"first {len(one)} up-calls, then {len(other)}"


def terminations(history: Iterable[HistoryEntry]) -> int:
    """Return how many decisions and commands of a policy terminate a job."""
    return sum(
        (entry.decision is not None and entry.decision.kind is DecisionKind.TERMINATE)
        + sum(isinstance(command, TerminateJob) for command in entry.commands)
        for entry in history
    )


def may_terminate(policy: type[Policy]) -> bool:
    """Return whether the source of a policy, or of a base class of it, names a decision or command that terminates jobs."""
    classes = [each for each in policy.__mro__ if issubclass(each, Policy) and each is not Policy]
    return any(word in _source(each) for each in classes for word in ("TERMINATE", "terminate_job", "TerminateJob"))


def _source(policy: type[Policy]) -> str:
    try:
        return inspect.getsource(policy)
    except (OSError, TypeError):  # It was defined where no source is kept, such as in a shell.
        return ""


def _rebuilt(suite: Suite, seed: int) -> list[HistoryEntry]:
    cluster = suite.eventful(seed)
    for time in REBUILDS:
        cluster.run(until=time)
        cluster.rebuild(suite.make_policy())
    return cluster.run()


def _shown(history: Iterable[HistoryEntry]) -> Answers:
    return [(f"{describe(entry.moment, entry.call)} {entry.call}", entry.answer) for entry in history]
