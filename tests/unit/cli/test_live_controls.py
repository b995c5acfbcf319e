"""Tests of the keys of the live view without a terminal: their bytes, and what they do."""

from __future__ import annotations

import pytest

from hopyard.cli.live.controls import Action, Command, Controls, Screen, SortOrder
from hopyard.cli.live.keys import KeyDecoder, SpecialKey
from hopyard.cli.live.log_tail import MOST_LINES, LogTail
from hopyard.client.types import ExperimentState, JobState, LogChunk
from tests.unit.cli.test_live import experiment, job

pytestmark = pytest.mark.quick

JOBS = [job("1"), job("2", JobState.HELD), job("3", JobState.PENDING), job("4", JobState.COMPLETED)]
RUNNING = experiment()


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"jq?", ["j", "q", "?"]),
        (b"\x1b[A\x1bOB\x1b[5~\x1b[6~", [SpecialKey.UP, SpecialKey.DOWN, SpecialKey.PAGE_UP, SpecialKey.PAGE_DOWN]),
        (b"\x1b[H\x1b[4~\r\n", [SpecialKey.HOME, SpecialKey.END, SpecialKey.ENTER, SpecialKey.ENTER]),
        (b"\x1b\x1b[A", [SpecialKey.ESCAPE, SpecialKey.UP]),
        (b"\x1bx\x0c", [SpecialKey.ESCAPE, "x", SpecialKey.REDRAW]),
        ("\x1b[15~\x1b[1;5C\x1bOPé\x01k".encode(), ["k"]),  # F5, Ctrl-Right, F1, é, Ctrl-A: unknown keys are ignored
    ],
)
def test_bytes_are_decoded_into_keys(data: bytes, keys: list[object]) -> None:
    whole = KeyDecoder()
    assert whole.feed(data) == keys
    assert not whole.pending
    # The same if the bytes arrive one by one.
    single = KeyDecoder()
    assert [key for byte in data for key in single.feed(bytes([byte]))] == keys


def test_an_escape_byte_that_nothing_follows_is_a_key() -> None:
    decoder = KeyDecoder()
    assert decoder.feed(b"\x1b") == []
    assert decoder.pending
    assert decoder.flush() == [SpecialKey.ESCAPE]
    assert decoder.feed(b"\x1b[") == []
    assert decoder.flush() == []
    assert decoder.feed(b"j") == ["j"]


def pressed(controls: Controls, *keys: SpecialKey | str) -> Command | None:
    command = None
    for key in keys:
        command = controls.press(key, JOBS, RUNNING)
    return command


def screen(controls: Controls) -> Screen:
    return controls.screen


def question(controls: Controls) -> str | None:
    return controls.question.text if controls.question is not None else None


def test_s_goes_through_all_orders() -> None:
    controls, found = Controls(), list[SortOrder]()
    for _ in SortOrder:
        found.append(controls.sort)
        pressed(controls, "s")
    assert found == [SortOrder.STATE, SortOrder.VALUE, SortOrder.TIME, SortOrder.JOB]
    assert controls.sort is SortOrder.STATE


@pytest.mark.parametrize(
    ("keys", "selected"),
    [
        ("j", "1"),
        ("k", "1"),
        ("jj", "2"),
        ("jjk", "1"),
        ("jkkk", "1"),
        ("G", "4"),
        ("Gjj", "4"),
        ("Gg", "1"),
        ([SpecialKey.DOWN, SpecialKey.PAGE_DOWN], "4"),
        ([SpecialKey.END, SpecialKey.UP], "3"),
        (["j", SpecialKey.ESCAPE], None),
    ],
)
def test_jobs_are_selected(keys: list[SpecialKey | str], selected: str | None) -> None:
    controls = Controls()
    pressed(controls, *keys)
    assert controls.selected == selected


def test_a_selected_job_stays_selected_when_the_order_changes_or_it_is_gone() -> None:
    controls = Controls()
    pressed(controls, "j", "j")
    controls.press("j", [JOBS[3], JOBS[1], JOBS[0]], RUNNING)
    assert controls.selected == "1"
    controls.press("j", [JOBS[3], JOBS[2]], RUNNING)
    assert controls.selected == "4"
    controls.press("j", [], RUNNING)
    assert controls.selected == "4"


