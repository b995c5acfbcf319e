"""Tests of `hopyard replay`, `hopyard events`, `hopyard rungs` and `hopyard tree` on experiments of a real cluster."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hopyard.cli.main import run
from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState
from hopyard.errors import InvalidInput, NotFound
from hopyard_engine.journal import format as journal_format
from hopyard_engine.journal.format import FORMAT
from hopyard_engine.replay import parse_until
from hopyard_tools.commands import tree
from hopyard_tools.commands.events import tell
from hopyard_tools.commands.replay import replay
from hopyard_tools.commands.rungs import show
from tests.integration.replay.policies import Arrival, Halves
from tests.integration.scheduler.conftest import experiment, running
from tests.timing import HANG_SECONDS

POLICY = "policy: 'tests.integration.replay.policies:Arrival'"


@dataclass
class Outcome:
    """The output of a command."""

    out: str
    err: str
    equal: bool = True

    @property
    def document(self) -> dict[str, Any]:
        """Return the standard output, parsed as one JSON document."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


class Commands:
    """Runs the commands in the test's event loop, in which the cluster runs too."""

    def __init__(self, address: str, capfd: pytest.CaptureFixture[str]) -> None:
        self.address = address
        self._capfd = capfd

    async def replay(self, name: str | None, until: str | None = None, *, as_json: bool = False) -> Outcome:
        self._capfd.readouterr()
        limit = parse_until(until) if until is not None else None
        equal = await replay(name, limit, self.address, None, as_json)
        return Outcome(*self._capfd.readouterr(), equal)

    async def rungs(self, name: str, at: str | None = None, *, jobs: bool = False, as_json: bool = False) -> Outcome:
        self._capfd.readouterr()
        await show(name, parse_until(at, "--at") if at is not None else None, jobs, self.address, None, as_json)
        return Outcome(*self._capfd.readouterr())

    async def tree(
        self, name: str, at: str | None = None, *, to: Path | None = None, job: str | None = None, as_json: bool = False
    ) -> Outcome:
        self._capfd.readouterr()
        await tree.show(name, to, at, job, False, self.address, None, as_json)
        return Outcome(*self._capfd.readouterr())

    async def events(
        self, name: str, job: str | None = None, *, follow: bool = False, as_json: bool = False
    ) -> Outcome:
        self._capfd.readouterr()
        await tell(name, job, follow, self.address, None, as_json)
        return Outcome(*self._capfd.readouterr())


pytestmark = pytest.mark.asyncio(loop_scope="module")
together = pytest_asyncio.fixture(loop_scope="module", scope="module")
"""A fixture decorator for values that all tests of this module share and only read."""


