"""Tests of parts of the runner: the outbox, the watch of the lease, the loading of trainers, and the reasons of failures."""

from __future__ import annotations

import errno
import json
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hopyard._runtime.runner.failures import ended_by
from hopyard._runtime.runner.outbox import Outbox
from hopyard._runtime.runner.program import ProgramError, ProgramLoader
from hopyard._runtime.runner.training_run import TrainingRun
from hopyard._runtime.runner.watchdog import LeaseWatch
from hopyard._runtime.snapshot_file import SnapshotCorruptError, SnapshotRefusedError
from hopyard.trainer import Trainer, TrainerPhase, UserCodeError
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2

pytestmark = pytest.mark.quick

TRAINER = """
from hopyard import Trainer
from {helper} import VALUE

class Net(Trainer):
    value = VALUE
    def setup(self, hyperparameters, changed): ...
    def train(self): return {{}}
    def save(self, directory): ...
    def load(self, directory): ...
"""


def message(number: int) -> wire.AttachRequest:
    return wire.AttachRequest(hello=wire.AttachHello(pid=number))


def test_the_outbox_keeps_order_and_ends_after_it_is_closed() -> None:
    outbox = Outbox()
    for number in range(3):
        outbox.send(message(number))
    outbox.close()
    assert [request.hello.pid for request in outbox.requests()] == [0, 1, 2]


def test_the_outbox_is_never_silent() -> None:
    outbox = Outbox(heartbeat_seconds=0.0)
    requests = outbox.requests()
    assert next(requests).HasField("heartbeat")
    outbox.send(message(1))
    assert next(requests).hello.pid == 1


def test_what_was_said_is_out_when_the_next_message_is_asked_for() -> None:
    outbox = Outbox(heartbeat_seconds=0.0)
    requests = outbox.requests()
    assert outbox.wait_until_sent(0.0)
    outbox.send(message(1))
    assert not outbox.wait_until_sent(0.0)
    assert next(requests).hello.pid == 1
    assert not outbox.wait_until_sent(0.0), "whoever took it may not have sent it"
    assert next(requests).HasField("heartbeat")
    assert outbox.wait_until_sent(0.0)
    outbox.send(message(2))
    outbox.close()
    assert outbox.wait_until_sent(0.0), "nobody waits for a stream that ends"


class Watched(Outbox):
    """An outbox that records, when a run waits until its messages are sent, whether it has trained already."""

    def __init__(self, trained: Path) -> None:
        super().__init__()
        self.trained = trained
        self.waits: list[bool] = []

    def wait_until_sent(self, seconds: float) -> bool:
        self.waits.append(self.trained.exists())
        return True


@pytest.mark.parametrize(("limit", "waits"), [(9.0, [False]), (0.0, [])])
def test_a_run_with_a_limit_is_heard_to_train_before_it_does(tmp_path: Path, limit: float, waits: list[bool]) -> None:
    name = f"heard_{limit:.0f}"  # a new name, because Python loads a module once
    (tmp_path / f"{name}.py").write_text(
        f"""
from pathlib import Path
from hopyard import Trainer

class Net(Trainer):
    def setup(self, hyperparameters, changed): ...
    def train(self):
        Path({str(tmp_path / "trained")!r}).touch()
        raise ValueError("enough")
    def save(self, directory): ...
    def load(self, directory): ...
"""
    )
    program = resource_manager_pb2.RunProgram(trainer=f"{name}.py:Net")
    given = resource_manager_pb2.StartRun(program=program, until=2, allowed=2, iteration_timeout=limit)
    folder = str(tmp_path)
    start = wire.ApplicationStart(start=given, code_folder=folder, scratch_folder=folder, working_folder=folder)
    outbox = Watched(tmp_path / "trained")
    assert "enough" in TrainingRun(start, outbox).execute(ProgramLoader()).message
    assert outbox.trained.exists()
    assert outbox.waits == waits


def test_reports_that_wait_go_out_together_and_nothing_overtakes() -> None:
    outbox = Outbox()
    saved = wire.AttachRequest(snapshot_taken=resource_manager_pb2.SnapshotTaken())
    for number in range(1, 4):
        outbox.send(common_pb2.Report(position=number))
    outbox.send(saved)
    outbox.send(common_pb2.Report(position=4))
    outbox.close()
    together, taken, alone = outbox.requests()
    assert [report.position for report in together.reports.reports] == [1, 2, 3]
    assert taken == saved
    assert alone.report.position == 4


def test_reports_that_nobody_waits_for_go_out_in_company() -> None:
    now = 0.0
    outbox = Outbox(company_seconds=60.0, heartbeat_seconds=3600.0, clock=lambda: now)
    requests = outbox.requests()

    def patient(*positions: int) -> None:
        for position in positions:
            outbox.send(common_pb2.Report(position=position), patient=True)

    patient(1)
    assert next(requests).report.position == 1, "the first one has nothing to wait for"
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(next, requests)
        patient(2, 3)
        outbox.send(common_pb2.Report(position=4))
        assert [r.position for r in reading.result().reports.reports] == [2, 3, 4], (
            "one that is waited for takes all along"
        )
    patient(5, 6)
    now = 60.0
    assert len(next(requests).reports.reports) == 2, "nor do they wait for ever"
    patient(7)
    outbox.close()
    assert [r.report.position for r in requests] == [7]


