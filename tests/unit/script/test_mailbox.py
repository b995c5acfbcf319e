"""Tests of a script that exchanges messages with its runner by the mailbox: its reports, and when it waits."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hopyard._runtime.runner.command.progress_sources import Mailbox, Reported
from hopyard.policy.vocabulary import RunEndReason
from hopyard.script.mailbox import MailboxSession
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.quick

PATIENCE = HANG_SECONDS


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Mailbox]:
    """The runner's side of a mailbox."""
    box = Mailbox(tmp_path)
    box.open()
    yield box
    box.reports.close()


def session(folder: Path) -> MailboxSession:
    return MailboxSession(folder, began=time.monotonic())


def reported(box: Mailbox) -> list[int]:
    box.reports.read()
    return [json.loads(line)["position"] for line in iter(box.reports.line, None)]


def test_below_what_is_free_a_script_waits_for_nobody(box: Mailbox, tmp_path: Path) -> None:
    box.say(go=0, free=3)
    script = session(tmp_path)
    script.report(1, {"x": 1.0}, None)
    script.report(2, {"x": float("nan")}, None)
    assert reported(box) == [1, 2]
    assert box.pending == {"reports": (tmp_path / "reports").stat().st_size}


def test_at_what_is_not_free_it_waits_until_it_may_go_on(box: Mailbox, tmp_path: Path) -> None:
    script = session(tmp_path)
    thread = threading.Thread(target=script.report, args=(1, {"x": 1.0}, None))
    thread.start()
    box.say(go=0, free=1)
    while not reported(box):
        assert thread.is_alive()
    assert thread.is_alive()
    box.say(go=1, free=1)
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_with_a_checkpoint_it_waits_whatever_is_free(
    box: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "epoch1.pt").write_text("weights")
    (tmp_path / "last.pt").symlink_to("epoch1.pt")
    script = session(tmp_path)
    box.say(go=0, free=9)
    thread = threading.Thread(target=script.report, args=(1, {"x": 1.0}, Path("last.pt")))
    thread.start()
    heard = Reported()
    while (line := box.reports.line()) is None:
        assert thread.is_alive()
        box.reports.read()
    heard.take(line, 0, 0.0)
    assert heard.checkpoint == ("last.pt", str(tmp_path / "epoch1.pt"))
    assert thread.is_alive()
    box.say(go=1, free=9)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    script.report(2, {"x": 1.0}, None)
    box.reports.read()
    heard.take(box.reports.line() or "", 1, 0.0)
    assert heard.checkpoint is None


def test_a_script_whose_run_is_over_is_told_so_again_and_again(box: Mailbox, tmp_path: Path) -> None:
    box.say(go=0, free=0, leave=RunEndReason.TERMINATED)
    script = session(tmp_path)
    for _ in range(2):
        with pytest.raises(SystemExit) as over:
            script.report(1, {}, None)
        assert over.value.code == 0
    assert reported(box) == [1]


def test_one_process_speaks_for_a_run(tmp_path: Path) -> None:
    first = session(tmp_path)
    first.need_own_process()
    with pytest.raises(RuntimeError, match=f"process {os.getpid()} speaks for this run"):
        session(tmp_path)
