"""Tests of the fault simulation with few schedules; `python -m tests.simulation` runs many."""

import pytest

from hopyard_engine.core import Core
from hopyard_engine.core.events import SnapshotsGivenUp
from hopyard_engine.core.state.stream import Stream
from tests.simulation.__main__ import command
from tests.simulation.bugs import BUGS
from tests.simulation.probes import PROBES
from tests.simulation.schedule import Schedule, run

SCHEDULES = 20


@pytest.mark.timeout(300)
@pytest.mark.parametrize("probe", list(PROBES))
def test_every_probe_survives_all_faults(probe: str) -> None:
    outcomes = [run(probe, seed) for seed in range(SCHEDULES)]
    assert [f"{o.error}; repeat it: {command(o.seed)}" for o in outcomes if o.error] == []
    assert min(outcome.events for outcome in outcomes) >= 200
    struck = {kind for outcome in outcomes for kind in outcome.faults}
    for kind in ("message lost", "message duplicated", "message reordered", "node death", "scheduler crash"):
        assert kind in struck


@pytest.mark.parametrize(
    ("probe", "seed"),
    [
        pytest.param("tree", 1142, id="a job is answered in a group of experiments that train differently"),
        pytest.param("rungs", 1285, id="a crash loses that a finished experiment has given up a snapshot"),
    ],
)
def test_a_schedule_that_once_failed_passes(probe: str, seed: int) -> None:
    assert run(probe, seed).error == ""


def test_a_finished_experiment_keeps_what_its_journal_says_when_a_crash_loses_its_last_event() -> None:
    schedule = Schedule("rungs", 7, events=200)
    assert schedule.run().error == ""
    assert schedule.scheduler.core is not None
    lived = next(iter(schedule.scheduler.core.streams.values()))
    kept = hashes(lived)
    schedule.scheduler.crash = "lost"
    schedule.scheduler.handle(SnapshotsGivenUp(schedule.world.now, lived.id, tuple(sorted(kept))))
    assert hashes(lived) < kept
    assert hashes(schedule.invariants.streams(Core())[lived.id]) == kept


def hashes(stream: Stream) -> set[str]:
    """Return the SHA-256 of all snapshots of a stream."""
    return {entry.info.sha256 for entry in stream.snapshots.entries()}


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", list(BUGS))
def test_a_seeded_bug_is_found_within_a_thousand_schedules(name: str) -> None:
    bug = BUGS[name]
    for number in range(bug.first, bug.first + 1000):
        with bug.seeded():
            error = run(bug.probes[number % len(bug.probes)], number).error
        if error:
            assert not error.startswith(("TypeError", "AttributeError")), f"the bug does not fit the code: {error}"
            return
    pytest.fail(f"{name} was not found")


def test_the_same_seed_gives_the_same_schedule() -> None:
    one, two = run("rungs", 7, trace=True), run("rungs", 7, trace=True)
    assert one == two
    assert len(one.story) > 200


def test_seeding_a_bug_leaves_the_core_as_it_was() -> None:
    before = vars(Core).copy()
    for bug in BUGS.values():
        with bug.seeded():
            pass
    assert vars(Core) == before
    assert run("tree", 1).error == ""
