"""Tests of damaged snapshots and missing code: what nobody has any more has its consequence at once, and counts against no job."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import ExperimentState, JobState, RunEndReason, StartJob, StreamId
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.core import Core
from hopyard_engine.core.effects import Noted
from hopyard_engine.core.events import Ended, Operated
from hopyard_engine.core.state.timers import BackoffTimer
from hopyard_engine.journal.codec import decode, encode, kind_of
from tests.reasons import said
from tests.unit.core.rig import Rig

pytestmark = pytest.mark.quick


def trained(*positions: int, stored: bool = False) -> Rig:
    """A job that has saved at these positions, and whose run was suspended at the last one."""
    rig = Rig(capacity=1, keep_latest=3)
    rig.create()
    rig.start("1", "n1/0", until=9)
    for position in range(1, positions[-1] + 1):
        rig.report(position)
        if position in positions:
            rig.taken(position)
            if stored:
                rig.stored(position)
    rig.ended(RunEndReason.SUSPENDED, positions[-1])
    return rig


def miss(rig: Rig, *others: str) -> None:
    """Start a run that finds no undamaged copy of its snapshot, neither on its node nor on these others nor in the store."""
    rig.command(StartJob("1", ("n1/0",), until=9))
    lost = Ended(RunEndReason.LOST, rig.run().position, cause=said("damaged"), snapshot_missing=True, missing_at=others)
    rig.say(rig.key(), lost)


@pytest.mark.parametrize("stored", [False, True])
def test_a_job_goes_back_to_an_older_snapshot_at_once_and_says_so(stored: bool) -> None:
    rig = trained(2, 4, stored=stored)
    assert rig.job().position == 4
    miss(rig)
    job = rig.job()
    assert (job.state, job.position, job.losses, job.setbacks, job.failures) == (JobState.SUSPENDED, 2, 0, 0, 0)
    assert job.reason == Reason.of(ReasonCode.SNAPSHOT_UNUSABLE, at=4, position=2, cause=said("damaged"))
    assert [note.reason for note in rig.of(Noted)][-1:] == [job.reason]
    miss(rig)
    job = rig.job()
    assert (job.state, job.position, job.losses, job.setbacks) == (JobState.PENDING, 0, 0, 0)
    assert job.reason == Reason.of(ReasonCode.SNAPSHOT_UNUSABLE, at=2, position=0, cause=said("damaged"))
    assert rig.stream.due(BackoffTimer("1")) is None
    assert list(rig.stream.idle) == ["1"]


def test_nodes_that_were_asked_and_have_no_undamaged_copy_count_at_once() -> None:
    rig = trained(2)
    rig.stream.snapshots.get("1", 2).nodes.update({"n2", "n3"})  # type: ignore[union-attr]
    miss(rig, "n2")
    entry = rig.stream.snapshots.get("1", 2)
    assert entry is not None
    assert entry.nodes == {"n3"}, "it was not asked, so it may have a copy"
    assert rig.job().setbacks == 1
    miss(rig, "n3")
    assert rig.stream.snapshots.get("1", 2) is None
    assert (rig.job().position, rig.job().setbacks) == (0, 1)


def test_missing_code_pauses_the_experiment_with_the_command_that_sends_it() -> None:
    rig = Rig(capacity=2)
    rig.create()
    rig.create()
    rig.start("1", "n1/0")
    rig.start("2", "n1/1")
    for name in ("1", "2"):
        rig.say(rig.key(name), Ended(RunEndReason.LOST, 0, cause=said("it is nowhere"), code_missing=True))
    founder = rig.stream.founder
    assert founder.state is ExperimentState.PAUSED
    assert founder.reason is not None
    assert founder.reason.code is ReasonCode.CODE_MISSING
    assert "hopyard resend x FOLDER, then continue with hopyard resume x" in str(founder.reason)
    for name in ("1", "2"):
        job = rig.job(name)
        assert (job.state, job.losses, job.setbacks, job.failures) == (JobState.PENDING, 0, 0, 0)
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    assert rig.stream.founder.state is ExperimentState.RUNNING
    rig.start("1", "n1/0")
    assert rig.job().state is JobState.RUNNING
    again = Core()
    for event in rig.journal:
        again.handle(decode(kind_of(event), encode(event)))
    assert again.streams[StreamId("x")].jobs["1"].attempt == rig.job().attempt


def test_missing_code_of_one_rank_pauses_too() -> None:
    rig = Rig(capacity=2)
    rig.create()
    rig.start("1", "n1/0", "n1/1", until=5)
    rig.say(rig.key(rank=1), Ended(RunEndReason.LOST, 0, cause=said("it is nowhere"), code_missing=True))
    rig.say(rig.key(), Ended(RunEndReason.TERMINATED, 0))
    assert rig.stream.founder.state is ExperimentState.PAUSED
    assert rig.stream.founder.reason is not None
    assert rig.stream.founder.reason.code is ReasonCode.CODE_MISSING
