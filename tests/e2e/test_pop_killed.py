"""Test of POP while its scheduler is killed: replayed decisions are equal, and no answered question is asked again."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hopyard.client import Client
from hopyard.client.types import Experiment, ExperimentState, JobState
from hopyard.policy.vocabulary import LabelJob, Predict
from hopyard_engine.core import Core
from hopyard_engine.core.effects import AskOutside, WithdrawQuestion
from hopyard_engine.core.events import Answered, PolicyAnswered
from hopyard_tools.commands.journal_source import opened
from tests.e2e import kills
from tests.e2e.harness import softmax_file
from tests.e2e.test_predictions import kill, until
from tests.e2e.up import IS_UP, Up
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.nightly

JOBS, LENGTH, BOUNDARY, KILLS = 8, 12, 2, 3


@dataclass
class Questions:
    """The predictions in a journal.

    Attributes:
        asked: Tickets that the policy requested.
        over: Tickets that were answered or withdrawn.
        answered: By seed of a question, the time of its answer.
        labelled: Jobs that the policy labelled as promising or opportunistic.
    """

    asked: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    answered: dict[int, float] = field(default_factory=dict)
    labelled: set[str] = field(default_factory=set)


async def told(server: str, experiment: Experiment) -> Questions:
    found, core = Questions(), Core()
    seeds: dict[str, int] = {}
    async with opened(server, None, experiment.id, "a test") as source:
        async for _, event in source.read():
            if isinstance(event, PolicyAnswered):
                commands = event.answer.commands
                found.asked += [f"policy/{one.ticket}" for one in commands if isinstance(one, Predict)]
                found.labelled |= {one.job for one in commands if isinstance(one, LabelJob)}
            if isinstance(event, Answered) and event.ticket in seeds:
                found.over.append(event.ticket)
                found.answered[seeds[event.ticket]] = event.at
            for effect in core.restore(event):  # type: ignore[arg-type]
                if isinstance(effect, AskOutside) and effect.kind == "predict":
                    seeds[effect.ticket] = effect.payload["question"]["seed"]
                if isinstance(effect, WithdrawQuestion):
                    found.over.append(effect.ticket)
    return found


def shown(server: str, experiment: Experiment, kind: str) -> dict[str, list[object]]:
    """Return what a plot of this kind shows of the experiment."""
    arguments = ["plot", experiment.id, "--server", server, "--kind", kind, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "hopyard.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, list[object]] = json.loads(done.stdout)["shows"]
    return found


@pytest.mark.timeout(400)
async def test_pop_decides_the_same_when_its_scheduler_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "asked.jsonl"
    log.touch()
    file = softmax_file(
        tmp_path / "e",
        policy={"name": "pop", "evaluation_boundary": BOUNDARY, "least_confidence": 0.0},
        predictor={"name": "tests.e2e.call_record:Recorded", "log": str(log), "seconds": 0.2},
        stop={"jobs": JOBS, "max_iterations": LENGTH},
    )

    def computed() -> list[dict[str, float]]:
        return [json.loads(line) for line in log.read_text().splitlines()]

    enough = tmp_path / "enough"
    paced = {"SOFTMAX_PACE": "0.3", "SOFTMAX_ENOUGH": str(enough), "SOFTMAX_HELD": f"{JOBS}:{LENGTH - 1}"}
    # The policy asks questions until the last kill, however slow this process is.
    paced["SOFTMAX_LATE"] = str(LENGTH // 2)
    up = Up(tmp_path / "data", slots=1, **paced)
    try:
        up.wait_for(IS_UP)
        server = up.server
        with Client(server=server, patience=HANG_SECONDS) as client:
            experiment = client.create(file)
            for _ in range(KILLS):
                before = len(computed())
                until(lambda before=before: len(computed()) >= before + 3, "a predictor at work")  # type: ignore[misc]
                kill(up, "scheduler")
            assert not client.get(experiment.id).state.ended, "it was over before the last kill"
            enough.touch()
            experiment = client.wait(experiment.id, timeout=2 * HANG_SECONDS)
            assert experiment.state is ExperimentState.COMPLETED
            assert {job.state for job in client.jobs(experiment.id)} == {JobState.COMPLETED}
            assert {len(curve) for curve in kills.curves(client, experiment).values()} == {LENGTH}
            found = await told(server, experiment)
            # A boundary that is reached while an answer is awaited leads to no question.
            assert len(found.asked) >= JOBS
            assert len(set(found.asked)) == len(found.asked)
            assert sorted(found.over) == sorted(found.asked)
            known = [one for one in computed() if one["seed"] in found.answered]
            assert len({one["seed"] for one in known}) == len(found.answered)
            assert [one for one in known if one["at"] > found.answered[int(one["seed"])]] == []
            assert found.labelled
            assert kills.replayed(server, experiment)["decisions_equal"] is True
            assert len(shown(server, experiment, "pools")["points"]) > 2
            assert len(shown(server, experiment, "slots")["moments"]) == 2
    finally:
        if up.process.poll() is None:
            up.stop()