@together
async def address(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a scheduler with one node of two slots."""
    async with running(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@together
async def client(address: str) -> AsyncIterator[AsyncClient]:
    """A client of the scheduler at `address`."""
    async with AsyncClient(server=address) as found:
        yield found


@pytest.fixture
def commands(address: str, capfd: pytest.CaptureFixture[str]) -> Commands:
    return Commands(address, capfd)


@together
async def raced(client: AsyncClient, tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """A completed experiment whose outcome depended on the order of arrival of its reports."""
    created = await client.create(experiment(tmp_path_factory.mktemp("raced"), jobs=6, length=5, more=POLICY))
    ended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert ended.state is ExperimentState.COMPLETED
    return ended


async def test_a_replay_of_an_arrival_order_policy_equals_the_journal(
    raced: Experiment, commands: Commands, client: AsyncClient
) -> None:
    said = await commands.replay(raced.id)
    assert (said.equal, said.out) == (True, "")
    decisions, rows = said.err.splitlines()[-2:]
    assert decisions.endswith(": every decision is the same")
    assert rows.endswith(" stored rows compared: every one follows from the journal")
    document = (await commands.replay(raced.id, as_json=True)).document
    assert (document["experiment"], document["decisions_equal"], document["first_difference"]) == (raced.id, True, None)
    state = document["state"]
    shown = {job.id: (job.state.value, job.position, job.best_value) for job in await client.jobs(raced.id)}
    assert {job["id"]: (job["state"], job["position"], job["best"]) for job in state["jobs"]} == shown
    assert (state["state"], state["event"]) == ("COMPLETED", document["events"])
    newest = max(await client.experiments(), key=lambda one: one.created_at)
    assert (await commands.replay(None, as_json=True)).document["experiment"] == newest.id


async def test_until_shows_the_state_in_between(raced: Experiment, commands: Commands) -> None:
    events = (await commands.events(raced.id, as_json=True)).document["events"]
    up = next(event["event"] for event in events if "run 1 of job 2 is up" in event["text"])
    state = (await commands.replay(raced.id, str(up), as_json=True)).document["state"]
    job = next(job for job in state["jobs"] if job["id"] == "2")
    assert (job["state"], job["position"], job["attempt"]) == ("RUNNING", 0, 1)
    (slot,) = job["slots"]
    assert (state["event"], state["state"], state["slots"][slot]) == (up, "RUNNING", "2")
    table = await commands.replay(raced.id, str(up))
    assert table.equal
    assert f"after event {up}," in table.out
    assert f"{slot}: job 2" in table.out
    whole = (await commands.replay(raced.id, "1h", as_json=True)).document
    assert whole["events"] >= len(events)  # The store may still send messages.


async def test_a_changed_policy_shows_its_first_other_decision(
    raced: Experiment, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Arrival, "margin", -1.0)
    said = await commands.replay(raced.id)
    assert not said.equal
    assert "is the first that differs" in said.err
    assert "then: CONTINUE" in said.out
    assert "now:  TERMINATE" in said.out
    first = (await commands.replay(raced.id, as_json=True)).document["first_difference"]
    events = (await commands.events(raced.id, as_json=True)).document["events"]
    recorded = events[first["event"] - 1]
    assert recorded["kind"] == "PolicyAnswered"
    assert "decided CONTINUE" in recorded["text"]
    assert "decided" not in "".join(event["text"] for event in events[: first["event"] - 1])


async def test_another_version_of_the_policy_is_named(
    raced: Experiment, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await commands.replay(raced.id, as_json=True)).document["version_change"] is None
    monkeypatch.setattr(Arrival, "version", "2")
    name = "tests.integration.replay.policies:Arrival"
    change = f"policy {name} had version 1 when the experiment began and has version 2 now"
    said = await commands.replay(raced.id)
    assert said.equal
    assert f"{raced.id}: {change}" in said.err.splitlines()
    monkeypatch.setattr(Arrival, "margin", -1.0)
    document = (await commands.replay(raced.id, as_json=True)).document
    assert document["version_change"] == change
    assert document["first_difference"]["text"].endswith(f"; {change}")


@pytest.mark.parametrize("command", ["replay", "events"])
async def test_a_journal_of_another_format_is_refused_in_one_line(
    raced: Experiment, address: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(journal_format, "FORMAT", FORMAT + 1)
    capfd.readouterr()
    assert await asyncio.to_thread(run, [command, raced.id, "--server", address]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    reason = (
        f"found format version {FORMAT}, supported is version {FORMAT + 1}; use the version of Hopyard that wrote it"
    )
    assert err.count("\n") == 1
    assert err.endswith(f"journal of {raced.id}, record 1: {reason}\n")


async def test_events_tell_the_story_of_an_experiment_and_of_a_job(raced: Experiment, commands: Commands) -> None:
    lines = (await commands.events(raced.id)).out.splitlines()
    assert lines[0].lstrip().startswith("1  ")
    assert lines[0].endswith("the experiment was created: max accuracy, 6 jobs of 5 positions")
    assert any(line.endswith("the experiment is COMPLETED: all jobs ended") for line in lines)
    one = await commands.events(raced.id, "1")
    assert 0 < len(one.out.splitlines()) < len(lines)
    assert "the policy starts job 1 on n/" in one.out
    assert "run 1 of job 1 reported 1: accuracy" in one.out
    assert "job 2" not in one.out
    assert (await commands.events(raced.id, "1", as_json=True)).document["job"] == "1"
    with pytest.raises(NotFound, match=f"experiment {raced.id} has no job '77'; it has 1, 2"):
        await commands.events(raced.id, "77")


async def test_events_follow_an_experiment_to_its_end(client: AsyncClient, commands: Commands, tmp_path: Path) -> None:
    created = await client.create(experiment(tmp_path / "e", jobs=2, length=10, pace=0.05))
    said = await commands.events(created.id, follow=True)
    assert "the experiment is COMPLETED: all jobs ended" in said.out
    assert (await client.get(created.id)).state is ExperimentState.COMPLETED


@together
async def halved(client: AsyncClient, tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """An ended experiment with a rung."""
    policy = POLICY.replace("Arrival", "Halves")
    created = await client.create(experiment(tmp_path_factory.mktemp("halved"), jobs=6, length=5, more=policy))
    return await client.wait(created.id, timeout=HANG_SECONDS)


async def test_rungs_shows_who_stands_where_at_the_end(
    halved: Experiment, commands: Commands, client: AsyncClient
) -> None:
    document = (await commands.rungs(halved.id, as_json=True)).document
    bottom, top = document["rungs"]
    lengths = {job.id: job.position for job in await client.jobs(halved.id)}
    values = {job: (await client.curve(halved.id, job))[1].value for job in lengths}
    assert {one["job"]: one["value"] for one in bottom["standings"]} == values
    assert [one["value"] for one in bottom["standings"]] == sorted(values.values(), reverse=True)
    went_on = {job for job, length in lengths.items() if length == 5}
    assert {one["job"] for one in bottom["standings"] if one["promoted"]} == went_on == set(top["awaited"])
    assert (bottom["cut_off"], bottom["best"]) == (min(values[job] for job in went_on), max(values.values()))
    assert (bottom["reported"], bottom["width"], bottom["promoted"], bottom["awaited"]) == (6, 6, len(went_on), [])
    assert (top["reported"], top["width"], top["cut_off"], top["best"]) == (0, None, None, None)
    assert document["decisions_equal"] is True


async def test_rungs_at_an_event_shows_what_the_policy_knew_there(halved: Experiment, commands: Commands) -> None:
    events = (await commands.events(halved.id, as_json=True)).document["events"]
    seen = []
    for event in events:
        if "decided" in event["text"]:
            for at in (event["event"] - 1, event["event"]):
                (bottom, _) = (await commands.rungs(halved.id, str(at), as_json=True)).document["rungs"]
                seen.append(bottom["reported"])
    assert sorted(set(seen)) == list(range(7)), seen
    assert seen == sorted(seen)
    late = await commands.rungs(halved.id, "99999")
    assert "the journal ends at event " in late.err
    none = await commands.rungs(halved.id, "1")
    assert (none.out, none.err) == ("", f"{halved.id}: after event 1 no job is on a rung yet\n")


async def test_rungs_is_a_table_for_people(halved: Experiment, commands: Commands) -> None:
    said = await commands.rungs(halved.id)
    head, _, columns, top, bottom = said.out.splitlines()
    assert head.endswith(f": {POLICY.split(chr(39))[1].replace('Arrival', 'Halves')}")
    assert columns.split() == ["rung", "position", "reported", "awaited", "promoted", "cut-off", "best", "job"]
    assert top.split()[:3] == ["1", "5", "0"]
    assert bottom.split()[:6] == ["0", "2", "6", "of", "6", "0"]
    long = (await commands.rungs(halved.id, jobs=True)).out.splitlines()
    assert long[1 : len(said.out.splitlines())] == said.out.splitlines()[1:]  # The journal may have grown.
    assert sum(line.endswith("promoted") for line in long[5:]) == int(bottom.split()[6])
    assert any(line.startswith("  awaited: ") for line in long)


async def test_rungs_of_a_policy_without_any_says_so(raced: Experiment, commands: Commands) -> None:
    said = await commands.rungs(raced.id)
    assert said.out == ""
    assert said.err.endswith(f"Arrival has no rungs; `hopyard jobs {raced.id}` shows where its jobs are\n")
    assert (await commands.rungs(raced.id, as_json=True)).document["rungs"] is None


async def test_rungs_says_what_a_policy_raised_and_that_it_is_another_one(
    halved: Experiment, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Halves, "_ordered", lambda policy: sorted(policy.reported, key=policy.reported.__getitem__))
    said = await commands.rungs(halved.id, as_json=True)
    assert said.err.startswith(
        "the policy decides differently than recorded, so this state may differ from the recorded one: event "
    )
    assert said.document["decisions_equal"] is False
    monkeypatch.undo()
    monkeypatch.setattr(Halves, "rungs", lambda policy, cluster: cluster.create_job())
    with pytest.raises(InvalidInput, match="Halves: rungs must not issue commands, found CreateJob"):
        await commands.rungs(halved.id)
    monkeypatch.setattr(Halves, "rungs", lambda policy, cluster: 1 / 0)
    with pytest.raises(InvalidInput, match="Halves on rungs: ZeroDivisionError"):
        await commands.rungs(halved.id)


@together
async def shared(client: AsyncClient, tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """An ended experiment whose trials share the common parts of their training."""
    created = await client.create(
        experiment(tmp_path_factory.mktemp("shared"), jobs=3, length=6, more="policy: stage_tree")
    )
    return await client.wait(created.id, timeout=HANG_SECONDS)


async def test_tree_shows_what_trials_have_in_common(
    shared: Experiment, commands: Commands, client: AsyncClient, tmp_path: Path
) -> None:
    document = (await commands.tree(shared.id, as_json=True)).document
    assert (document["policy"], document["unit"], document["decisions_equal"]) == ("stage_tree", "epochs", True)
    stages = document["stages"]
    trained = sum(stage["end"] - stage["start"] for stage in stages)
    assert {stage["state"] for stage in stages} == {"done"}
    assert document["totals"]["done"] == document["totals"]["unique"] == trained
    assert sorted(job for stage in stages for job in stage["ends"]) == ["1", "2", "3"]
    assert {stage["by"] for stage in stages} <= {job.id for job in await client.jobs(shared.id)}
    # The store may still send messages.
    said = (await commands.tree(shared.id, str(document["event"]))).out.splitlines()
    assert said[0].startswith(f"after event {document['event']},")
    assert len(said) == 4 + len(stages)
    drawn = tmp_path / "tree.svg"
    assert (await commands.tree(shared.id, to=drawn)).out == f"{drawn}\n"
    assert "<svg" in drawn.read_text()
    with pytest.raises(NotFound, match=f"experiment {shared.id} has no job '9'"):
        await commands.tree(shared.id, job="9")


async def test_tree_at_an_event_shows_what_trained_then(shared: Experiment, commands: Commands) -> None:
    events = (await commands.events(shared.id, as_json=True)).document["events"]
    up = next(event["event"] for event in events if " is up" in event["text"])
    stages = (await commands.tree(shared.id, str(up), as_json=True)).document["stages"]
    assert any(stage["state"] == "running" and stage["slot"] for stage in stages)
    none = await commands.tree(shared.id, "1")
    assert (none.out, none.err) == ("", f"{shared.id}: after event 1 it has no trials yet\n")


async def test_tree_of_a_policy_that_shares_nothing_says_so(raced: Experiment, commands: Commands) -> None:
    said = await commands.tree(raced.id)
    assert said.out == ""
    assert "Arrival trains every trial for itself, so there is no tree" in said.err
    assert (await commands.tree(raced.id, as_json=True)).document["stages"] is None


async def test_the_command_line_finds_the_commands(
    raced: Experiment, address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async def hopyard(*arguments: str) -> tuple[int | None, str, str]:
        script = "import sys; from hopyard.cli.main import main; main(sys.argv[1:])"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            script,
            *arguments,
            cwd=Path(__file__).parents[3],
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    code, out, _ = await hopyard("replay", raced.id, "--server", address, "--json")
    assert (code, json.loads(out)["decisions_equal"]) == (0, True)
    code, out, _ = await hopyard("events", raced.id, "2", "--server", address)
    assert code == 0
    assert "run 1 of job 2 is up" in out
    code, out, _ = await hopyard("rungs", raced.id, "--server", address, "--json")
    assert (code, json.loads(out)["rungs"]) == (0, None)
    for command, option in (("replay", "--until"), ("rungs", "--at"), ("tree", "--at")):
        capfd.readouterr()
        assert await asyncio.to_thread(run, [command, option, "soon"]) == 2
        assert f"{option}: found 'soon', allowed are an event's number" in capfd.readouterr().err
