"""Tests of the internal parts of the C++ library: they must behave like their counterparts in the Python library."""

from __future__ import annotations

import json
import math
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hopyard._runtime.runner.control import Action, EndRun, Restate, RunControl, RunPlan, Save, Train, Wait
from hopyard.policy.vocabulary import DecisionKind
from tests.cpp import Programs

pytestmark = pytest.mark.timeout(600)

RUNS = 300
DECISIONS = (DecisionKind.CONTINUE, DecisionKind.SUSPEND, DecisionKind.TERMINATE, DecisionKind.PARK)


def test_its_own_tests_pass(cpp: Programs) -> None:
    done = subprocess.run(
        ["ctest", "--test-dir", cpp.build, "--output-on-failure"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "100% tests passed" in done.stdout


def test_json_is_read_and_written_as_python_does(cpp: Programs) -> None:
    values: list[Any] = [
        {"lr": 0.1, "units": 32, "name": 'a "quoted"\ttext\\ é😀', "deep": [[], {}, [None, True, False]]},
        [1e-320, 1.7976931348623157e308, 5e-324, -0.0, 0.1 + 0.2, 1e22, 123456789012345678],
        [2**63 - 1, -(2**63), math.inf, -math.inf],
        {"": "", "a.b": {"c": 1.0}},
    ]
    lines = [json.dumps(value) for value in values] + [json.dumps(value, ensure_ascii=False) for value in values]
    done = subprocess.run([cpp.probe, "json"], input="\n".join(lines), capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == values + values
    kept = [json.dumps(json.loads(line), sort_keys=True) for line in done.stdout.splitlines()]
    assert kept == [json.dumps(value, sort_keys=True) for value in values + values]  # 1.0 stays different from 1.


class Beside:
    """Runs the run control in Python and in C++ with the same calls, and checks that both return the same answers."""

    def __init__(self, process: subprocess.Popen[str], plan: RunPlan) -> None:
        self._process = process
        self._control = RunControl(plan)
        self.story: list[str] = []
        numbers = [plan.position, plan.until, plan.allowed, plan.snapshot_every, int(plan.completes)]
        self._ask(" ".join(map(str, ["plan", *numbers, *sorted(plan.snapshot_at)])), "ok")

    @property
    def position(self) -> int:
        return self._control.position

    def next(self) -> Action:
        action = self._control.next()
        self._ask("next", _said(action))
        return action

    def started(self, *, finished: bool) -> None:
        self._control.started(finished=finished)
        self._ask(f"started {int(finished)}", "ok")

    def began(self) -> None:
        self._control.began()
        self._ask("began", "ok")

    def reached(self, position: int, *, finished: bool, savable: bool) -> None:
        parked = self._control.reached(position, finished=finished, savable=savable)
        self._ask(f"reached {position} {int(finished)} {int(savable)}", str(int(parked)))

    def saved(self) -> None:
        self._control.saved()
        self._ask("saved", "ok")

    def decide(self, decision: DecisionKind, position: int, allowed: int) -> None:
        self._control.decide(decision, position, allowed)
        self._ask(f"decide {DECISIONS.index(decision)} {position} {allowed}", "ok")

    def amend(self, until: int, points: list[int]) -> None:
        amended = self._control.amend(until, points)
        said = " ".join(map(str, ["amend", until, *points]))
        self._ask(said, f"{int(amended.accepted)} {amended.position}")

    def _ask(self, said: str, expected: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(said + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n")
        self.story.append(f"{said} -> {answer}")
        assert answer == expected, "\n".join(self.story)


def _said(action: Action) -> str:
    match action:
        case Train():
            return "train"
        case Restate():
            return "restate"
        case Save():
            return "save"
        case Wait():
            return "wait"
        case EndRun(reason, snapshot):
            return f"end {reason.value} {int(snapshot)}"


@contextmanager
def controls(probe: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([probe, "control"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(150)


def test_a_run_does_at_every_boundary_what_it_does_in_python(cpp: Programs) -> None:
    seen: set[str] = set()
    with controls(cpp.probe) as process:
        for number in range(RUNS):
            story = one_run(process, random.Random(number))
            seen |= {line.partition(" -> ")[2] for line in story if line.startswith("next")}
    ends = {f"end {reason} {saved}" for reason in ("UNTIL", "SUSPENDED") for saved in (0, 1)} | {"end TERMINATED 0"}
    assert seen == {"train", "restate", "save", "wait"} | ends


def one_run(process: subprocess.Popen[str], rng: random.Random) -> list[str]:
    """Simulate one run with random reports and decisions; return its calls and their answers."""
    begin = rng.choice([0, 0, 3])
    run = Beside(
        process,
        RunPlan(
            position=begin,
            until=rng.choice([0, begin, begin + 2, begin + 6]),
            allowed=rng.choice([0, begin + 1, begin + 4]),
            snapshot_at=frozenset(rng.sample(range(begin + 8), rng.choice([0, 1, 3]))),
            snapshot_every=rng.choice([0, 0, 1, 3]),
            completes=rng.random() < 0.5,
        ),
    )
    savable = rng.random() < 0.8
    run.started(finished=rng.random() < 0.1)
    for _ in range(60):
        match run.next():
            case Train():
                run.began()
                if rng.random() < 0.3:
                    disturb(run, rng)
                run.reached(run.position + rng.choice([1, 1, 2]), finished=rng.random() < 0.05, savable=savable)
            case Restate():
                run.reached(run.position, finished=rng.random() < 0.5, savable=False)
            case Save():
                run.saved()
            case Wait():
                disturb(run, rng)
            case EndRun():
                break
        if rng.random() < 0.2:
            disturb(run, rng)
    return run.story


def disturb(run: Beside, rng: random.Random) -> None:
    """Simulate a random message from the agent: an amendment or a decision."""
    here = run.position
    near = [max(0, here + offset) for offset in (-1, 0, 0, 1, 2, 5)]
    if rng.random() < 0.4:
        run.amend(rng.choice([0, *near]), rng.sample(sorted(set(near)), rng.choice([0, 1, 2])))
    else:
        (decision,) = rng.choices(DECISIONS, weights=(12, 1, 1, 3))
        run.decide(decision, rng.choice(near), rng.choice([0, 0, *near]))
