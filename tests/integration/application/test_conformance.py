"""Tests of the conformance program: it passes clients that follow the protocol, and names the rule that another client breaks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hopyard._runtime.application.conformance import CASES, CaseResult, ClientUnderTest, check
from tests.timing import HANG_SECONDS, scaled

pytestmark = pytest.mark.timeout(300)

FOLDER = Path(__file__).parent

STRETCH = scaled(2.5)
"""Stretches the shortest interval of a case, after which a client ends itself, to five seconds: enough for a busy host."""

MISTAKES = {
    "no token": "attach",
    "no hello": "attach",
    "negative seconds": "series",
    "whole numbers refused": "hyperparameters",
    "nan left out": "nan",
    "never waits": "waiting",
    "gap after waiting": "waiting",
    "suspend by position": "suspend-running",
    "loaded is taken": "nothing-left",
    "trains on": "nothing-left",
    "snapshot elsewhere": "snapshots",
    "any decision": "late-decision",
    "allowed sinks": "late-decision",
    "until ignored": "until",
    "until unsaid": "until",
    "talks on": "until",
    "exits with 1": "until",
    "completes ignored": "completes",
    "amended late": "amend",
    "deaf while training": "amend-running",
    "parked for ever": "park",
    "saves when terminated": "terminate",
    "no end": "finished",
    "unknown refused": "unfamiliar",
    "no heartbeats": "heartbeats",
    "wrong hash": "snapshots",
    "wrong size": "snapshots",
    "every from 0": "snapshot-every",
    "suspend ignored": "suspend",
    "no snapshot": "suspend",
    "suspend taken back": "suspend-running",
    "state rounded": "resume",
    "state ignored": "resume",
    "nothing restated": "nothing-left",
    "old values": "fork",
    "blames the user": "snapshot-missing",
    "lost with 0": "snapshot-corrupt",
    "failed with 0": "bad-hyperparameters",
    "unverified": "snapshot-corrupt",
    "leaves a child": "kill",
    "agent ignored": "agent-gone",
    "silence ignored": "agent-silent",
    "refusal ignored": "refused",
    "hangs": "iteration-timeout",
    "bad values": "bad-hyperparameters",
}
"""The mistakes of the small client, and the case that detects each."""


def small(mistake: str = "", **environment: str) -> ClientUnderTest:
    given = {"MISTAKE": mistake, **environment}
    words = [f"{name}={value}" for name, value in given.items()]
    return ClientUnderTest(("env", *words, sys.executable, str(FOLDER / "small_client.py")), FOLDER)


def run(client: ClientUnderTest, *names: str, patience: float = HANG_SECONDS) -> dict[str, CaseResult]:
    return {result.name: result for result in check(client, names, patience=patience, jobs=8, stretch=STRETCH)}


def assert_ok(results: dict[str, CaseResult]) -> None:
    assert {name: (r.expected, r.seen, r.printed) for name, r in results.items() if r.outcome != "ok"} == {}


def test_a_client_made_from_the_page_passes(tmp_path: Path) -> None:
    assert_ok(run(small()))


def test_state_may_be_given_as_bytes() -> None:
    assert_ok(run(small(SAVES="bytes"), "snapshots", "resume", "snapshot-missing", "snapshot-corrupt"))


def test_hopyards_own_script_mode_passes(tmp_path: Path) -> None:
    # A killed program leaves its state file where it wrote it.
    assert_ok(run(ClientUnderTest(("env", f"TMPDIR={tmp_path}", sys.executable, "script_task.py"), FOLDER)))


def test_hopyards_own_runner_passes() -> None:
    assert_ok(run(ClientUnderTest((sys.executable, "-m", "hopyard._runtime.runner"), FOLDER, "trainer_task.py:Task")))


def found_in(mistake: str) -> dict[str, str]:
    """Return the outcomes other than "ok" of the case that detects `mistake` and of the cases that it depends on."""
    meant = CASES[MISTAKES[mistake]]
    results = check(small(mistake), (meant.name, *meant.needs), patience=scaled(20.0), jobs=2, stretch=scaled(1.5))
    return {result.name: result.outcome for result in results if result.outcome != "ok"}


@pytest.mark.nightly
def test_each_mistake_is_found_by_the_case_that_is_meant_for_it() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(MISTAKES, pool.map(found_in, MISTAKES), strict=True))
    wrong = {
        mistake: results
        for mistake, results in found.items()
        if [name for name, outcome in results.items() if outcome == "failed"] != [MISTAKES[mistake]]
    }
    assert wrong == {}
    assert set(MISTAKES.values()) == set(CASES), "each case is seen to find something"


def test_each_case_leads_to_a_chapter_of_the_page() -> None:
    page = (FOLDER.parents[2] / "docs" / "protocol.md").read_text()
    headings = [line.lstrip("# ").lower() for line in page.splitlines() if line.startswith("## ")]
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading).replace(" ", "-") for heading in headings}
    assert {case.section for case in CASES.values()} - anchors == set()


def test_cases_come_behind_those_that_they_need() -> None:
    names = list(CASES)
    assert [case.name for case in CASES.values() if not set(case.needs) <= set(names[: names.index(case.name)])] == []


def hopyard(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hopyard.cli.main", "conformance", "app", *arguments]
    return subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)


def test_a_failure_says_what_was_expected_what_was_seen_and_where_to_read() -> None:
    command = ("--", "env", "MISTAKE=negative seconds", sys.executable, "small_client.py", "--lr={lr}")
    done = hopyard("--case", "attach", "--case", "series", *command)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (1, "")
    assert lines[0].split(None, 2) == ["ok", "attach", CASES["attach"].title]
    assert lines[1].split(None, 2) == ["FAILED", "series", CASES["series"].title]
    assert "         expected: seconds that are 0 or more" in lines
    assert "         seen:     report 1 with -1.0 seconds" in lines
    assert "         read:     docs/protocol.md#reports" in lines
    assert any(" s <- report { position: 1 " in line for line in lines)
    assert lines[-1] == "2 cases: 1 ok, 1 failed"


def test_a_call_that_is_refused_says_what_it_has_shown() -> None:
    (attached,) = run(small("no bearer"), "attach").values()
    assert attached.seen == "the token alone, without 'Bearer ' before it"


def test_what_needs_a_case_that_failed_is_not_run() -> None:
    done = hopyard("--json", "--patience", "20", "--", sys.executable, "-c", "print('no idea')")
    told = json.loads(done.stdout)
    assert (done.returncode, told["passed"]) == (1, False)
    first, *others = told["cases"]
    assert (first["name"], first["outcome"], first["printed"]) == ("attach", "failed", "no idea")
    assert first["seen"] == "it did not attach, and it ended with exit code 0"
    assert {(other["outcome"], other["seen"]) for other in others} >= {("not run", "needs attach")}
    assert {other["outcome"] for other in others} == {"not run"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--case", "nonsense", "--", "true"), "error: there is no case 'nonsense'; there are: attach, series, "),
        (("--", "./nothing"), "error: ./nothing cannot be started in "),
        (("--", "{momentum}"), "error: command: the program itself needs {momentum}, which this job does not have"),
    ],
)
def test_wrong_use_is_told(arguments: tuple[str, ...], says: str) -> None:
    done = hopyard(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(says), done.stderr
