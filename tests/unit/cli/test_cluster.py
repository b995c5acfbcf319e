"""Tests of the local cluster and of `hopyard gc`: crashes of services, numbers of slots, snapshot quotas and evictions."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard._runtime.gpus import GpuInventory, GpuOptions
from hopyard.cli.commands.cluster import garbage
from hopyard.cli.commands.cluster.supervisor import CrashCounter
from hopyard.cli.commands.experiments.local_slots import SlotWishes, cpu_slots, slot_cpus
from hopyard.cli.main import run
from hopyard.client.local_cluster.embedded import agent_service
from hopyard.client.types import StoreUse
from hopyard.spec.units import size_or_none

pytestmark = pytest.mark.quick


def test_crashes_count_for_a_while() -> None:
    crashes = CrashCounter(limit=3, seconds=60.0)
    assert [crashes.died(at) for at in (0.0, 10.0)] == [1, 2]
    assert not crashes.too_many
    assert crashes.died(65.0) == 2
    assert not crashes.too_many
    assert crashes.died(66.0) == 3
    assert crashes.too_many


def test_slots_without_gpus_are_what_is_asked_for_or_what_the_cpus_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopyard.cli.commands.experiments.local_slots.available_cpus", lambda: 6)
    none = GpuOptions("none")
    assert len(SlotWishes(7, none, most=3).layout().slots) == 7
    assert len(SlotWishes(None, none, most=3).layout().slots) == 3
    assert len(SlotWishes(None, none, cpus=2).layout().slots) == 3
    assert [cpu_slots(1), cpu_slots(4), cpu_slots(10_000)] == [6, 1, 1]
    assert [slot_cpus(2, 1), slot_cpus(4, 1), slot_cpus(4, 3)] == [3, 1, 3]


def test_what_an_experiment_says_about_its_slots_is_used() -> None:
    options = GpuOptions("0")
    resources = {"slots": 4, "per_job": {"cpus": 3, "gpus": 2}}
    assert SlotWishes(2, options).of_experiment(resources) == SlotWishes(2, options, 4, 3, 2)
    assert SlotWishes(2, options).of_experiment({}) == SlotWishes(2, options)


def test_an_agents_gpus_are_passed_on() -> None:
    arguments = agent_service(Path("d"), "h:1", None, "n", gpus=GpuOptions("0,2", 2)).arguments
    assert arguments[-4:] == ("--gpus", "0,2", "--gpus-per-slot", "2")
    assert "--slots" not in arguments
    assert agent_service(Path("d"), "h:1", 3, gpus=GpuOptions(slots_per_gpu=3)).arguments[-4:] == (
        *("--slots-per-gpu", "3"),
        *("--slots", "3"),
    )


def test_an_agents_snapshot_quota_is_passed_on() -> None:
    bounded = agent_service(Path("d"), "h:1", 2, "n", snapshot_quota="5GiB").arguments
    assert bounded[-2:] == ("--snapshot-quota", "5GiB")
    assert "--snapshot-quota" not in agent_service(Path("d"), "h:1", 2, "n").arguments


def test_the_variables_that_an_agent_passes_are_passed_on() -> None:
    assert agent_service(Path("d"), "h:1", 2, "n", pass_env=["A", "B_*"]).arguments[-4:] == (
        *("--pass-env", "A"),
        *("--pass-env", "B_*"),
    )
    assert "--pass-env" not in agent_service(Path("d"), "h:1", 2, "n").arguments


def test_a_quota_may_be_taken_away() -> None:
    assert [size_or_none(text) for text in ("none", "None", "2KiB")] == [0, 0, 2048]
    with pytest.raises(ValueError, match=r'such as 500MB.*found "a lot"; none takes the limit away'):
        size_or_none("a lot")


def test_gc_says_how_full_the_store_is_and_what_an_eviction_would_cost(capsys: pytest.CaptureFixture[str]) -> None:
    garbage._show_store(StoreUse(None, 0, 0, 0, 0.0, 0, 0.0))
    assert capsys.readouterr().out == ""
    garbage._show_store(StoreUse(None, 3072, 3072, 0, 0.0, 0, 0.0))
    assert (
        capsys.readouterr().out == "snapshots in the store: 3.0 KiB without a quota; 3.0 KiB of them are needed now\n"
    )
    garbage._show_store(StoreUse(2048, 5120, 3072, 4, 90.0, 512, 2.0))
    assert capsys.readouterr().out.splitlines() == [
        "snapshots in the store: 5.0 KiB of a quota of 2.0 KiB; 3.0 KiB of them are needed now",
        "recreating the other 4 (2.0 KiB) would take 1m 30s of training; the next to be evicted (512 B): 2s",
        "needed snapshots exceed the quota by 1.0 KiB; they are kept until nothing needs them",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "FILE", "--gpus", "0,x"],
        ["run", "FILE", "--gpus", "all"],
        ["up", "--gpus-per-slot", "2", "--slots-per-gpu", "2"],
        ["up", "--agents", "2", "--gpus-per-slot", "1"],
        ["resume", "--job", "1", "--gpus", "0"],
    ],
)
def test_wrong_options_for_gpus_are_refused_before_anything_starts(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hopyard._runtime.gpus.layout.detect", GpuInventory)
    file = tmp_path / "experiment.yaml"
    file.write_text(
        "name: x\ntrainer: numpy:ndarray\nmetric: {name: loss, mode: min}\nspace: {a: {uniform: [0, 1]}}\n"
        "stop: {jobs: 1, max_iterations: 1}\n"
    )
    given = [str(file) if word == "FILE" else word for word in arguments]
    assert run([*given, "--data", str(tmp_path / "data")]) != 0
    error = capsys.readouterr().err
    assert "--gpus" in error
    assert "Traceback" not in error
    assert not (tmp_path / "data").exists()
