"""Tests of the comparison of repeated training with the recorded one."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from hopyard.policy.vocabulary import LabelJob, Report, RunEndReason
from hopyard_engine.core.events import Reports
from hopyard_tools.commands.retrain import document, table, verdict
from hopyard_tools.reexecution.chains import TrainingChain, chains_of
from hopyard_tools.reexecution.diff import JobComparison, compared, first, same_bits
from hopyard_tools.reexecution.extract import Recorded
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def trained(scores: list[float], saved: str = "s", ends: bool = True) -> Recorded:
    """Return the record of a job with these reports and a last snapshot with the hash `saved`, as the repeated training of chain 0."""
    rig = Rig()
    rig.create()
    rig.command(LabelJob("1", -0.0))
    rig.start(until=len(scores))
    for position, score in enumerate(scores, 1):
        report = Report(position, {"score": score, "loss": math.nan}, at_until=position == len(scores))
        rig.say(rig.key(), Reports((report,)))
    if ends:
        rig.ended(RunEndReason.UNTIL, len(scores), snapshot(len(scores), saved))
    recorded = Recorded()
    for event in rig.journal:
        recorded.take(event)
    return recorded


def beside(now: Recorded, chains: list[TrainingChain] | None = None) -> list[JobComparison]:
    return compared(chains or chains_of(trained([0.1, 0.2, 0.3]).runs, 0), now)


def test_the_same_bits_are_equal() -> None:
    (job,) = beside(trained([0.1, 0.2, 0.3]))
    assert (job.equal, job.positions, job.reports, job.snapshots) == (True, 3, 3, 1)
    assert first([job]) is None
    assert verdict("x", [job]) == (
        "x: 1 job, 3 positions trained again: 3 reports and 1 snapshot are the same bit for bit"
    )
    assert document("x", [job])["equal"] is True


def test_the_first_of_all_differences_is_told() -> None:
    (job,) = beside(trained([0.1, math.nextafter(0.2, 1), 0.4], "t"))
    assert [(one.position, one.what) for one in job.differences] == [(2, "score"), (3, "score"), (3, "snapshot")]
    said = verdict("x", [job])
    assert "1 job differs; first: job 1 at position 2: score is recorded as 0.2 (event " in said
    assert said.endswith("; now it is 0.20000000000000004")
    assert table_of([job]).splitlines()[1].split() == [
        "1",
        "3",
        "0",
        "3",
        "1",
        "different",
        "from",
        "position",
        "2",
        "on",
    ]
    shown = document("x", [job])
    assert (shown["equal"], shown["jobs"][0]["differences"]) == (False, 3)
    assert shown["first_difference"].startswith("job 1 at position 2: score")


def table_of(found: list[JobComparison]) -> str:
    console = Console(width=120, file=io.StringIO())
    with console.capture() as captured:
        console.print(table(found))
    return captured.get()


def test_another_state_with_the_same_reports_is_a_difference() -> None:
    (job,) = beside(trained([0.1, 0.2, 0.3], "t"))
    assert [(one.what, one.recorded, one.found) for one in job.differences] == [("snapshot", "s", "t")]


def test_what_did_not_come_is_told_with_its_reason() -> None:
    (job,) = beside(trained([0.1], ends=False))
    assert [(one.position, one.what) for one in job.differences] == [(2, "its report"), (3, "its report")]
    assert job.differences[0].found == "not there (job is SUSPENDING: reached position 1, saving)"
    (none,) = beside(Recorded())
    assert none.differences[0].found == "not there (it was not begun)"


def test_nothing_to_train_is_said_so() -> None:
    assert verdict("x", []) == "x: no run of it counts, so there is nothing to train again"


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (0.1, 0.1, True),
        (0.1, math.nextafter(0.1, 1), False),
        (0.0, -0.0, False),
        (math.nan, math.nan, True),
        (math.inf, math.inf, True),
        (None, 0.1, False),
        (None, None, True),
    ],
)
def test_numbers_are_equal_bit_for_bit(a: float | None, b: float | None, same: bool) -> None:
    assert same_bits(a, b) is same
