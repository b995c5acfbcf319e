"""Tests of the lineage of a forked job: which jobs trained it, from which position to which."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from hopyard.cli.tables import LineageStretch, lineage, lineage_table
from hopyard.client.types import Job, JobState

pytestmark = pytest.mark.quick

JOBS = {
    job.id: job
    for job in (
        Job("e1", "1", JobState.TERMINATED, "", {"lr": 0.5, "width": 16}, 12),
        Job("e1", "2", JobState.TERMINATED, "", {"lr": 0.6, "width": 16}, 20, parent="1", fork_position=10),
        Job("e1", "3", JobState.RUNNING, "", {"lr": 0.48, "width": 16}, 23, parent="2", fork_position=15),
        Job("e1", "4", JobState.RUNNING, "", {"lr": 0.7, "width": 16}, 15, parent="3", fork_position=15),
    )
}


def test_a_lineage_is_walked_to_its_beginning() -> None:
    assert [(one.job, one.start, one.end) for one in lineage(JOBS, JOBS["3"])] == [
        ("1", 0, 10),
        ("2", 10, 15),
        ("3", 15, 23),
    ]
    assert lineage(JOBS, JOBS["1"]) == [LineageStretch("1", 0, 12, {"lr": 0.5, "width": 16})]


def test_a_parent_that_trained_nothing_of_it_is_left_out() -> None:
    assert [(one.job, one.start, one.end) for one in lineage(JOBS, JOBS["4"])] == [
        ("1", 0, 10),
        ("2", 10, 15),
        ("4", 15, 15),
    ]


def test_of_two_that_took_each_others_state_one_began() -> None:
    jobs = {
        "1": Job("e1", "1", JobState.COMPLETED, "", {"lr": 0.5}, 8, parent="2", fork_position=8),
        "2": Job("e1", "2", JobState.RUNNING, "", {"lr": 0.5}, 12, parent="1", fork_position=4),
    }
    assert [(one.job, one.start, one.end) for one in lineage(jobs, jobs["2"])] == [("1", 0, 4), ("2", 4, 12)]
    assert [(one.job, one.start, one.end) for one in lineage(jobs, jobs["1"])] == [
        ("1", 0, 4),
        ("2", 4, 8),
        ("1", 8, 8),
    ]


def test_only_what_changes_is_shown() -> None:
    console = Console(width=80, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(lineage_table(lineage(JOBS, JOBS["3"])))
    lines = [line.split() for line in capture.get().splitlines()]
    assert lines == [
        ["from", "to", "by", "job", "lr"],
        ["0", "10", "1", "0.5"],
        ["10", "15", "2", "0.6"],
        ["15", "23", "3", "0.48"],
    ]
