from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hopyard.local import fit, verify_resume
from hopyard.trainer import IterationReport, SnapshotStateError, UserCodeError
from tests.timing import HANG_SECONDS
from tests.unit.trainer.trainers import Clock, Parabola

pytestmark = pytest.mark.quick


class FiveEach(Parabola):
    unit_per_iteration = 5

    def train(self) -> dict[str, float]:
        if self.position == 10:
            self.finish()
        return super().train()


def test_trains_to_a_position_and_reports_on_the_way() -> None:
    seen: list[IterationReport] = []
    reports = fit(Parabola, {"lr": 0.1}, until=3, on_report=seen.append, clock=Clock())
    assert seen == reports
    assert [report.position for report in reports] == [1, 2, 3]
    assert [report.in_force for report in reports] == [{"lr": 0.1}, None, None]


def test_continues_from_the_newest_snapshot(tmp_path: Path) -> None:
    straight = fit(Parabola, {"lr": 0.1}, until=5, clock=Clock())
    first = fit(Parabola, {"lr": 0.1}, until=2, snapshot_directory=tmp_path / "kept", clock=Clock())
    second = fit(Parabola, {"lr": 0.1}, until=5, snapshot_directory=tmp_path / "kept", clock=Clock())
    assert [r.metrics for r in first + second] == [r.metrics for r in straight]
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["position-000000000005"]
    assert fit(Parabola, {"lr": 0.1}, until=5, snapshot_directory=tmp_path / "kept") == []


def test_stops_when_the_trainer_finishes(tmp_path: Path) -> None:
    reports = fit(FiveEach, {"lr": 0.1}, until=100, snapshot_directory=tmp_path, snapshot_every=10)
    assert [report.position for report in reports] == [5, 10, 15]
    assert fit(FiveEach, {"lr": 0.1}, until=100, snapshot_directory=tmp_path) == []


def test_an_interrupt_costs_what_came_after_the_last_snapshot(tmp_path: Path) -> None:
    def interrupt(report: IterationReport) -> None:
        if report.position == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(Parabola, {"lr": 0.1}, until=9, snapshot_directory=tmp_path, snapshot_every=2, on_report=interrupt)
    reports = fit(Parabola, {"lr": 0.1}, until=4, snapshot_directory=tmp_path)
    assert [report.position for report in reports] == [3, 4]


def test_an_unreadable_snapshot_is_an_error_not_a_fresh_start(tmp_path: Path) -> None:
    (tmp_path / "position-000000000007").mkdir()
    with pytest.raises(SnapshotStateError):
        fit(Parabola, {"lr": 0.1}, until=9, snapshot_directory=tmp_path)


def test_a_failing_save_leaves_the_older_snapshot(tmp_path: Path) -> None:
    class Breaks(Parabola):
        def save(self, directory: Path) -> None:
            if self.position == 2:
                raise OSError("disk full")
            super().save(directory)

    with pytest.raises(UserCodeError, match="disk full"):
        fit(Breaks, {"lr": 0.1}, until=9, snapshot_directory=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["position-000000000001"]


def test_snapshot_every_has_a_range() -> None:
    with pytest.raises(ValueError, match="snapshot_every is 0"):
        fit(Parabola, {"lr": 0.1}, until=1, snapshot_every=0)


class Forgets(Parabola):
    """A trainer whose velocity is not part of its snapshots."""

    velocity = 0.0

    def train(self) -> dict[str, float]:
        self.velocity = 0.9 * self.velocity - self.lr * self.x
        self.x += self.velocity
        return {"loss": self.x}


def test_verify_resume_finds_what_a_snapshot_forgets() -> None:
    verify_resume(Parabola, {"lr": 0.1}, until=4)
    with pytest.raises(AssertionError, match=r"position 2: loss is .* does Forgets.save\(\) keep everything"):
        verify_resume(Forgets, {"lr": 0.1}, until=4)


@pytest.mark.merge
def test_importing_the_training_side_loads_no_third_party_code() -> None:
    program = (
        "import sys; before = set(sys.modules);"
        "import hopyard, hopyard.trainer, hopyard.local, hopyard._runtime.snapshot_file;"
        "tops = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(*sorted(tops - set(sys.stdlib_module_names) - {'hopyard'}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=HANG_SECONDS
    )
    assert found.stdout.split() == []
