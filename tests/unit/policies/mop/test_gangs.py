"""Tests of `mop` with fewer configurations than slots: which jobs train on gangs, when and on which slots."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard.policy import Data, JobState, RunEndReason, RunMode
from hopyard.policy.testing import Delays, TrainingFailed, VirtualCluster, VirtualStep, difference, replay
from hopyard_policies.mop import MopPolicy
from hopyard_policies.mop.gangs import Need, Visit, visits
from tests.unit.policies.mop.rig import check_epochs, placed, ring, trained
from tests.unit.policies.mop.test_policy import made, starts

pytestmark = pytest.mark.quick


def seconds(value: float) -> Any:
    return lambda job, position: VirtualStep({"accuracy": position / 100}, value, examples=50)


def together(data: Data, policy: MopPolicy | None = None, **terms: Any) -> VirtualCluster:
    return made(data, policy, **{"gathers": True, "curve": seconds(1.0), **terms})


def sizes(cluster: VirtualCluster) -> list[tuple[str, int]]:
    """Return the job and the number of slots of each start."""
    return [(command.job, len(command.slots)) for command in starts(cluster)]


def test_one_of_four_trains_each_epoch_on_all_slots_at_once_after_its_program_was_tried() -> None:
    data = ring(4)
    cluster = together(data, slots=4, jobs=1)
    cluster.run()
    (trial,) = starts(cluster, RunMode.PROFILE)
    assert (trial.slots, trial.inputs["m03"]) == (("m01", "m02", "m03", "m04"), "train/2")
    for number, command in enumerate(starts(cluster), 1):
        assert command.until == 4 * number
        assert command.inputs == {f"m{rank + 1:02}": f"train/{rank}" for rank in range(4)}
        assert not command.preemptible
    assert sizes(cluster) == [("1", 4)] * 2
    assert cluster.now == pytest.approx(2.0)  # With single-slot hops it would take 8 s.
    check_epochs(cluster, data)


@pytest.mark.parametrize(
    ("jobs", "gang_below", "gangs"),
    [
        (1, 0.5, True),
        (2, 0.5, False),  # As many configurations as half of the slots are not fewer.
        (3, 0.5, False),
        (2, 0.75, True),
        (3, 0.75, False),
        (3, 1, True),
        (4, 1, False),
        (1, 0, False),
        (1, 0.25, False),
    ],
)
def test_fewer_configurations_than_the_part_of_the_slots_train_on_gangs(
    jobs: int, gang_below: float, gangs: bool
) -> None:
    cluster = together(ring(4), MopPolicy(gang_below=gang_below), slots=4, jobs=jobs)
    cluster.run(until=0.5)  # No run has ended yet.
    tried = starts(cluster, RunMode.PROFILE)
    assert {len(command.slots) for command in (*starts(cluster), *tried)} == ({4} if gangs else {1})


def test_several_take_turns_epoch_by_epoch() -> None:
    data = ring(5)
    cluster = together(data, slots=5, jobs=2)
    cluster.run()
    assert sizes(cluster) == [("1", 5), ("2", 5)] * 2
    assert cluster.now == pytest.approx(4.0)


def test_when_others_have_ended_the_last_one_trains_the_rest_on_a_gang_and_hops_when_there_are_more() -> None:
    """Check with job 1, whose units take 4 s, and other jobs, whose units take 1 s.

    The others are complete after 7 s; at 8 s job 1 has two of its four units left.
    """
    data = ring(4)
    cluster = together(
        data,
        slots=4,
        jobs=4,
        max_position=4,
        curve=lambda job, position: VirtualStep({"accuracy": 0.5}, 4.0 if job["x"] == 1 else 1.0),
    )
    cluster.at(9.0, cluster.extend, 4, 8)
    cluster.run()
    assert all(job.state is JobState.COMPLETED for job in cluster.jobs.values())
    check_epochs(cluster, data)
    of_first = [(len(command.slots), command.until) for command in starts(cluster) if command.job == "1"]
    assert of_first == [(1, 1), (1, 2), (2, 4), (1, 5), (1, 6), (1, 7), (1, 8)]


def test_slots_that_are_still_used_are_waited_for() -> None:
    """Check that job 2 waits for the evaluation of job 1, which uses one of the slots that job 2 needs."""
    cluster = together(ring(5, parts=1), slots=5, jobs=2, max_position=5)
    cluster.run()
    began = [(run.job, len(run.slots), run.began) for run in cluster.runs if run.ended > run.began]
    assert began == [("1", 5, 0.0), ("1", 1, 1.0), ("2", 5, 2.0), ("2", 1, 3.0)]


def test_a_program_that_trains_on_no_gang_hops_and_is_tried_once() -> None:
    cluster = together(ring(4), slots=4, jobs=1, gathers=False)
    cluster.run()
    assert len(starts(cluster, RunMode.PROFILE)) == 1
    assert {size for _, size in sizes(cluster)} == {1}
    assert cluster.jobs["1"].state is JobState.COMPLETED
    check_epochs(cluster, ring(4))


def test_a_model_whose_code_fails_on_a_gang_goes_on_by_hops() -> None:
    """Check that a job whose gang run fails trains on single slots, although the program was profiled on a gang.

    An example of such a failure is a batch size that leaves too few examples for each rank.
    """
    seen: set[int] = set()

    def alone(given: object, position: int) -> VirtualStep:
        if position == 4 and 3 not in seen:
            raise TrainingFailed("ValueError: Expected more than 1 value per channel when training")
        seen.add(position)
        return VirtualStep({"accuracy": position / 100}, 1.0, examples=50)

    data = ring(4)
    cluster = together(data, slots=4, jobs=1, curve=alone, max_failures=1)
    cluster.run()
    assert sizes(cluster) == [("1", 4)] + [("1", 1)] * 8
    assert (cluster.jobs["1"].state, cluster.virtual_jobs["1"].failures) == (JobState.COMPLETED, 1)
    check_epochs(cluster, data)


def test_a_trial_that_is_lost_is_made_again_three_times_at_most() -> None:
    cluster = together(ring(4), slots=4, jobs=1, delays=Delays(start=1.0), max_position=4)
    for moment in (0.5, 1.0, 1.5):
        cluster.at(moment, cluster.lose_run, "1")
    cluster.run()
    assert len(starts(cluster, RunMode.PROFILE)) == 3
    assert {size for _, size in sizes(cluster)} == {1}


def test_a_lost_rank_loses_the_epoch_and_the_job_goes_on_from_its_snapshot() -> None:
    data = ring(4)
    cluster = together(data, slots=4, jobs=1)
    cluster.at(1.5, cluster.lose_run, "1")
    cluster.run()
    ends = [(run.start, run.position, run.reason) for run in cluster.runs if run.ended > run.began]
    assert ends == [(0, 4, RunEndReason.UNTIL), (4, 4, RunEndReason.LOST), (4, 8, RunEndReason.UNTIL)]
    check_epochs(cluster, data)


def test_without_a_node_what_the_others_hold_is_trained_first() -> None:
    data = ring(4)
    cluster = together(data, slots=4, jobs=1, max_position=4)
    cluster.at(0.5, cluster.lose_slot, "m03")
    cluster.at(50.0, cluster.join_slot, "m03")
    cluster.run()
    assert [size for _, size in sizes(cluster)] == [4, 3, 1]
    check_epochs(cluster, data)


def test_slots_with_several_partitions_train_them_one_after_the_other() -> None:
    data = placed([[1], [2], [3], [1], [2], [3], [1]])
    cluster = together(data, slots=3, jobs=1, max_position=7)
    cluster.run()
    assert [size for _, size in sizes(cluster)] == [3, 3, 1]
    check_epochs(cluster, data)


def test_a_last_epoch_that_is_short_visits_as_many_as_it_has_units() -> None:
    cluster = together(ring(4), slots=4, jobs=1, max_position=6)
    cluster.run()
    assert [size for _, size in sizes(cluster)] == [4, 2]


def test_gangs_on_replicas_begin_beside_each_other_on_other_slots() -> None:
    holders = {"train/0": ["a", "b"], "train/1": ["a", "c"], "train/2": ["b", "d"]}
    first, second = Need("1", ["train/0", "train/1"], 9), Need("2", ["train/0", "train/2"], 9)
    found = list(visits([first, second], holders, "abcd", 4))
    assert found == [Visit("1", ("train/0", "train/1"), ("b", "c")), Visit("2", ("train/0", "train/2"), ("a", "d"))]
    # If both gangs do not fit at once, the second waits, even if it could start with fewer slots.
    assert list(visits([first, second], holders, "abc", 4)) == [Visit("1", ("train/0", "train/1"), ("b", "a"))]
    assert list(visits([second, first], holders, "ac", 4)) == []
    assert [len(visit.slots) for visit in visits([first], holders, "abcd", 1)] == [1]


@pytest.mark.merge
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_gang_has_as_many_slots_as_can_be_and_no_two_share_one(data: st.DataObject) -> None:
    slots = "abcdef"[: data.draw(st.integers(1, 6))]
    held = data.draw(st.lists(st.sets(st.sampled_from(slots), max_size=3), min_size=1, max_size=4))
    holders = {f"train/{number}": sorted(each) for number, each in enumerate(held)}
    idle = data.draw(st.sets(st.sampled_from(slots)))
    some = st.sets(st.sampled_from(list(holders)))
    needs = [Need(job, sorted(data.draw(some)), data.draw(st.integers(1, 4))) for job in "123"]
    share = data.draw(st.integers(1, 6))
    found = list(visits(needs, holders, idle, share))
    used = [slot for visit in found for slot in visit.slots]
    assert len(set(used)) == len(used)
    assert idle.issuperset(used)

    def largest(need: Need) -> int:
        """Return the largest possible number of slots, by exhaustive search over all slots."""
        for count in range(min(need.most, share, len(need.partitions)), 0, -1):
            for chosen in combinations(need.partitions, count):
                if _can([holders[name] for name in chosen], frozenset()):
                    return count
        return 0

    for visit in found:
        need = next(need for need in needs if need.job == visit.job)
        assert len(visit.partitions) == largest(need)
        assert set(visit.partitions) <= set(need.partitions)
        assert all(slot in holders[name] for name, slot in zip(visit.partitions, visit.slots, strict=True))
    served = [visit.job for visit in found]
    wanting = [need.job for need in needs if largest(need)]
    assert served == wanting[: len(served)]  # No job starts before one that waits.


def _can(options: list[list[str]], taken: frozenset[str]) -> bool:
    return not options or any(_can(options[1:], taken | {slot}) for slot in options[0] if slot not in taken)


@pytest.mark.merge
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_is_lost_each_epoch_visits_each_partition_once_on_gangs_too(data: st.DataObject) -> None:
    slots = data.draw(st.integers(2, 5))
    number = st.integers(1, slots)
    holders = data.draw(st.lists(st.sets(number, min_size=1, max_size=3), min_size=2, max_size=5))
    parts = data.draw(st.lists(st.sets(number, min_size=1), max_size=1))
    partitioned = placed([sorted(h) for h in holders], [sorted(h) for h in parts])
    policy = MopPolicy(gang_below=data.draw(st.sampled_from([0.5, 0.8, 1])), barrier=data.draw(st.booleans()))
    delays = Delays(store=data.draw(st.sampled_from([0.0, 3.0])), create=data.draw(st.sampled_from([0.0, 1.5])))
    cluster = together(
        partitioned, policy, slots=slots, jobs=data.draw(st.integers(1, 4)), delays=delays, max_losses=100
    )
    for moment in data.draw(st.lists(st.floats(0.0, 20.0), max_size=4)):
        what = data.draw(st.sampled_from(["run", "slot", "pause", "extend"]))
        if what == "run":
            cluster.at(moment, cluster.lose_run, str(data.draw(st.integers(1, 4))))
        elif what == "slot":
            name = f"m{data.draw(number):02}"
            cluster.at(moment, cluster.lose_slot, name)
            cluster.at(moment + data.draw(st.floats(0.1, 20.0)), cluster.join_slot, name)
        elif what == "pause":
            cluster.at(moment, cluster.pause)
            cluster.at(moment + 2.5, cluster.resume)
        else:
            cluster.at(moment, cluster.extend, 2, 0)
    history = cluster.run()
    assert all(job.state is JobState.COMPLETED for job in cluster.jobs.values())
    check_epochs(cluster, partitioned)
    assert set(trained(cluster)) == set(cluster.jobs)
    busy: dict[tuple[str, str], float] = {}
    for run in sorted(cluster.runs, key=lambda run: (run.began, run.ended)):
        for owner in (("job", run.job), *(("slot", slot) for slot in run.slots)):
            assert busy.get(owner, 0.0) <= run.began
            busy[owner] = run.ended
    assert not difference(history, replay(MopPolicy(gang_below=policy._gangs._below, barrier=policy._barrier), history))
