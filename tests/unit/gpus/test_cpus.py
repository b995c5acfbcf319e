"""How many CPUs a process may use: its CPU set and the quotas of its control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard._runtime.gpus.detection import unsupported_gpus
from hopyard._runtime.processes.cpus import available_cpus, cpu_quota

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def _eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))


def groups(folder: Path, membership: str, **files: str) -> tuple[Path, Path]:
    """A tree of control groups; the names of files have "__" for "/" and a "_" for a dot."""
    listed = folder / "membership"
    listed.write_text(membership)
    for name, text in files.items():
        *above, last = name.split("__")
        place = folder.joinpath(*above)
        place.mkdir(parents=True, exist_ok=True)
        (place / last.replace("_", ".", 1)).write_text(text)
    return folder, listed


@pytest.mark.parametrize(
    ("quota", "expected"), [("400000 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("max 100000", 8), ("", 8)]
)
def test_the_quota_of_a_container(tmp_path: Path, quota: str, expected: int) -> None:
    assert available_cpus(*groups(tmp_path, "0::/\n", cpu_max=quota)) == expected


def test_the_smallest_quota_on_the_way_to_the_root_counts(tmp_path: Path) -> None:
    where = groups(
        tmp_path, "0::/a/b\n", a__cpu_max="300000 100000", a__b__cpu_max="600000 100000", a__c__cpu_max="1 1"
    )
    assert cpu_quota(*where) == 3.0
    assert available_cpus(*where) == 3


def test_a_quota_above_the_cpu_set_and_no_quota_at_all(tmp_path: Path) -> None:
    assert available_cpus(*groups(tmp_path, "0::/\n", cpu_max="1600000 100000")) == 8
    assert available_cpus(tmp_path / "nothing", tmp_path / "nothing") == 8


def test_control_groups_of_version_1(tmp_path: Path) -> None:
    membership = "5:memory:/a\n4:cpu,cpuacct:/a\n"
    where = groups(tmp_path, membership, cpu__a__cpu_cfs_quota_us="200000", cpu__a__cpu_cfs_period_us="100000")
    assert available_cpus(*where) == 2
    (tmp_path / "cpu/a/cpu.cfs_quota_us").write_text("-1")
    assert available_cpus(*where) == 8


def test_gpus_of_other_makers_are_named(tmp_path: Path) -> None:
    kfd = tmp_path / "kfd"
    assert unsupported_gpus(kfd, "Linux", "x86_64") == ()
    kfd.touch()
    (amd,) = unsupported_gpus(kfd, "Linux", "x86_64")
    assert "ROCm is not supported" in amd
    (apple,) = unsupported_gpus(tmp_path / "no", "Darwin", "arm64")
    assert "Metal is not supported" in apple
