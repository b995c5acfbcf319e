"""Conformance cases about snapshots: when a run saves, and how another process resumes. See `cases` for the form of a case."""

from __future__ import annotations

from hopyard._runtime.application.conformance.cases import FAR, LR, case, failed, failure, soon
from hopyard._runtime.application.conformance.run import ProcessRun, RunFixture, Saved
from hopyard._runtime.application.conformance.transcript import ProtocolViolation
from hopyard._runtime.application.state import named
from hopyard.v1 import application_pb2 as wire


@case("snapshot-every", "saving", "snapshots")
def snapshot_every(bench: RunFixture) -> None:
    """Saves whenever the given number of units has passed since its last snapshot.

    Start a run with `snapshot_every` 2 and a snapshot requested at position 3; raise `ProtocolViolation` unless it saves at 2, 3, 5
    and 7.
    """
    run = bench.begin({"lr": LR}, allowed=8, snapshot_at=[3], snapshot_every=2)
    run.reported(8)
    run.quiet("position 8 is one behind the snapshot of 7", 0.3)
    found = [snapshot.position for snapshot in run.heard.snapshots()]
    if found != [2, 3, 5, 7]:
        raise ProtocolViolation("snapshots of positions 2, 3, 5, 7 (every 2, and one at 3)", f"those of {found}")
    for position in found:
        run.took(position)


@case("suspend", "suspend-and-terminate", "until")
def suspend(bench: RunFixture) -> None:
    """Saves and ends when it is suspended at a boundary.

    Send SUSPEND to a run that waits for a decision, and raise `ProtocolViolation` unless it saves and ends there.
    """
    _suspended(bench, 2)


@case("suspend-running", "suspend-and-terminate", "suspend")
def suspend_running(bench: RunFixture) -> None:
    """Saves and ends at the next boundary when it is suspended while it trains, regardless of later commands.

    Send SUSPEND during a slow iteration, then CONTINUE, and raise `ProtocolViolation` unless the run saves and ends within two
    iterations.
    """
    run = bench.begin({"lr": 0.5, "seconds": 0.4}, allowed=3)
    run.reported(1)
    run.decide("SUSPEND", 0)  # The position of a SUSPEND decision does not matter.
    run.decide("CONTINUE", 1, allowed=FAR)
    ended = run.ended("SUSPENDED", None, saved=True)
    soon(run, ended.position)
    run.saved(ended)


@case("resume", "loading", "suspend")
def resume(bench: RunFixture) -> None:
    """Resumes from a snapshot in a new process with the same results, more than once.

    Suspend and resume a job twice, and raise `ProtocolViolation` unless the reports equal those of an uninterrupted run.
    """
    saved = _suspended(bench, 3)
    for _ in range(2):
        first = saved.snapshot.position + 1
        run = bench.begin({"lr": LR}, saved, allowed=first + 1)
        run.reported(first)
        run.reported(first + 1)
        run.decide("SUSPEND", first + 1)
        saved = run.saved(run.ended("SUSPENDED", first + 1, saved=True))


@case("nothing-left", "until", "resume", "amend", "finished")
def nothing_left(bench: RunFixture) -> None:
    """Reports its position without metrics and waits when it is resumed at its until; trains nothing when it was finished.

    Resume runs from a snapshot at position 2, whose `until` is 2 or whose training ends at 2. Raise `ProtocolViolation` if they train,
    or if a run does not train to position 3 after an amendment of its `until` to 3 and a decision to continue.
    """
    saved = _suspended(bench, 2)
    run = bench.begin({"lr": LR}, saved, until=2, allowed=FAR)
    run.until(lambda: bool(run.heard.reports()), _RESTATED)
    _restated(run)
    run.decide("CONTINUE", 2)
    run.ended("UNTIL", 2, saved=None)  # The loaded snapshot was not taken by this run.
    run = bench.begin({"lr": LR, "last": 2}, saved, allowed=FAR)
    run.until(lambda: bool(run.heard.reports()) or run.heard.closed, f"{_RESTATED}, or the end of the process")
    if run.heard.reports():
        _restated(run)
        run.decide("CONTINUE", 2)
        run.ended("UNTIL", 2, saved=None)
    else:
        run.tell(exit=wire.ApplicationExit(reason="the run is over"))
        run.exits(0, "when there is nothing more to train")
    run = bench.begin({"lr": LR}, saved, until=2, allowed=FAR)
    run.until(lambda: bool(run.heard.reports()), _RESTATED)
    _restated(run)
    run.quiet("there is nothing to train")
    run.amend("on", until=3)
    run.answered("on", accepted=True, position=2)
    run.decide("CONTINUE", 2)
    run.reported(3, at_until=True)