@pytest.mark.parametrize("key", ["l", SpecialKey.ENTER])
@pytest.mark.parametrize("back", ["q", SpecialKey.ESCAPE])
def test_the_log_of_the_selected_job_opens_and_closes(key: SpecialKey | str, back: SpecialKey | str) -> None:
    controls = Controls()
    assert pressed(controls, key) is None
    assert controls.notice == "no job is selected: the arrow keys select one"
    assert pressed(controls, "j", key) == Command(Action.FOLLOW_LOG, "1")
    assert screen(controls) is Screen.LOG
    assert controls.log is not None
    assert pressed(controls, "p") is None
    assert pressed(controls, back) == Command(Action.CLOSE_LOG)
    assert screen(controls) is Screen.JOBS


def test_pausing_a_job_that_trains_asks_first() -> None:
    controls = Controls()
    assert pressed(controls, "j", "p") is None
    assert question(controls) is not None
    assert pressed(controls, "n") is None
    assert question(controls) is None
    assert pressed(controls, "p", "y") == Command(Action.PAUSE_JOB, "1")
    # A paused job is resumed, and a waiting one loses nothing.
    assert pressed(controls, "j", "p") == Command(Action.RESUME_JOB, "2")
    assert pressed(controls, "j", "p") == Command(Action.PAUSE_JOB, "3")
    assert pressed(controls, "j", "p") is None
    assert controls.notice == "job 4 has ended"


def test_the_experiment_is_paused_after_a_question_and_resumed_without() -> None:
    controls = Controls()
    assert pressed(controls, "P") is None
    assert pressed(controls, "y") == Command(Action.PAUSE)
    for state in (ExperimentState.PAUSED, ExperimentState.PAUSING):
        assert controls.press("P", JOBS, experiment(state=state)) == Command(Action.RESUME)
    assert controls.press("P", JOBS, experiment(state=ExperimentState.COMPLETED)) is None
    assert controls.notice == "the experiment has ended"
    assert controls.press("P", JOBS, None) is None


def test_q_leaves_an_experiment_of_another_cluster_at_once_and_asks_where_leaving_suspends() -> None:
    assert pressed(Controls(), "q") == Command(Action.LEAVE)
    owner = Controls(owns_cluster=True)
    assert pressed(owner, "q") is None
    assert "leave and suspend" in (question(owner) or "")
    assert pressed(owner, SpecialKey.ESCAPE) is None
    assert question(owner) is None
    assert pressed(owner, "q", "y") == Command(Action.LEAVE)


def test_the_help_closes_with_any_key_which_does_nothing_else() -> None:
    controls = Controls()
    pressed(controls, "?")
    assert screen(controls) is Screen.HELP
    assert pressed(controls, "q") is None
    assert screen(controls) is Screen.JOBS
    assert pressed(controls, "x", "\t") is None


def tail(text: str, node: str = "a") -> LogTail:
    log = LogTail("1")
    log.add(LogChunk(node, text.encode(), 0))
    return log


def test_a_log_shows_its_newest_lines_and_follows() -> None:
    log = tail("".join(f"epoch {n}\n" for n in range(10)) + "epo")
    assert log.window(20, 3) == ["epoch 8", "epoch 9", "epo"]
    log.add(LogChunk("a", b"ch 10\n", 0))
    assert log.window(20, 2) == ["epoch 9", "epoch 10"]
    log.scroll(4)
    assert log.window(20, 2) == ["epoch 5", "epoch 6"]
    log.add(LogChunk("a", b"epoch 11\n", 0))
    assert log.window(20, 2) == ["epoch 5", "epoch 6"]  # what is read stays in place
    log.scroll(1000)
    assert log.window(20, 2) == ["epoch 0", "epoch 1"]
    log.scroll(-1000)
    assert log.window(20, 1) == ["epoch 11"]


def test_a_log_is_bounded_and_cannot_control_the_terminal() -> None:
    log = tail("x\n" * (MOST_LINES + 10))
    assert len(log.lines()) == MOST_LINES
    assert tail("\x1b[31mred\x1b[0m\x07\tend\n").lines() == ["red\\x07 end"]
    assert tail("10%\r50%\r100%\n").lines() == ["100%"]
    assert tail("a" * 25 + "\n").window(10, 5) == ["a" * 10, "a" * 10, "a" * 5]
    assert tail("日本語日本語\n").window(10, 5) == ["日本語日本", "語"]
    halves = tail("")
    halves.add(LogChunk("a", "é".encode()[:1], 0))
    halves.add(LogChunk("a", "é\n".encode()[1:], 1))
    assert halves.lines() == ["é"]


def test_a_log_says_on_which_node_its_lines_were_written() -> None:
    log = tail("one")
    log.add(LogChunk("b", b"two\n", 0))
    assert log.lines() == ["one", "--- on b", "two"]
