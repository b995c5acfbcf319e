"""Tests of the schedules of disturbances, of the chain that is trained meanwhile, and of the checks of what was recorded."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import chaos
import pytest
from disturbance import program
from disturbance.proxy import Direction
from disturbance.schedule import LONGEST, SHORTEST, Disturbance, schedule
from disturbance.searches import SEARCHES, Search
from disturbance.services import EFFECT_SECONDS, Counts
from disturbance.units import Unit, wrong_hops
from disturbance.verdict import Reports, Verdict, best, difference, table

from hopyard.client.types import Job, JobState, Report, Statistic

pytestmark = pytest.mark.quick

PROCESSES, LINKS = ("scheduler", "appstat"), ("agent-scheduler",)
PAIRS = len(PROCESSES) * 2 + len(LINKS) * 4
PLAIN = Search(policy={"name": "default"}, jobs=2, length=4)
GIVEN = {"x": 0.5}


# --- figures


def test_rounds_are_summed_by_search() -> None:
    counts = Counter({"kill scheduler": 2, "kill runner": 1, "drop node1-appstat": 1})
    rows = [
        chaos.Round(
            "asha", 1, "unix", "repeat it", disturbed=60.0, counts=counts, positions=5, lost=1, restarts={"appstat": 2}
        ),
        chaos.Round("asha", 2, "tcp", "repeat it", counts=counts, positions=6, wrong=1, findings=["1 wrong"]),
        chaos.Round("mop", 3, "tcp", "repeat it"),
    ]
    asha, mop, everything = chaos.summary(rows)
    assert asha["disturbances"] == {"kill": 6, "drop": 2}
    assert (asha["rounds"], asha["positions"], asha["wrong"], asha["findings"], asha["restarts"]) == (2, 11, 1, 1, 2)
    assert (mop["rounds"], everything["rounds"], everything["lost_leases"]) == (1, 3, 1)
    assert "order in which results arrive" in chaos.show([asha, mop, everything])
    given = Namespace(seed=1, length=60.0, gap=2.0)
    written = json.loads(json.dumps(chaos.document(given, rows)))
    assert written["disturbances"] == {"drop node1-appstat": 2, "kill runner": 2, "kill scheduler": 4}
    assert written["rounds"][1]["findings"] == ["1 wrong"]


def test_a_lost_lease_is_explained_by_a_disturbance_of_its_node_only() -> None:
    counts = Counts(
        spans=[(100.0, 112.0, "agent-node1"), (100.0, 190.0, "scheduler"), (150.0, 160.0, "node2-scheduler")]
    )
    assert counts.explains("node1", 110.5)
    assert counts.explains("node1", 112.0 + EFFECT_SECONDS)
    assert not counts.explains("node1", 113.0 + EFFECT_SECONDS)
    assert not counts.explains("node1", 99.0)
    assert not counts.explains("node2", 120.0)
    assert counts.explains("node2", 161.0)


# --- schedules


def test_equal_seeds_give_equal_schedules() -> None:
    first = schedule(3, 100.0, PROCESSES, LINKS)
    assert first == schedule(3, 100.0, PROCESSES, LINKS)
    assert first != schedule(4, 100.0, PROCESSES, LINKS)


def test_a_schedule_is_ordered_bounded_and_has_each_pair_before_it_repeats_one() -> None:
    plan = schedule(1, 500.0, PROCESSES, LINKS, gap=2.0)
    times = [one.at for one in plan]
    assert times == sorted(times)
    assert 0 < times[0] <= times[-1] < 500
    assert 150 < len(plan) < 350
    for begin in range(0, len(plan) - PAIRS, PAIRS):
        assert len({(one.kind, one.target) for one in plan[begin : begin + PAIRS]}) == PAIRS
    for one in plan:
        lasts = one.kind not in ("kill", "cut") or one.seconds > 0
        assert (SHORTEST <= one.seconds <= LONGEST) if lasts else one.seconds == 0
        assert (one.latency > 0) is (one.kind == "delay")
    assert any(one.seconds > 10 for one in plan if one.kind == "stop"), "longer than the lease of a node"
    assert {one.direction for one in plan if one.kind == "drop"} == set(Direction)


def test_a_slow_machine_gets_the_same_disturbances_but_longer_ones() -> None:
    plain, stretched = schedule(1, 100.0, PROCESSES, LINKS), schedule(1, 100.0, PROCESSES, LINKS, stretch=3.0)
    assert [replace(one, seconds=0.0) for one in stretched] == [replace(one, seconds=0.0) for one in plain]
    assert [one.seconds for one in stretched] == pytest.approx([3.0 * one.seconds for one in plain])
    assert Counts(effect=3 * EFFECT_SECONDS, spans=[(0.0, 1.0, "agent-n")]).explains("n", 1.0 + 3 * EFFECT_SECONDS)


def test_a_schedule_without_targets_is_refused() -> None:
    with pytest.raises(ValueError, match="a schedule needs a process or a link to disturb"):
        schedule(1, 10.0, (), ())


def test_a_disturbance_says_what_is_done() -> None:
    said = str(Disturbance(3.25, "drop", "client-scheduler", 2.0, Direction.FORWARD, breaks=True))
    assert said == "   3.2 s: drop client-scheduler forward for 2.0 s, then cut"


# --- the program


def test_the_chain_does_not_depend_on_the_number_of_ranks() -> None:
    alone = program.advance(b"before", 7, GIVEN)
    for size in (2, 4):
        parts = {n: program.shard(b"before", 7, GIVEN, -1, n) for rank in range(size) for n in range(rank, 4, size)}
        assert program.joined([parts[number] for number in range(program.SHARDS)]) == alone


@pytest.mark.parametrize(("position", "waits"), [(2, False), (3, True), (4, True)])
def test_a_job_is_held_before_its_end_until_there_were_enough_disturbances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, position: int, waits: bool
) -> None:
    enough, looks = tmp_path / "enough", []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 5:
            enough.touch()

    monkeypatch.setattr("disturbance.program.time.sleep", sleep)
    for name, value in (("ENOUGH", str(enough)), ("LENGTH", "4"), ("PACE", "0")):
        monkeypatch.setenv(f"CHAOS_{name}", value)
    program.pause(position)
    assert len(looks) == (5 if waits else 0)
    looks.clear()
    enough.touch()
    program.pause(position)
    assert looks == []


def test_the_chain_depends_on_all_that_was_trained() -> None:
    base = (b"before", 7, GIVEN, 0)
    others = [
        (b"other", 7, GIVEN, 0),
        (b"before", 8, GIVEN, 0),
        (b"before", 7, {"x": 0.6}, 0),
        (b"before", 7, GIVEN, 1),
    ]
    assert len({program.advance(*each) for each in [base, *others]}) == 5


def test_every_built_in_policy_has_a_search() -> None:
    installed = {one.name for one in entry_points(group="hopyard.policies") if one.value.startswith("hopyard_policies")}
    assert installed
    assert installed <= {search.policy["name"] for search in SEARCHES.values()}


# --- verdicts


def job(number: str, end: int, state: JobState = JobState.COMPLETED, x: float = 0.5, **more: Any) -> Job:
    return Job("e", number, state, hyperparameters={"x": x}, position=end, **more)


def rows(
    number: str, end: int, x: float = 0.5, begin: int = 0, chain: bytes = program.BEGIN, partitions: Sequence[int] = ()
) -> list[Statistic]:
    found = []
    for position in range(begin + 1, end + 1):
        partition = partitions[position - 1] if partitions else program.NO_PARTITION
        chain = program.advance(chain, position, {"x": x}, partition)
        found.append(statistic(number, position, program.metrics(chain, position, {"x": x}, partition)))
    return found


def statistic(number: str, position: int, metrics: Mapping[str, float]) -> Statistic:
    return Statistic(number, 1, Report(position, metrics, 0.1))


def checked(search: Search, jobs: Sequence[Job], statistics: Sequence[Statistic]) -> tuple[int, int, int]:
    verdict = Reports(search, with_best(jobs, statistics), statistics).check()
    assert verdict.ok is not bool(verdict.examples)
    return verdict.wrong, verdict.doubled, verdict.missing


def with_best(jobs: Sequence[Job], statistics: Sequence[Statistic]) -> list[Job]:
    """Return the jobs with the best results of their reports."""
    found = []
    for one in jobs:
        reported = {row.report.position: row.report.metrics for row in statistics if row.job == one.id}
        value, position = best(reported)
        found.append(replace(one, best_value=value, best_position=position))
    return found


def test_what_the_program_computes_alone_is_right() -> None:
    statistics = [*rows("1", 4), *rows("2", 2)]
    jobs = with_best([job("1", 4), job("2", 2, JobState.TERMINATED)], statistics)
    assert Reports(PLAIN, jobs, statistics).check() == Verdict(positions=6)


def test_a_wrong_best_result_is_found() -> None:
    (right,) = with_best([job("1", 4)], rows("1", 4))
    found = Reports(PLAIN, [replace(right, best_position=right.best_position - 1)], rows("1", 4)).check()
    assert found.wrong == 1
    assert "the best result of job 1 is" in found.examples[0]


def test_the_best_result_of_a_curve_is_the_first_of_the_largest_values() -> None:
    curve = {at: {program.METRIC: value} for at, value in ((1, 0.2), (2, 0.7), (3, 0.7), (4, 0.1))}
    assert best(curve) == (0.7, 2)
    assert best({}) == (None, 0)


def test_a_wrong_value_a_doubled_report_and_a_gap_are_found() -> None:
    good = rows("1", 4)
    assert checked(PLAIN, [job("1", 4)], [*good[:2], *good[3:]]) == (0, 0, 1)
    assert checked(PLAIN, [job("1", 4)], [*good, good[1]]) == (0, 1, 0)
    assert checked(PLAIN, [job("1", 4)], good[:3]) == (0, 0, 1)
    other = program.metrics(b"another state", 2, GIVEN)
    assert checked(PLAIN, [job("1", 4)], [good[0], statistic("1", 2, other), *good[2:]]) == (1, 0, 0)


def test_training_that_continued_from_the_state_of_another_configuration_is_wrong_at_each_later_position() -> None:
    chain = program.advance(program.BEGIN, 1, {"x": 0.1})
    assert checked(PLAIN, [job("1", 4)], [*rows("1", 1), *rows("1", 4, begin=1, chain=chain)]) == (3, 0, 0)


def test_a_copy_continues_the_chain_of_its_parent() -> None:
    search = replace(PLAIN, inherits=True)
    chain = program.BEGIN
    for position in (1, 2):
        chain = program.advance(chain, position, {"x": 0.1})
    jobs = [job("1", 2, JobState.TERMINATED, x=0.1), job("2", 4, x=0.9, parent="1", fork_position=2)]
    statistics = [*rows("1", 2, x=0.1), *rows("2", 4, x=0.9, begin=2, chain=chain)]
    assert checked(search, jobs, statistics) == (0, 0, 0)
    assert checked(search, jobs, statistics[1:]) == (0, 0, 2), "position 1 is missing in both curves"
    assert checked(PLAIN, jobs, statistics) == (2, 0, 0)


def hops(snapshot: str, partitions: Sequence[int], saved: str = "", before: Sequence[int] = ()) -> Unit:
    """Return a run of job 1 that continues the history `before`, and takes one snapshot at its end."""
    reported = rows("1", len(before) + len(partitions), partitions=[*before, *partitions])[len(before) :]
    unit = Unit("1", snapshot, [(one.report.position, one.report.metrics) for one in reported])
    unit.saved = {saved: len(before) + len(partitions)} if saved else {}
    return unit


def wrong(units: Sequence[Unit], statistics: Sequence[Statistic], state: JobState = JobState.RUNNING) -> list[str]:
    return wrong_hops(units, [job("1", 4, state)], statistics, length=4, partitions=4)


def test_a_unit_that_was_lost_may_be_trained_again_on_another_partition() -> None:
    units = [hops("", [2, 0], "a"), hops("a", [1], before=[2, 0]), hops("a", [3, 1], "b", before=[2, 0])]
    recorded = [*rows("1", 3, partitions=[2, 0, 1]), *rows("1", 4, partitions=[2, 0, 3, 1])[3:]]
    assert wrong(units, recorded, JobState.COMPLETED) == []
    (text,) = wrong(units[:2], recorded[:3], JobState.COMPLETED)
    assert text == "job 1 is complete, but no snapshot of it is at 4"


def test_training_that_does_not_continue_its_snapshot_is_found() -> None:
    first = hops("", [2, 0], "a")
    assert "which none of its runs took" in wrong([first, hops("x", [1], before=[2, 0])], [])[0]
    assert "after (2, 0, 1); alone it reports" in wrong([first, hops("a", [1], before=[2, 3])], [])[0]
    assert wrong([first, hops("a", [2], before=[2, 0])], []) == ["job 1 at 3 has visited (2, 0, 2) in one epoch"]
    assert wrong([first, hops("a", [], before=[2, 0])], rows("1", 2, partitions=[2, 0])) == []
    skipped = Unit("1", "a", [(4, {})])
    assert wrong([first, skipped], []) == ["job 1 reported 4 after 2"]
    (text,) = wrong([first], rows("1", 1, partitions=[3]))
    assert "which is not that of a run" in text


def test_tables_are_compared_row_by_row() -> None:
    jobs = with_best([job("1", 4)], rows("1", 4))
    reports = Reports(PLAIN, jobs, rows("1", 4))
    first = table(reports, jobs)
    assert difference(first, table(reports, jobs)) == ""
    assert "undisturbed" in difference(first, table(reports, [replace(jobs[0], best_position=99)]))
    assert "1 rows, disturbed 0" in difference(first, [])
    assert Counter(len(row) for row in first) == {7: 1}


def test_it_does_not_matter_which_job_trained_a_shared_stage() -> None:
    found = []
    for statistics, parents in (
        ([*rows("1", 4), *rows("2", 4)[2:]], {"2": "1"}),
        ([*rows("1", 4)[2:], *rows("2", 4)], {"1": "2"}),
    ):
        jobs = [job(name, 4, parent=parents.get(name), fork_position=2 if name in parents else 0) for name in "12"]
        jobs = with_best(jobs, statistics)
        found.append(table(Reports(PLAIN, jobs, statistics), jobs))
    assert difference(*found) == ""
