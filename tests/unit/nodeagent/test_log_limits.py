"""Limits of logs: what is cut out of a log, what is shown instead, and how the limits of an experiment are shared by its logs."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from hopyard._runtime.job_log import LOG_POSITION, LogPosition
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.runs.logs import cut, log_reader
from hopyard_nodeagent.runs.logs.cut import Cut, cut_of, keep_within, kept_bytes, plan_cut
from hopyard_nodeagent.runs.logs.limits import LogLimiter, level_of
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.quick

LIMIT = 64 * 1024
SETTING = "logs.per_job is 64.0 KiB"


def lines(first: int, last: int) -> bytes:
    return b"".join(b"line %07d\n" % number for number in range(first, last))


async def shown(log: Path, offset: int = 0) -> tuple[bytes, int]:
    """What a reader of the log gets, and the offset at which it reads on."""
    text, after = b"", offset
    async for at, data in log_reader.stream(log, offset, lambda: False):
        text, after = text + data, at + len(data)
    return text, after


@pytest.mark.parametrize(
    ("size", "earlier", "read", "expected"),
    [
        (LIMIT, None, None, None),
        (LIMIT + 1, None, None, (8192, LIMIT + 1 - 32768)),
        (10 * LIMIT, None, None, (8192, 10 * LIMIT - 32768)),
        # An eighth and a half are kept, so the next cut is due after three eighths more.
        (10 * LIMIT + 24000, Cut(8192, 10 * LIMIT - 32768), None, None),
        (10 * LIMIT + 25000, Cut(8192, 10 * LIMIT - 32768), None, (8192, 10 * LIMIT + 25000 - 32768)),
        # What a process has not read yet is kept.
        (10 * LIMIT, None, 100_000, (8192, 100_000)),
        (10 * LIMIT, None, 9000, None),
    ],
)
def test_the_beginning_and_the_newest_part_are_kept(
    size: int, earlier: Cut | None, read: int | None, expected: tuple[int, int] | None
) -> None:
    planned = plan_cut(size, earlier, LIMIT, read)
    assert (None if planned is None else (planned.begin, planned.end)) == expected


@pytest.mark.parametrize("holes", [True, False])
async def test_a_log_above_its_limit_loses_its_middle_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holes: bool
) -> None:
    if not holes:
        monkeypatch.setattr(cut, "punch_hole", lambda file, begin, end: False)
    log = tmp_path / "1.log"
    whole = lines(0, 100_000)
    log.write_bytes(whole)
    with log.open("ab") as writer:  # as a process does that goes on
        assert keep_within(log, LIMIT, setting=SETTING)
        writer.write(b"afterwards\n")
    text, after = await shown(log)
    first, note, rest = text.partition(b"\n[hopyard: 1.2 MiB of output were cut out here: logs.per_job is 64.0 KiB]\n")
    assert note
    assert whole.startswith(first)
    assert first.endswith(b"\n")
    assert rest.endswith(b"line 0099999\nafterwards\n")
    assert rest.startswith(b"line ")
    assert len(first) + len(rest) == kept_bytes(log) <= LIMIT * 5 // 8 + 11
    assert after == log.stat().st_size == len(whole) + 11
    # The disk holds what is kept, and the blocks at its edges.
    assert log.stat().st_blocks * 512 < 2 * LIMIT
    assert note.strip() in log.read_bytes()


async def test_a_reader_before_in_and_behind_the_cut_reads_on(tmp_path: Path) -> None:
    log = tmp_path / "1.log"
    log.write_bytes(lines(0, 100_000))
    keep_within(log, LIMIT, setting=SETTING)
    made = cut_of(log)
    assert made is not None
    inside, after = await shown(log, made.begin + 500_000)
    assert inside.decode().startswith(made.line)
    assert after == log.stat().st_size
    assert await shown(log, made.end) == (inside.removeprefix(made.line.encode()), after)
    assert await shown(log, -13) == (b"line 0099999\n", after)
    assert log_reader.last_lines(log).endswith("line 0099999")


async def test_later_output_moves_the_cut(tmp_path: Path) -> None:
    log = tmp_path / "1.log"
    log.write_bytes(lines(0, 20_000))
    assert keep_within(log, LIMIT, setting=SETTING)
    assert not keep_within(log, LIMIT, setting=SETTING)
    with log.open("ab") as writer:
        writer.write(lines(20_000, 40_000))
    assert keep_within(log, LIMIT, setting=SETTING)
    text, _ = await shown(log)
    assert text.count(b"[hopyard:") == 1
    assert text.endswith(b"line 0039999\n")
    assert kept_bytes(log) <= LIMIT


def test_a_small_or_missing_log_is_left_alone(tmp_path: Path) -> None:
    assert not keep_within(tmp_path / "none.log", LIMIT, setting=SETTING)
    (log := tmp_path / "1.log").write_bytes(b"x" * LIMIT)
    assert not keep_within(log, LIMIT, setting=SETTING)
    assert cut_of(log) is None
    (tmp_path / "1.log.cut").write_text("{")
    assert cut_of(log) is None


@pytest.mark.parametrize(
    ("sizes", "limit", "expected"),
    [
        ([10, 20], 10**6, 10**6),
        ([100_000, 300_000, 500_000], 600_000, 250_000),
        ([100_000, 300_000, 500_000], 300_000, 100_000),
        ([100_000] * 10, 100_000, LIMIT),
    ],
)
def test_the_largest_logs_are_cut_first(sizes: list[int], limit: int, expected: int) -> None:
    assert level_of(sizes, limit) == expected


def test_all_logs_of_an_experiment_keep_within_its_limit(tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "e1"
    folder.mkdir(parents=True)
    (small := folder / "1.log").write_bytes(b"x" * 50_000)
    for job in "23":
        (folder / f"{job}.log").write_bytes(lines(0, 30_000))
    limiter = LogLimiter(tmp_path)
    program = wire.RunProgram(log_bytes_per_experiment=300_000)
    with limiter.limited(folder / "2.log", program, tmp_path / LOG_POSITION):
        limiter.check(everything=False)
        assert cut_of(folder / "2.log") is None
    limiter.check(everything=True)  # The run has ended, and the sum is still due.
    assert cut_of(small) is None
    assert sum(kept_bytes(log) for log in folder.glob("*.log")) <= 300_000
    assert "logs.per_experiment is 293.0 KiB" in (folder / "3.log").read_bytes().decode(errors="replace")


@pytest.mark.parametrize(
    "note",
    [
        '{"begin": -4, "end": 100000, "line": ""}',
        '{"begin": 9, "end": 3, "line": ""}',
        '{"begin": Infinity, "end": 3, "line": ""}',
        '{"begin": 0, "end": 1000000000000000000000000000000, "line": ""}',
        "[" * 100_000,
        None,  # a folder
    ],
)
def test_a_damaged_note_of_a_cut_stops_neither_the_reader_nor_the_limits(tmp_path: Path, note: str | None) -> None:
    folder = tmp_path / "jobs" / "e1"
    folder.mkdir(parents=True)
    damaged, other = folder / "1.log", folder / "2.log"
    for log in (damaged, other):
        log.write_bytes(lines(0, 20_000))
    place = folder / "1.log.cut"
    place.mkdir() if note is None else place.write_text(note)
    assert cut_of(damaged) is None
    assert kept_bytes(damaged) == damaged.stat().st_size
    limiter = LogLimiter(tmp_path)
    program = wire.RunProgram(log_bytes_per_experiment=2 * LIMIT)
    with limiter.limited(other, program, tmp_path / LOG_POSITION):
        limiter.check(everything=True)
    assert kept_bytes(other) <= LIMIT


def test_what_a_log_program_printed_is_cut_only_after_it_was_read(tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "e1"
    folder.mkdir(parents=True)
    log = folder / "1.log"
    program = wire.RunProgram(log=wire.LogProgram(metric="acc"), log_bytes_per_job=LIMIT)
    limiter = LogLimiter(tmp_path)
    with limiter.limited(log, program, tmp_path / LOG_POSITION):
        log.write_bytes(lines(0, 20_000))
        limiter.check(everything=False)
        assert cut_of(log) is None
        position = LogPosition(tmp_path / LOG_POSITION, 0)
        position.advance(100)
        position.advance(130_000)
        limiter.check(everything=False)
        made = cut_of(log)
        assert made is not None
        assert made.end == 130_000
    made = cut_of(log)
    assert made is not None
    assert made.end > 200_000


def test_the_end_of_a_run_waits_for_a_check_that_cuts_the_same_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "1.log"
    program = wire.RunProgram(log=wire.LogProgram(metric="acc"), log_bytes_per_job=LIMIT)
    limiter = LogLimiter(tmp_path)
    noting, ended = threading.Event(), threading.Event()
    replace = Path.replace

    def replace_later(partial: Path, note: Path) -> Path:
        if not noting.is_set():
            noting.set()
            ended.wait(0.1)
        return replace(partial, note)

    monkeypatch.setattr(Path, "replace", replace_later)
    check = threading.Thread(target=limiter.check, kwargs={"everything": False})
    position = LogPosition(tmp_path / LOG_POSITION, 0)
    with limiter.limited(log, program, tmp_path / LOG_POSITION):
        log.write_bytes(lines(0, 20_000))
        position.advance(130_000)
        noting.clear()
        check.start()
        assert noting.wait(HANG_SECONDS)
    ended.set()
    check.join()
    assert kept_bytes(log) <= LIMIT
    assert caplog.messages == []


def test_logs_of_no_job_are_limited_too(tmp_path: Path) -> None:
    (tmp_path / "runners").mkdir()
    for log in (tmp_path / "runners" / "a.log", tmp_path / "predictors.log"):
        with log.open("wb") as file:
            os.truncate(file.fileno(), 11 * 2**20)
    LogLimiter(tmp_path).check(everything=True)
    assert cut_of(tmp_path / "runners" / "a.log") is not None
    assert cut_of(tmp_path / "predictors.log") is not None