@pytest.mark.parametrize(("count", "size"), [(1_200, 10), (5, 400_000)])
def test_messages_of_reports_are_bounded(count: int, size: int) -> None:
    outbox = Outbox()
    for number in range(count):
        outbox.send(common_pb2.Report(position=number, part="x" * size))
    outbox.close()
    requests = list(outbox.requests())
    assert all(len(r.reports.reports) <= 500 and r.ByteSize() <= 1024 * 1024 + 100 for r in requests)
    positions = [p.position for r in requests for p in (r.reports.reports if r.HasField("reports") else [r.report])]
    assert positions == list(range(count))
    assert len(requests) == 3


def test_the_watch_expires_only_when_it_could_hear() -> None:
    watch = LeaseWatch(0.0)
    assert not watch.expired(1e9), "no lease before the first run"
    watch = LeaseWatch(0.0)
    watch.renew(8.0, 0.0)
    for tick in range(1, 9):
        assert not watch.expired(float(tick))
    assert watch.expired(9.0)
    watch = LeaseWatch(0.0)
    watch.renew(8.0, 0.0)
    assert not watch.expired(100.0), "this process was stopped itself: a full lease again"
    for tick in range(101, 109):
        assert not watch.expired(float(tick))
    assert watch.expired(109.0)
    watch.heard(109.0)
    assert not watch.expired(110.0)


@pytest.fixture
def clean_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def code(folder: Path, value: int) -> Path:
    (folder / "nets").mkdir(parents=True)
    (folder / "nets" / "__init__.py").touch()
    (folder / "nets" / "deep.py").write_text(TRAINER.format(helper=".helper"))
    (folder / "nets" / "helper.py").write_text(f"VALUE = {value}\n")
    (folder / "flat_net.py").write_text(TRAINER.format(helper="flat_helper"))
    (folder / "flat_helper.py").write_text(f"VALUE = {value}\n")
    (folder / "src").mkdir()
    (folder / "src" / "inner_net.py").write_text(TRAINER.format(helper="inner_helper"))
    (folder / "src" / "inner_helper.py").write_text(f"VALUE = {value}\n")
    return folder


@pytest.mark.merge
@pytest.mark.usefixtures("clean_imports")
@pytest.mark.parametrize(
    "name", ["flat_net.py:Net", "nets/deep.py:Net", "src/inner_net.py:Net", "flat_net:Net", "nets.deep:Net"]
)
def test_a_class_is_kept_for_the_same_code_and_loaded_anew_for_other_code(tmp_path: Path, name: str) -> None:
    loader = ProgramLoader()
    first, second = code(tmp_path / "1", 1), code(tmp_path / "2", 2)
    loaded = loader.load(first, name)
    assert issubclass(loaded, Trainer)
    assert loader.load(first, name) is loaded
    assert Path.cwd() == first
    other = loader.load(second, name)
    assert (vars(loaded)["value"], vars(other)["value"]) == (1, 2)


@pytest.mark.usefixtures("clean_imports")
@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("net.py", "", "a trainer is named FILE.py:CLASS"),
        ("net.py:", "", "a trainer is named FILE.py:CLASS"),
        ("my-net:Net", "", "a trainer is named FILE.py:CLASS or PACKAGE.MODULE:CLASS"),
        (f"{json.__name__}.py:Net", "", "has the name of a module that is loaded already"),
        ("net.py:Net", "import sys; sys.exit(4)", "SystemExit: 4"),
        ("net.py:Net", "Net = 3", "Net is 3"),
        ("net.py:Net", "(", "SyntaxError"),
    ],
)
def test_a_trainer_that_cannot_be_loaded_says_why(tmp_path: Path, name: str, content: str, reason: str) -> None:
    (tmp_path / name.partition(":")[0]).write_text(content)
    with pytest.raises(ProgramError, match=f"^import of {name}: .*{reason}"):
        ProgramLoader().load(tmp_path, name)


@pytest.mark.usefixtures("clean_imports")
def test_a_module_that_is_not_in_the_code_is_an_installed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code(tmp_path / "installed", 1)
    monkeypatch.syspath_prepend(tmp_path / "installed")
    (tmp_path / "empty").mkdir()
    assert issubclass(ProgramLoader().load(tmp_path / "empty", "nets.deep:Net"), Trainer)


@pytest.mark.usefixtures("clean_imports")
def test_a_module_that_is_nowhere_says_where_it_was_looked_for(tmp_path: Path) -> None:
    folder = code(tmp_path / "code", 1)
    (folder / "needy.py").write_text("import no_such_package")
    with pytest.raises(ProgramError, match=r"No module named 'nets.deeper' .*flat_helper.py.* nor installed for"):
        ProgramLoader().load(folder, "nets.deeper:Net")
    with pytest.raises(ProgramError, match=r"No module named 'no_such_package'$"):
        ProgramLoader().load(folder, "needy:Net")


