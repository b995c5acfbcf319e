"""Tests of the tables of results in the terminal."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console, RenderableType

from hopyard.cli import tables
from hopyard.client.display.job_looks import LOOKS
from hopyard.client.types import (
    Experiment,
    ExperimentState,
    Gpu,
    Hops,
    Job,
    JobState,
    Metric,
    Node,
    NodeState,
    Point,
    Slot,
    Snapshot,
)
from hopyard.policy.vocabulary.reasons import ReasonCode

pytestmark = pytest.mark.quick

EXPERIMENT = Experiment(
    "e1",
    "digits",
    ExperimentState.COMPLETED,
    Metric("loss", "min"),
    spec={"stop": {"max_iterations": 9}},
    best_job="2",
    best_value=0.25,
    best_position=7,
    jobs={"COMPLETED": 2, "FAILED": 1},
)
JOBS = [
    Job("e1", "1", JobState.COMPLETED, "trained to its end", {"lr": 0.5}, 9, best_value=0.5, best_position=9),
    Job("e1", "2", JobState.COMPLETED, "trained to its end", {"lr": 0.1}, 9, best_value=0.25, best_position=7),
    Job("e1", "3", JobState.FAILED, "train at position 2: ValueError: no\nmore", {"lr": 9.0}, 2),
]


def shown(renderable: RenderableType, width: int = 110) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_jobs_are_listed_the_best_first() -> None:
    lines = shown(tables.jobs_table(EXPERIMENT, JOBS))
    assert lines[0].split() == ["job", "state", "position", "best", "loss", "at", "last", "hyperparameters"]
    assert [line.split()[0] for line in lines[1:4]] == ["2", "1", "3"]
    assert "trained to its end" not in "".join(lines)
    assert lines[3].endswith("lr=9")
    assert lines[4] == "✗ 3  train at position 2: ValueError: no"


def test_of_equal_jobs_the_experiment_s_best_stands_first() -> None:
    equal = [dataclasses.replace(job, best_value=0.25) for job in JOBS]
    lines = shown(tables.jobs_table(EXPERIMENT, equal))
    assert [line.split()[0] for line in lines[1:4]] == ["2", "1", "3"]


def test_a_job_is_as_far_as_what_others_trained_for_it() -> None:
    shared = Job("e1", "4", JobState.PENDING, "", {"lr": 0.3}, 0, best_value=0.4, best_position=2, shared_position=3)
    lines = shown(tables.jobs_table(EXPERIMENT, [*JOBS, shared]))
    assert next(line for line in lines if line.startswith("4")).split()[3:6] == ["3/9", "0.4", "2"]


def test_jobs_on_slots_are_shown_with_all_of_them() -> None:
    running = Job("e1", "4", JobState.RUNNING, "", {"lr": 0.3}, 5, slots=("a/0", "b/1"))
    lines = shown(tables.jobs_table(EXPERIMENT, [*JOBS, running]))
    assert lines[0].split()[-2:] == ["on", "hyperparameters"]
    assert next(line for line in lines if line.startswith("4")).split()[-3:] == ["a/0", "b/1", "lr=0.3"]


def test_forked_jobs_say_what_they_were_forked_from() -> None:
    child = Job("e1", "4", JobState.RUNNING, "", {"lr": 0.12}, 8, parent="2", fork_position=6)
    lines = shown(tables.jobs_table(EXPERIMENT, [*JOBS, child]))
    assert lines[0].split()[-2:] == ["from", "hyperparameters"]
    assert next(line for line in lines if line.startswith("4")).split()[-2:] == ["2@6", "lr=0.12"]
    assert next(line for line in lines if line.startswith("1")).split()[-2:] == ["-", "lr=0.5"]


def test_the_ranks_of_a_job_on_several_slots_are_shown_on_each() -> None:
    slots = (Slot("n/0", "n", "e1", "3", rank=1, world=2), Slot("n/1", "n", "e1", "4"))
    lines = shown(tables.nodes_table([Node("n", "a:1", NodeState.UP, slots)]))
    assert "e1 job 3 rank 1 of 2" in lines[1]
    assert "rank" not in lines[2]


MANY = [
    Job("e1", str(n), JobState.COMPLETED, "", {"lr": n / 100, "layers": 2}, 9, best_value=n / 10, best_position=9)
    for n in range(1, 31)
]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 50), (80, 16)])
def test_a_result_fits_a_screen_with_its_summary_last(width: int, height: int) -> None:
    best = dataclasses.replace(EXPERIMENT, best_job="1", best_value=0.1, best_position=9)
    jobs = [dataclasses.replace(MANY[0], snapshots=(Snapshot("1", 9, "ab"),)), *MANY[1:]]
    lines = shown(tables.summary(best, jobs, width, height=height), width)
    # Space remains for the prompt and for what the command says after the result.
    assert len(lines) <= height - 3
    assert max(map(len, lines)) <= width
    assert lines[0].split()[:3] == ["job", "lr", "state"]
    assert lines[1].split()[:2] == ["1", "0.01"]
    rows = lines.index("") - 2
    if rows < 29:
        assert lines[rows + 1] == f"... {30 - rows} more: hopyard jobs e1"
    summary = lines[lines.index("") + 1 :]
    assert summary[0].startswith("digits  COMPLETED  30 jobs in")
    assert summary[1].startswith("best loss 0.1  job 1 at position 9  (completed)")
    assert [line.split() for line in summary[2:4]] == [["layers", "2"], ["lr", "0.01"]]
    assert summary[-1] == "next: hopyard curve e1, hopyard download e1 -o DIR"


def test_a_result_without_a_snapshot_of_the_best_job_offers_no_download() -> None:
    lines = shown(tables.summary(EXPERIMENT, JOBS[:2]))
    assert lines[-2:] == [
        "next: hopyard curve e1",
        "the model of the best job was not saved: a report with checkpoint= saves it (docs/programs.md)",
    ]
    log = dataclasses.replace(EXPERIMENT, spec={**EXPERIMENT.spec, "log": {"command": "train"}})
    assert shown(tables.summary(log, JOBS[:2]))[-1] == "next: hopyard curve e1"


def test_a_result_with_failed_jobs_counts_them_and_offers_their_log_and_a_retry() -> None:
    lines = shown(tables.summary(EXPERIMENT, JOBS, where=" --data d"))
    assert any(line.startswith("digits  COMPLETED  3 jobs, 1 failed in") for line in lines)
    assert "next: hopyard curve e1 --data d, hopyard logs e1 3 --data d, hopyard retry e1 --data d" in lines


def test_many_hyperparameters_do_not_push_the_table_off_the_screen() -> None:
    wide = [dataclasses.replace(job, hyperparameters={f"h{n}": n + job.position for n in range(40)}) for job in MANY]
    best = dataclasses.replace(EXPERIMENT, best_job="1", best_value=0.1, best_position=9)
    lines = shown(tables.summary(best, wide, 80, height=24), 80)
    assert len(lines) <= 21
    assert lines.index("") >= 6
    assert any(line.startswith("  h0=9 h1=10") for line in lines)
    small = shown(tables.summary(best, wide, 40, height=10), 40)
    assert len(small) <= 8
    assert any(line.startswith("best loss 0.1") for line in small)


def test_a_result_that_is_not_for_a_terminal_is_whole() -> None:
    lines = shown(tables.summary(EXPERIMENT, MANY, 100_000), 200)
    assert [line.split()[0] for line in lines[1:31]] == [job.id for job in MANY]
    assert not any(line.startswith("...") for line in lines)


def test_experiments_and_nodes() -> None:
    assert "digits" in shown(tables.experiments_table([EXPERIMENT], tables.MEDIUM))[1]
    node = Node("n", "a:1", NodeState.UP, (Slot("n/0", "n", "e1", "3", cpus=2), Slot("n/1", "n", gpus=(0, 1))))
    lines = shown(tables.nodes_table([node, Node("m", "b:1", NodeState.LOST)]))
    assert "e1 job 3" in lines[1]
    assert "0,1" in lines[2]
    assert lines[3].split()[:2] == ["m", "LOST"]


def test_gpus_are_shown_with_their_memory_and_use() -> None:
    slots = (Slot("n/0", "n", gpus=(0, 1)), Slot("n/1", "n", gpus=(2,)), Slot("n/2", "n"))
    gpus = (
        Gpu("GPU-a", 0, "A100", 40 << 30, 3 << 30, 0.375, ("n/0",)),
        Gpu("GPU-b", 1, "A100", 40 << 30, None, None, ("n/0",)),
        Gpu("MIG-c", 2, "A100 MIG 1g.5gb", 5 << 30, 1 << 30, None, ("n/1",)),
    )
    lines = shown(tables.nodes_table([Node("n", "a:1", NodeState.UP, slots, gpus=gpus), Node("m", "", NodeState.LOST)]))
    assert lines[0].split()[4:10] == ["gpus", "gpu", "gpu", "memory", "gpu", "use"]
    assert lines[1].split()[4:10] == ["0,1", "A100", "3.0", "GiB", "of", "40.0"]
    assert "38%" in lines[1]
    assert lines[2].split() == ["A100", "40.0", "GiB", "-"]
    assert lines[3].split()[2:] == ["2", "A100", "MIG", "1g.5gb", "1.0", "GiB", "of", "5.0", "GiB", "-", "idle"]
    assert lines[4].split()[2:] == ["-", "-", "-", "-", "idle"]
    assert lines[5].split()[:2] == ["m", "LOST"]
    plain = shown(tables.nodes_table([Node("n", "a:1", NodeState.UP, slots)]))
    assert "gpu memory" not in plain[0]


@pytest.mark.parametrize(
    ("renderable", "expected"),
    [
        (tables.experiments_table([]), "no experiments yet"),
        (tables.nodes_table([]), "no nodes"),
        (tables.jobs_table(EXPERIMENT, []), "has no jobs yet"),
        (tables.curve_text(EXPERIMENT, JOBS[0], "loss", []), "nothing reported yet"),
    ],
)
def test_nothing_is_said_too(renderable: RenderableType, expected: str) -> None:
    assert expected in shown(renderable)[0]


def test_a_curve_has_its_ends_below_it() -> None:
    lines = shown(tables.curve_text(EXPERIMENT, JOBS[0], "loss", [Point(1, 1.0), Point(9, 0.5)]))
    assert lines[0] == "digits, job 1: loss"
    assert lines[-1].split() == ["1", "9"]
    child = dataclasses.replace(JOBS[0], id="4", parent="2", fork_position=6)
    assert (
        shown(tables.curve_text(EXPERIMENT, child, "loss", [Point(1, 1.0)]))[0]
        == "digits, job 4 (from job 2 at 6): loss"
    )


def test_equal_reasons_are_told_once_and_what_the_state_says_not_at_all() -> None:
    failed = [Job("e1", str(number), JobState.FAILED, "\nKeyError: 'lr'\n  traceback") for number in range(1, 8)]
    quiet = [
        Job("e1", "8", JobState.SUSPENDED, "reached position 5", reason_code=ReasonCode.UNTIL_REACHED),
        Job("e1", "9", JobState.COMPLETED, "trained to its end", reason_code=ReasonCode.TRAINED_TO_END),
        Job("e1", "10", JobState.PENDING, "waits for its first slot", reason_code=ReasonCode.CONFIGURED),
    ]
    lost = Job("e1", "12", JobState.SUSPENDED, "its run was lost: node n is silent")
    lines = shown(tables.jobs_table(EXPERIMENT, [lost, *quiet, *failed]))
    assert lines[-2:] == ["✗ 1, 2, 3, 4, 5 and 2 more  KeyError: 'lr'", "‖ 12  its run was lost: node n is silent"]
    # When all jobs failed for the same reason, the command's last line shows it.
    assert "KeyError" not in "".join(shown(tables.summary(EXPERIMENT, failed)))


def test_jobs_that_ended_with_their_experiment_have_no_cross() -> None:
    """Check the words and symbols of all ends; only a failure has the cross and its color."""
    R = ReasonCode
    jobs = [
        Job("e1", "1", JobState.TERMINATED, "stopped at rung 2 of 4, position 16", reason_code=R.STOPPED_AT_RUNG),
        Job("e1", "2", JobState.TERMINATED, "ended: target reached by job 7", reason_code=R.STOPPED_BY_TARGET),
        Job("e1", "3", JobState.TERMINATED, "not started: the experiment ended first", reason_code=R.NOT_STARTED),
        Job("e1", "4", JobState.TERMINATED, "its policy ended it at position 4", reason_code=R.TERMINATED),
    ]
    lines = shown(tables.jobs_table(EXPERIMENT, jobs))
    assert "✗" not in "".join(lines)
    assert [" ".join(line.split()[1:3]) for line in lines[1:5]] == ["□ stopped", "□ stopped", "◌ not", "■ terminated"]
    assert lines[5:] == [
        "□ 1  stopped at rung 2 of 4, position 16",
        "□ 2  ended: target reached by job 7",
        "◌ 3  not started: the experiment ended first",
        "■ 4  its policy ended it at position 4",
    ]
    html = jobs[1]._repr_html_()
    assert "□ stopped" in html
    assert LOOKS[JobState.FAILED].color not in html
    failed = Job("e1", "5", JobState.FAILED, "no")._repr_html_()
    assert f"color: {LOOKS[JobState.FAILED].color}'>✗ failed" in failed


def test_a_program_that_ended_before_its_experiment_would_have_it_is_told() -> None:
    ended = "its program ended by itself before position 15"
    early = ReasonCode.PROGRAM_ENDED_EARLY
    jobs = [Job("e1", name, JobState.COMPLETED, ended, {}, 9, reason_code=early) for name in ("1", "2")]
    assert shown(tables.jobs_table(EXPERIMENT, jobs))[-1] == f"✓ 1, 2  {ended}"


def test_a_long_error_is_one_line() -> None:
    failed = Job("e1", "1", JobState.FAILED, "no " * 200)
    assert len(shown(tables.jobs_table(EXPERIMENT, [failed]))) == 3


def test_a_node_that_never_spoke_and_a_slot_that_waits_for_its_job() -> None:
    up = Node("n", "a:1", NodeState.UP, (Slot("n/0", "n", "e1"),))
    lost = Node("m", "b:1", NodeState.LOST, (Slot("m/0", "m"),), silent_seconds=1e9)
    lines = shown(tables.nodes_table([up, lost]))
    assert "held by e1" in lines[1]
    assert "idle" not in lines[2]
    assert lines[2].endswith("never")


def test_a_node_shows_its_state_with_its_age_and_why() -> None:
    up = Node("n", "a:1", NodeState.UP, (Slot("n/0", "n"),), state_seconds=7380.0)
    drained = Node("m", "b:1", NodeState.DRAINED, (Slot("m/0", "m"),), state_seconds=5.0, reason="drained by a person")
    lines = shown(tables.nodes_table([up, drained]))
    assert "UP 2h 03m" in lines[1]
    assert "DRAINED 5s" in lines[2]
    assert "idle" not in lines[2]
    assert lines[3] == "m  drained by a person"
    assert len(lines) == 4


def test_jobs_of_an_extended_experiment_are_never_beyond_their_length() -> None:
    (line,) = shown(tables.jobs_table(EXPERIMENT, [Job("e1", "1", JobState.COMPLETED, position=12)]))[1:]
    assert "12/12" in line


def test_an_experiments_warning_stands_below_the_table() -> None:
    warned = dataclasses.replace(EXPERIMENT, warning="snapshots take too much")
    assert shown(tables.experiments_table([EXPERIMENT, warned]))[-1] == f"{EXPERIMENT.id}  snapshots take too much"


WAITS = "waits for a slot: 3 of 3 in its share are busy"
STARVED = "its share is 0 of 4 slots: weight 1 against digits-3f1c2a (weight 3: 4)"


def test_waiting_jobs_say_why_below_the_table_and_beside_them_in_a_wide_terminal() -> None:
    live = Experiment("e1", "digits", ExperimentState.RUNNING, Metric("loss", "min"))
    waiting = [Job("e1", str(number), JobState.PENDING, WAITS, {"lr": 0.1}) for number in range(1, 4)]
    starting = Job("e1", "4", JobState.STARTING, "starts on a/0: its process prepares", slots=("a/0",))
    training = Job("e1", "5", JobState.RUNNING, slots=("a/1",))
    lines = shown(tables.jobs_table(live, [*waiting, starting, training]))
    assert lines[6:] == [f"○ 1, 2, 3  {WAITS}", "▷ 4  starts on a/0: its process prepares"]
    lines = shown(tables.jobs_table(live, [*waiting, starting, training], width=120), 120)
    assert lines[0].split()[-1] == "why"
    assert [line.endswith(WAITS) for line in lines[1:4]] == [True] * 3
    assert len(lines) == 6
    long = Job("e1", "6", JobState.PENDING, WAITS, {f"parameter{n}": n for n in range(9)})
    lines = shown(tables.jobs_table(live, [long], width=120), 120)
    # The table leaves no space for a column of reasons.
    assert lines[-1] == f"○ 6  {WAITS}"


def test_many_reasons_are_cut() -> None:
    live = Experiment("e1", "digits", ExperimentState.RUNNING, Metric("loss", "min"))
    starting = [Job("e1", str(n), JobState.STARTING, f"starts on a/{n}: its process prepares") for n in range(64)]
    assert shown(tables.jobs_table(live, starting))[-1] == "and 52 more reasons: --json has all"


def test_completed_experiments_do_not_repeat_that_all_jobs_ended() -> None:
    reason = ReasonCode.ALL_JOBS_ENDED
    one = dataclasses.replace(EXPERIMENT, reason="all jobs ended", reason_code=reason)
    assert "all jobs ended" not in "".join(shown(tables.experiments_table([one], 200), 200))
    target = dataclasses.replace(one, reason="job 1 reached it", reason_code=ReasonCode.TARGET_REACHED)
    assert "job 1 reached it" in "".join(shown(tables.experiments_table([target], 200), 200))


@pytest.mark.parametrize("width", [60, 80, 100, 130, 200])
def test_experiments_say_why_they_wait_at_any_width(width: int) -> None:
    one = Experiment("digits-0a1b2c", "digits", ExperimentState.RUNNING, Metric("loss", "min"), STARVED, share=0)
    two = Experiment("digits-3f1c2a", "digits", ExperimentState.RUNNING, Metric("loss", "min"), slots=4, share=4)
    lines = shown(tables.experiments_table([one, two], width), width)
    assert max(map(len, lines)) <= width
    assert all(line.split()[0] == name for line, name in zip(lines[1:3], (one.id, two.id), strict=True))
    if width < 130:
        assert len(lines) == 4
        assert lines[3].startswith(f"{one.id}  its share is 0 of 4 slots")
    else:
        assert len(lines) == 3
        assert "its share is 0 of 4" in lines[1]


def test_what_the_policy_takes_jobs_for_stands_beside_their_state() -> None:
    jobs = [
        dataclasses.replace(JOBS[0], state=JobState.SUSPENDED, priority=0.5),
        dataclasses.replace(JOBS[1], state=JobState.RUNNING, priority=0.0),
        dataclasses.replace(JOBS[2], priority=0.9),
    ]
    lines = shown(tables.jobs_table(EXPERIMENT, jobs))
    assert lines[0].split()[:4] == ["job", "state", "p", "position"]
    rows = {line.split()[0]: line for line in lines[1:4]}
    assert ("★ 0.5" in rows["1"], "☆" in rows["2"], "★" in rows["3"]) == (True, True, False)


def test_a_summary_says_how_models_moved_between_partitions() -> None:
    data = dataclasses.replace(EXPERIMENT, spec={"data": "fashion"}, hops=Hops(direct=3, direct_bytes=3072, stored=1))
    (line,) = [line for line in shown(tables.summary(data, JOBS), width=200) if line.startswith("models")]
    assert line.startswith(
        "models moved: 3 from node to node (3.0 KiB), 1 to the store (0 B); hopyard plot e1 --kind hops"
    )
    assert "models moved" not in "".join(shown(tables.summary(dataclasses.replace(data, spec={}), JOBS)))


def test_a_summary_says_what_jobs_have_from_others_and_what_is_paid() -> None:
    spec = {"policy": {"name": "stage_tree"}}
    staged = dataclasses.replace(EXPERIMENT, spec=spec, slot_seconds=75.0)
    forked = [dataclasses.replace(JOBS[0], attempt=1, parent="2", fork_position=3), JOBS[1], JOBS[2]]
    (line,) = [line for line in shown(tables.summary(staged, forked), width=200) if line.startswith("shared")]
    told = "shared: of 3 jobs 1 without a run of its own, 1 from another job's snapshot; slot time billed: 1m 15s; hopyard tree e1"
    assert line.startswith(told)
    for found, jobs in ((EXPERIMENT, forked), (staged, [dataclasses.replace(job, attempt=1) for job in JOBS])):
        assert "shared" not in "".join(shown(tables.summary(found, jobs), width=200))


def test_a_summary_of_elastic_jobs_says_where_to_see_them_grow() -> None:
    elastic = dataclasses.replace(EXPERIMENT, spec={"policy": {"name": "asha", "elastic": {}}})
    lines = shown(tables.summary(elastic, JOBS))
    assert any(line.startswith("hopyard plot e1 --kind gangs -o gangs.svg") for line in lines)
    assert "gangs" not in "".join(shown(tables.summary(EXPERIMENT, JOBS)))


def test_what_is_billed_stands_beside_the_experiments_of_a_group() -> None:
    one = dataclasses.replace(EXPERIMENT, group="e1", slot_seconds=75.0)
    assert "billed" not in shown(tables.experiments_table([one]))[0]
    lines = shown(tables.experiments_table([dataclasses.replace(one, id="e2"), one]))
    assert "billed" in lines[0]
    assert "1m 15s" in lines[2]


def test_a_long_reason_stands_below_the_table_however_wide_it_may_be() -> None:
    paused = dataclasses.replace(EXPERIMENT, state=ExperimentState.PAUSED, reason="policy error: " + "words " * 40)
    short = dataclasses.replace(EXPERIMENT, id="e2", state=ExperimentState.PAUSED, reason="paused by a person")
    lines = shown(tables.experiments_table([paused, short], width=1000), width=1000)
    assert max(len(line) for line in lines[:3]) < 120
    assert lines[3].startswith("e1  policy error: words")


def test_a_job_that_is_complete_is_as_long_as_it_is_whatever_others_train_beyond() -> None:
    further = Job(
        "e1", "4", JobState.COMPLETED, "trained to its end", {"lr": 0.1}, 12, best_value=0.2, best_position=12
    )
    lines = shown(tables.jobs_table(EXPERIMENT, [*JOBS, further]))
    assert {line.split()[0]: line.split()[3] for line in lines[1:4]} == {"4": "12/12", "2": "9/9", "1": "9/9"}


def test_a_failed_experiment_says_the_first_line_of_why() -> None:
    failed = dataclasses.replace(
        EXPERIMENT, state=ExperimentState.FAILED, reason="train: ValueError: no\nTraceback\n  more"
    )
    lines = shown(tables.summary(failed, JOBS))
    assert any(line.startswith("digits  FAILED (train: ValueError: no)") for line in lines)
    assert not any("Traceback" in line for line in lines)


def test_a_suspended_search_counts_the_jobs_that_it_will_have() -> None:
    jobs = [Job("e", str(number), JobState.COMPLETED if number < 4 else JobState.PENDING) for number in range(8)]
    paused = Experiment("e", "e", ExperimentState.PAUSED, Metric("loss", "min"), spec={"stop": {"jobs": 20}})
    assert "4 of 20 jobs ended" in "\n".join(shown(tables.summary(paused, jobs)))
    ended = dataclasses.replace(paused, state=ExperimentState.STOPPED)
    assert "4 of 8 jobs ended" in "\n".join(shown(tables.summary(ended, jobs)))
