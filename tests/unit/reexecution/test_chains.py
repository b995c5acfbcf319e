"""Tests of the chains of recorded training: which runs count, up to which position, from which state and on which inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import CreateJob, ForkJob, RunEndReason, RunMode, StartJob
from hopyard_engine.core.events import SlotGranted, Started
from hopyard_tools.commands.retrain import chosen, gpu_note
from hopyard_tools.reexecution.chains import TrainingChain, chains_of
from hopyard_tools.reexecution.extract import NumberedMessage, Recorded, RecordedRun
from tests.unit.core.rig import Rig, snapshot
from tests.unit.core.test_earlier_results import saved

pytestmark = pytest.mark.quick


def read(rig: Rig) -> Recorded:
    recorded = Recorded()
    for event in rig.journal:
        recorded.take(event)
    return recorded


def outline(chains: list[TrainingChain]) -> list[tuple[str, Any, list[tuple[int, int, int]]]]:
    """Return (job, origin, stretches) of each chain; a stretch is (attempt, start, end)."""
    return [
        (chain.job, chain.origin, [(one.run.attempt, one.run.start, one.end) for one in chain.stretches])
        for chain in chains
    ]


def unit(rig: Rig, name: str, slot: str, partition: str, score: float = 0.5) -> None:
    """Run a job for one position on a partition; the run leaves a snapshot."""
    rig.start(name, slot, until=rig.job(name).position + 1, inputs={slot: partition}, preemptible=False)
    position = rig.run(name).until
    rig.report(position, score, name, at_until=True)
    rig.ended(RunEndReason.UNTIL, position, snapshot(position, f"{name}-{position}"), name)


def test_the_units_of_a_model_in_the_order_in_which_it_visited_them_though_one_was_lost() -> None:
    rig = Rig(capacity=1)
    rig.join("n2")
    rig.create()
    unit(rig, "1", "n1/0", "b")
    rig.start("1", "n2/0", until=2, inputs={"n2/0": "a"})
    rig.report(2, 0.1, at_until=True)
    rig.expire("n2")  # before its snapshot was taken
    unit(rig, "1", "n1/0", "c", score=0.7)
    rig.command(StartJob("1", ("n1/0",), mode=RunMode.EVALUATE, inputs={"n1/0": "e"}, parts=1))
    rig.say(rig.key(), Started(2))
    rig.report(2, 0.9, part="e", examples=5)
    rig.ended(RunEndReason.UNTIL, 2)
    recorded = read(rig)
    (chain,) = chains_of(recorded.runs, 0)
    assert outline([chain]) == [("1", None, [(1, 0, 1), (3, 1, 2)])]
    assert [stretch.run.inputs for stretch in chain.stretches] == [("b",), ("c",)]
    (evaluation,) = chain.evaluations
    assert (evaluation.start, evaluation.inputs, evaluation.parts) == (2, ("e",), 1)
    assert [noted.value for noted in evaluation.reports.values()] == [{"score": 0.9}]
    last = chain.stretches[1].run
    assert {where: noted.value for where, noted in last.reports.items()} == {(2, ""): {"score": 0.7}}
    assert {position: noted.value for position, noted in last.snapshots.items()} == {2: "1-2"}
    assert recorded.runs[1].reports  # the lost run has reports, but does not count


def test_a_run_that_was_lost_counts_up_to_the_snapshot_that_its_job_went_on_from() -> None:
    rig = Rig()
    rig.create()
    rig.start(until=5)
    for position in (1, 2, 3):
        rig.report(position)
        if position < 3:
            rig.taken(position)
    rig.ended(RunEndReason.LOST, 3)
    rig.start(until=5)
    rig.report(3)
    rig.report(4)
    assert outline(chains_of(read(rig).runs, 1)) == [("1", None, [(1, 0, 2), (2, 2, 4)])]


def test_a_fork_goes_on_from_its_parent_which_saves_there() -> None:
    rig = Rig()
    rig.create(0.1)
    rig.start(until=4, snapshot_at=(2,))
    rig.report(1)
    rig.report(2)
    rig.taken(2)
    rig.command(ForkJob("2", "1", 2, {"lr": 0.2}))
    rig.start("2", "n1/1", until=4)
    for name in ("1", "2"):
        for position in (3, 4):
            rig.report(position, name=name)
        rig.ended(RunEndReason.UNTIL, 4, snapshot(4, f"{name}-4"), name)
    chains = chains_of(read(rig).runs, 0)
    assert outline(chains) == [("1", None, [(1, 0, 4)]), ("2", (0, 2), [(1, 2, 4)])]
    assert [chain.stretches[0].saves for chain in chains] == [{2}, set()]
    assert [chain.hyperparameters for chain in chains] == [{"lr": 0.1}, {"lr": 0.2}]


def test_of_jobs_that_were_chosen_come_those_that_they_go_on_from_as_far_as_they_do() -> None:
    rig = Rig()
    rig.create(0.1)
    rig.create(0.3)
    rig.start(until=4, snapshot_at=(2,))
    rig.report(2)
    rig.taken(2)
    rig.report(4, at_until=True)
    rig.ended(RunEndReason.UNTIL, 4, snapshot(4))
    rig.command(StartJob("2", ("n1/0",), from_snapshot=("1", 4), until=6))
    rig.say(rig.key("2"), Started(4))
    rig.report(6, name="2")
    runs = read(rig).runs
    assert outline(chains_of(runs, 0, {"2"})) == [("1", None, [(1, 0, 4)]), ("2", (0, 4), [(1, 4, 6)])]
    assert outline(chains_of(runs, 0, {"1"})) == [("1", None, [(1, 0, 4)])]


def made(
    attempt: int, start: int, reached: int, source: RecordedRun | None = None, *, job: str = "1", **more: Any
) -> RecordedRun:
    """Return a run with a report at each position after `start` up to `reached`."""
    given: Mapping[str, Any] = {"mode": RunMode.TRAIN, "hyperparameters": {"lr": 0.1}, "inputs": ("",), **more}
    run = RecordedRun(attempt, "x", job, attempt, start=start, source=source, **given)
    run.reports.update(
        {(position, ""): NumberedMessage(1, {"score": 0.5}) for position in range(start + 1, reached + 1)}
    )
    return run


def test_what_was_trained_for_nothing_is_trained_again_where_another_job_went_on_from_it() -> None:
    """Check a job that fell back from 8 to 2 after another job had been forked from its state at 6."""
    lost = made(1, 0, 8)
    child = made(1, 6, 9, lost, job="2")
    again = made(2, 2, 9, lost)
    evaluated = made(3, 9, 9, again, mode=RunMode.EVALUATE)
    evaluated.reports[9, "e"] = NumberedMessage(2, {"score": 0.9})
    chains = chains_of([lost, child, again, evaluated], 0)
    assert outline(chains) == [("1", None, [(1, 0, 6)]), ("2", (0, 6), [(1, 6, 9)]), ("1", (0, 2), [(2, 2, 9)])]
    assert [stretch.saves for stretch in chains[0].stretches] == [{2}]
    assert chains[2].evaluations == [evaluated]


def test_runs_that_came_to_nothing_are_left_out() -> None:
    first = made(1, 0, 3)
    vain = made(2, 3, 3, first)
    alone = made(3, 3, 3, first, mode=RunMode.EVALUATE)  # it reported nothing
    last = made(4, 3, 5, first)
    anew = made(1, 0, 0, job="2")
    assert outline(chains_of([first, vain, alone, last, anew], 0)) == [("1", None, [(1, 0, 3), (4, 3, 5)])]


def test_a_job_that_began_anew_counts_from_there() -> None:
    assert outline(chains_of([made(1, 0, 3), made(2, 0, 5)], 0)) == [("1", None, [(2, 0, 5)])]


@pytest.mark.parametrize(("every", "saves"), [(0, {2, 3, 4}), (1, set()), (2, {3, 4})])
def test_a_run_saves_where_it_did_without_being_due(every: int, saves: set[int]) -> None:
    run = made(1, 0, 5)
    run.snapshots.update({position: NumberedMessage(1, "s") for position in (2, 3, 4, 5)})
    (chain,) = chains_of([run], every)
    assert chain.stretches[0].saves == saves


def test_a_run_that_trains_otherwise_from_the_same_snapshot_is_a_chain_of_its_own() -> None:
    first = made(1, 0, 3)
    changed = made(2, 3, 5, first, hyperparameters={"lr": 0.2})
    assert outline(chains_of([first, changed], 0)) == [("1", None, [(1, 0, 3)]), ("1", (0, 3), [(2, 3, 5)])]


def test_a_person_s_job_without_a_run_is_nothing_to_train() -> None:
    rig = Rig()
    rig.command(CreateJob("1", {"lr": 0.1}))
    assert chains_of(read(rig).runs, 0) == []


def test_a_job_that_goes_on_from_an_earlier_experiment_is_not_trained_again_and_others_are() -> None:
    rig = saved()
    rig.start("1", "n1/0", from_snapshot=("old/2", 3))
    rig.report(6, 0.7, "1", at_until=True)
    rig.ended(RunEndReason.UNTIL, 6, snapshot(6, "six"), "1")
    rig.start("2", "n1/0", until=6)
    rig.report(6, 0.8, "2", at_until=True)
    rig.ended(RunEndReason.UNTIL, 6, snapshot(6, "other"), "2")
    recorded = read(rig)
    with pytest.raises(InvalidInput, match="job 1 continues from the training of an earlier experiment"):
        chosen("x", recorded, (), 0)
    (alone,) = chosen("x", recorded, ["2"], 0)
    assert alone.job == "2"


@pytest.mark.parametrize("gpus", [(), (0,)])
def test_what_was_trained_on_slots_with_gpus_is_said(gpus: tuple[int, ...]) -> None:
    rig = Rig(capacity=1)
    rig.create()
    unit(rig, "1", "n1/0", "a")
    recorded = Recorded()
    for event in rig.journal:
        recorded.take(replace(event, gpus=gpus) if isinstance(event, SlotGranted) else event)
    (run,) = recorded.runs
    assert run.on_gpus is bool(gpus)
    note = gpu_note(chains_of(recorded.runs, 0))
    assert ("1 job trained on slots with GPUs and is trained again on CPUs" in note) is bool(gpus)
