"""Tests of the policy that repeats recorded training, in virtual time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hopyard.policy import JobState, RunMode
from hopyard.policy.testing import Delays, TrainingFailed, VirtualCluster, VirtualStep
from hopyard.policy.testing.world import VirtualJob, VirtualRun, steady
from hopyard.policy.vocabulary import Command, CreateJob, ForkJob, Hyperparameters, StartJob
from hopyard_tools.reexecution.recorded_policy import RecordedPolicy

pytestmark = pytest.mark.quick

LATE = {"lr": 0.3}


def chain(stretches: list[list[Any]], evaluations: list[list[Any]] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "hyperparameters": {"lr": 0.1},
        "origin": None,
        "stretches": stretches,
        "evaluations": evaluations or [],
        **more,
    }


PLAN = [
    # stretch: order, start, end, saves, inputs; evaluation: order, position, parts, inputs
    chain([[1, 0, 2, [1], ["a"]], [4, 2, 3, [], ["b"]]], [[3, 2, 2, ["e"]], [7, 3, 0, [""]]]),
    chain([[2, 0, 1, [], ["b"]], [5, 1, 3, [], ["a"]]], hyperparameters={"lr": 0.2}),
    chain([[6, 1, 4, [], ["c"]]], hyperparameters=LATE, origin=[0, 1]),
    chain([[8, 3, 4, [], ["c", "d"]]], origin=[1, 3]),
    chain([], [[9, 4, 0, ["f"]]], origin=[3, 4]),
]


class Forgetful(VirtualCluster):
    """A virtual cluster whose programs save no state."""

    def _save(self, job: VirtualJob, run: VirtualRun) -> None:
        pass


def cluster(
    folder: Path, chains: list[dict[str, Any]] = PLAN, kind: type[VirtualCluster] = VirtualCluster, **terms: Any
) -> VirtualCluster:
    plan = folder / "plan.json"
    plan.write_text(json.dumps(chains))
    given: dict[str, Any] = {"slots": 3, "jobs": len(chains), "max_position": 5, "keep_latest": 1, "watch": True}
    return kind(RecordedPolicy(str(plan)), **{**given, **terms})


def done(made: VirtualCluster) -> list[tuple[int, str, int, tuple[str, ...]]]:
    """Return what was started, in order: chain, mode, `until`, inputs."""
    found = []
    for entry in made.history:
        for command in entry.commands:
            if isinstance(command, StartJob):
                number = round(-(made.jobs[command.job].priority or 0.0))
                inputs = tuple(command.inputs.get(slot, "") for slot in command.slots)
                found.append((number, command.mode.value, command.until or 0, inputs))
    return found


WANTED = [
    (0, "TRAIN", 2, ("a",)),
    (0, "TRAIN", 3, ("b",)),
    (0, "EVALUATE", 0, ("e",)),
    (0, "EVALUATE", 0, ("",)),
    (1, "TRAIN", 1, ("b",)),
    (1, "TRAIN", 3, ("a",)),
    (2, "TRAIN", 4, ("c",)),
    (3, "TRAIN", 4, ("c", "d")),
    (4, "EVALUATE", 0, ("f",)),
]


@pytest.mark.parametrize("slots", [2, 3, 5])
def test_each_stretch_and_each_evaluation_is_made_once_whatever_room_there_is(tmp_path: Path, slots: int) -> None:
    made = cluster(tmp_path, slots=slots)
    made.run()
    assert sorted(done(made)) == sorted(WANTED)
    assert made.over == "everything was trained again that can be"
    by_chain = {round(-(job.priority or 0.0)): job for job in made.jobs.values()}
    assert [by_chain[number].fork_position for number in range(5)] == [0, 0, 1, 3, 4]
    assert by_chain[2].parent == by_chain[0].id
    assert (by_chain[1].hyperparameters, by_chain[2].hyperparameters) == ({"lr": 0.2}, LATE)


def test_an_evaluation_comes_before_the_training_that_goes_on_from_there(tmp_path: Path) -> None:
    made = cluster(tmp_path)
    made.run()
    own = [(mode, until) for number, mode, until, _ in done(made) if number == 0]
    assert own == [("TRAIN", 2), ("EVALUATE", 0), ("TRAIN", 3), ("EVALUATE", 0)]


def test_a_loss_costs_what_was_not_saved(tmp_path: Path) -> None:
    made = cluster(tmp_path, delays=Delays(save=0.1), max_losses=10)
    for moment in (0.5, 2.5, 4.2):
        for job in ("1", "2", "3"):
            made.at(moment, lambda job=job: made.lose_run(job))
    made.run()
    assert set(done(made)) == set(WANTED)
    for number, end in ((0, 3), (1, 3), (2, 4), (3, 4)):
        found = next(job for job in made.jobs.values() if round(-(job.priority or 0.0)) == number)
        assert found.high_water == end
    assert sum(run.mode is RunMode.EVALUATE for run in _starts(made)) >= 3


def test_what_was_trained_to_its_end_is_over_though_nothing_is_left_of_it(tmp_path: Path) -> None:
    made = cluster(tmp_path, [chain([[1, 0, 3, [], [""]]]), chain([[2, 0, 1, [], [""]]])], kind=Forgetful)
    made.run(until=100.0)
    assert [(number, until) for number, _, until, _ in done(made)] == [(0, 3), (1, 1)]
    assert made.over


def test_a_job_that_was_refused_is_made_another_time(tmp_path: Path) -> None:
    refused: list[Command] = []

    def once(command: Command) -> str:
        if isinstance(command, CreateJob | ForkJob) and len(refused) < 3:
            refused.append(command)
            return "not now"
        return ""

    made = cluster(tmp_path, refuse=once)
    made.run()
    assert len(refused) == 3
    assert sorted(done(made)) == sorted(WANTED)


def test_it_ends_where_what_is_left_can_never_be_trained(tmp_path: Path) -> None:
    """Check that the failure of the first chain ends the chains that start from it, and not the others."""

    def fails(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
        if hyperparameters["lr"] == 0.1 and position == 1:
            raise TrainingFailed("no such luck")
        return steady(hyperparameters, position)

    made = cluster(tmp_path, curve=fails)
    made.run(until=100.0)
    assert made.over == "everything was trained again that can be"
    assert {number for number, *_ in done(made)} == {0, 1, 3, 4}
    assert made.jobs["1"].state is JobState.FAILED


def _starts(made: VirtualCluster) -> list[StartJob]:
    return [command for entry in made.history for command in entry.commands if isinstance(command, StartJob)]