def user_error(phase: TrainerPhase, cause: BaseException | None = None) -> UserCodeError:
    error = UserCodeError(trainer="Net", phase=phase, position=5, reason="ValueError: no", traceback_text="a\nb\n")
    error.__cause__ = cause
    return error


FAILED, LOST = common_pb2.RUN_END_REASON_FAILED, common_pb2.RUN_END_REASON_LOST


@pytest.mark.parametrize(
    ("error", "reason", "message", "broken"),
    [
        (user_error(TrainerPhase.TRAIN), FAILED, "train at position 5: ValueError: no\na\nb", False),
        (user_error(TrainerPhase.SAVE, OSError(errno.ENOSPC, "full")), LOST, "save at position 5", False),
        (
            user_error(TrainerPhase.TRAIN, OSError(errno.ENOSPC, "full")),
            LOST,
            "train at position 5: ValueError: no (full)",
            False,
        ),
        (
            user_error(TrainerPhase.TRAIN, OSError(errno.EMFILE, "Too many open files")),
            LOST,
            "train at position 5",
            True,
        ),
        (user_error(TrainerPhase.LOAD, OSError(errno.ENOMEM, "No memory")), LOST, "load at position 5", True),
        (user_error(TrainerPhase.TRAIN, OSError(errno.EROFS, "fixed")), FAILED, "train at position 5", False),
        (user_error(TrainerPhase.TRAIN, OSError(errno.ENOENT, "gone")), FAILED, "train at position 5", False),
        (ProgramError("net.py:Net", "no"), FAILED, "import of net.py:Net: no", True),
        (SnapshotRefusedError("a link"), FAILED, "save at position 4: a link", False),
        (SnapshotCorruptError("a bit"), LOST, "load at position 4: a bit", False),
        (OSError(errno.ENOSPC, "full"), LOST, "at position 4: OSError", False),
        (RuntimeError("oh"), LOST, "a bug in the runner at position 4: RuntimeError('oh')", True),
    ],
)
def test_failures_are_classed(
    error: Exception, reason: common_pb2.RunEndReason.ValueType, message: str, broken: bool
) -> None:
    ended, found_broken = ended_by(error, 4)
    assert (ended.reason, found_broken) == (reason, broken)
    user = common_pb2.FAILURE_CLASS_USER_CODE
    assert ended.failure == (user if reason == FAILED else common_pb2.FAILURE_CLASS_INFRASTRUCTURE)
    assert ended.message.startswith(message)


@pytest.mark.parametrize(
    ("cause", "unable"),
    [(None, True), (ModuleNotFoundError("no"), True), (SyntaxError("no"), True), (OSError("no"), False)],
)
def test_a_trainer_that_would_not_load_for_any_job_says_so(cause: Exception | None, unable: bool) -> None:
    error = ProgramError("net.py:Net", "no")
    error.__cause__ = cause
    assert ended_by(error, 0)[0].unable is unable
    assert not ended_by(user_error(TrainerPhase.TRAIN), 4)[0].unable


@pytest.mark.parametrize(
    ("cause", "permanent"),
    [
        (ModuleNotFoundError("no"), True),
        (ImportError("no"), True),
        (IndentationError("no"), True),
        (ValueError("no"), False),
        (None, False),
    ],
)
@pytest.mark.parametrize("phase", [TrainerPhase.SETUP, TrainerPhase.TRAIN, TrainerPhase.SAVE])
def test_an_import_or_syntax_error_of_user_code_is_permanent(
    phase: TrainerPhase, cause: Exception | None, permanent: bool
) -> None:
    ended, _ = ended_by(user_error(phase, cause), 4)
    assert (ended.reason, ended.permanent, ended.unable) == (FAILED, permanent, False)


def test_an_import_that_failed_for_lack_of_file_descriptors_is_not_permanent() -> None:
    cause = ImportError("no")
    cause.__cause__ = OSError(errno.EMFILE, "Too many open files")
    ended, broken = ended_by(user_error(TrainerPhase.SETUP, cause), 0)
    assert (ended.reason, ended.permanent, broken) == (LOST, False, True)


def test_a_save_that_finds_no_room_is_no_failure_of_the_code_whatever_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = RuntimeError("unexpected pos 576 vs 534")  # torch.save raises this on a full disk
    assert ended_by(user_error(TrainerPhase.SAVE, odd), 4, tmp_path)[0].reason == FAILED
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=4096))
    ended, _ = ended_by(user_error(TrainerPhase.SAVE, odd), 4, tmp_path)
    assert ended.reason == LOST
    assert f"no space left on the disk of {tmp_path}" in ended.message
    assert ended_by(user_error(TrainerPhase.TRAIN, odd), 4, tmp_path)[0].reason == FAILED
    odd.__context__ = OSError(errno.ENOSPC, "No space left on device")
    ended, _ = ended_by(user_error(TrainerPhase.SAVE, odd), 4)
    assert (ended.reason, "(No space left on device)" in ended.message) == (LOST, True)