_RESTATED = "report 2 with at_until and without metrics"


def _restated(run: ProcessRun) -> None:
    report = run.heard.reports()[0]
    if (report.position, report.at_until, len(report.metrics)) != (2, True, 0):
        raise ProtocolViolation(
            _RESTATED, f"report {report.position} with at_until {report.at_until} and {dict(report.metrics)}"
        )
    run.restated = 1


@case("fork", "loading", "resume")
def fork(bench: RunFixture) -> None:
    """Resumes from another job's snapshot with different hyperparameters, and does not change the snapshot.

    Raise `ProtocolViolation` if the reports differ from those of the new hyperparameters or the hash of the source snapshot changes.
    """
    saved = _suspended(bench, 2)
    for job, lr in (("2", 0.25), ("3", 4.0)):
        run = bench.begin({"lr": lr}, saved, job=job, allowed=4, snapshot_every=1)
        run.reported(4)
        run.took(3)
        if named(saved.file).sha256 != saved.snapshot.sha256:
            raise ProtocolViolation("a snapshot that nobody changes", f"another hash after job {job} has loaded it")


@case("snapshot-missing", "loading", "resume")
def snapshot_missing(bench: RunFixture) -> None:
    """Reports a failure when the snapshot to load is missing, and trains nothing.

    Raise `ProtocolViolation` unless the run ends as LOST with a message, without a report, and the process exits with a nonzero code.
    """
    saved = _suspended(bench, 1)
    gone = str(saved.file) + ".gone"

    def elsewhere(message: wire.ApplicationStart) -> None:
        message.snapshot_file = gone

    run = bench.begin({"lr": LR}, saved, allowed=FAR, change=elsewhere)
    failure(run, user=False)
    _trained_nothing(run)
    failed(bench, run, "LOST")


@case("snapshot-corrupt", "loading", "resume")
def snapshot_corrupt(bench: RunFixture) -> None:
    """Detects a damaged snapshot by its hash, and trains nothing.

    Change a saved snapshot, resume from it, and raise `ProtocolViolation` unless the run ends as LOST with a message and without a
    report.
    """
    saved = _suspended(bench, 1)
    files = [saved.file] if saved.file.is_file() else [path for path in saved.file.rglob("*") if path.is_file()]
    for file in files:
        file.chmod(0o600)
        file.write_bytes(file.read_bytes().replace(b".1234", b".4321"))
    if named(saved.file).sha256 == saved.snapshot.sha256:
        raise ProtocolViolation(f"the task's number as text in the snapshot, {LR}", "a snapshot without it")
    run = bench.begin({"lr": LR}, saved, allowed=FAR)
    failure(run, user=False)
    _trained_nothing(run)
    failed(bench, run, "LOST")


def _suspended(bench: RunFixture, position: int) -> Saved:
    run = bench.begin({"lr": LR}, allowed=position)
    run.reported(position)
    run.decide("SUSPEND", position)
    return run.saved(run.ended("SUSPENDED", position, saved=True))


def _trained_nothing(run: ProcessRun) -> None:
    if run.heard.reports():
        raise ProtocolViolation("no report from a state that could not be loaded", run.heard.shown())
