"""Tests of `hopyard simulate` as users and programs call it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hopyard.cli.main import run
from hopyard.plots import read
from hopyard.traces import Trace, write_traces
from hopyard_policies.bandit import BanditPolicy
from hopyard_simulator import Costs, Faults, Fleet, TraceWorkload, simulate
from tests.timing import HANG_SECONDS

POLICIES = "tests.unit.simulator.policies"
CURVES = [
    Trace(
        str(job),
        {"x": job},
        "accuracy",
        "max",
        tuple(0.1 * (job % 4) + 0.05 * n for n in range(6)),
        (0.5 + job / 8,) * 6,
    )
    for job in range(1, 9)
]
KEYS = {
    "traces", "policy", "parameters", "predictor", "metric", "mode", "R", "slots", "seed", "order_seed", "target", "time_to_target",
    "best", "best_job", "time", "job_seconds", "jobs_started", "jobs_terminated", "suspends", "iterations", "utilisation", "first_at_R",
    "jobs_at_R", "promotions", "pools", "reason", "reason_code", "events",
    "predictions", "predictions_failed", "note",
}  # fmt: skip


@pytest.fixture
def traces(tmp_path: Path) -> str:
    path = tmp_path / "curves.jsonl.gz"
    write_traces(path, CURVES)
    return str(path)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = run(["simulate", *arguments])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert err == ""
    return out


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said(capsys, *arguments, "--json"))
    return found


def test_json(traces: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, traces, "--policy", "bandit", "--slots", "2", "--target", "0.5")
    assert set(found) == KEYS
    assert found["traces"] == [traces]
    assert (found["policy"], found["slots"], found["target"], found["R"]) == ("bandit", 2, 0.5, 6)
    assert (found["metric"], found["mode"], found["order_seed"]) == ("accuracy", "max", None)
    assert found["time_to_target"] == found["time"] or found["time_to_target"] < found["time"]
    detailed = document(capsys, traces, "--policy", "bandit", "--slots", "2", "--target", "0.5", "--details")
    assert set(detailed) == KEYS | {"runs", "states", "curves", "labels", "confidences"}
    assert {**detailed, **found} == detailed
    of_run = {"slot", "job", "attempt", "start", "end", "trained", "reason", "mode", "position", "began"}
    assert set(detailed["runs"][0]) == of_run | {"partition", "got", "from_store"}


def test_who_predicted_is_told(traces: str, capsys: pytest.CaptureFixture[str]) -> None:
    asking = (traces, "--policy", "pop", "--set", "evaluation_boundary=2")
    assert document(capsys, *asking)["predictor"] == "pooled"
    assert document(capsys, *asking, "--predictor", "grid")["predictor"] == "grid"
    assert document(capsys, traces, "--predictor", "grid")["predictor"] is None  # The policy requests no predictions.


def test_options_reach_the_simulation(traces: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        "--policy bandit --slots 3 --target 0.9 --tmax 1m30s --order-seed 4 --seed 5 --set evaluation_boundary=2 --set epsilon=0.25 "
        "--set snapshot_every=2 --jobs 7 --max-iterations 5 --cost start=0.5 --cost latency=0.125 --fault straggling=0.5 --fault "
        "drop=0.05 --per-node 2 --speeds 1,2 --from-scratch --details"
    )
    result = simulate(
        TraceWorkload(CURVES, 5),
        BanditPolicy,
        fleet=Fleet(3, 2, (1.0, 2.0)),
        parameters={"evaluation_boundary": 2, "epsilon": 0.25, "snapshot_every": 2},
        target=0.9,
        max_time=90.0,
        jobs=7,
        seed=5,
        order_seed=4,
        costs=Costs(start=0.5, latency=0.125),
        faults=Faults(straggling=0.5, drop=0.05),
        from_scratch=True,
        details=True,
    )
    plain = json.loads(json.dumps({"traces": [traces], **result.plain(), "policy": "bandit"}))
    assert document(capsys, traces, *arguments.split()) == plain
    assert document(capsys, *arguments.split(), traces) == plain  # Options may come first.


def test_the_table(traces: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, traces, "--slots", "2", "--set", "ahead=1").splitlines()
    assert lines[0].strip() == "default ahead=1 on 2 slots"
    names = ["time to target", "best", "time", "slot time", "jobs", "iterations", "suspends", "promotions"]
    assert [line.strip().partition("  ")[0] for line in lines[1:]] == names
    assert "8 started, 0 ended early, 8 trained to the end" in lines[5]
    assert lines[6].split() == ["iterations", "48"]
    assert "never" in said(capsys, traces, "--slots", "2", "--target", "7")


def test_full_names_of_parameters(traces: str, capsys: pytest.CaptureFixture[str]) -> None:
    asking = [traces, "--policy", "median", "--set", "policy.least_jobs=2", "--set", "experiment.grace=1.5"]
    found = document(capsys, *asking, "--set", "policy.grace=2", "--set", "experiment.max_losses=3")
    assert found["parameters"] == {"least_jobs": 2, "policy.grace": 2, "experiment.grace": 1.5, "max_losses": 3}


def test_what_the_policy_notes_on_the_terms(traces: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [traces, "--policy", "sha", "--jobs", "2", "--set", "eta=3", "--slots", "2"]
    note = "policy sha: 2 configurations are too few for 2 rungs at eta 3"
    assert document(capsys, *arguments)["note"].startswith(note)
    assert note in " ".join(said(capsys, *arguments).split())
    assert document(capsys, traces, "--slots", "2")["note"] == ""


def test_what_was_predicted(traces: str, capsys: pytest.CaptureFixture[str]) -> None:
    asking = [traces, "--policy", "pop", "--slots", "2", "--target", "0.5"]
    assert re.search(r" predictions +[1-9]\d* asked of pooled, 0 failed", said(capsys, *asking))
    found = document(capsys, *asking, "--predictor", "grid")
    assert (found["predictor"], found["predictions_failed"]) == ("grid", 0)
    assert found["predictions"] > 0


def test_what_it_prints_can_be_plotted(traces: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    path.write_text(said(capsys, traces, "--slots", "2", "--target", "0.5", "--details", "--json"))
    (search,) = read(path)
    assert (search.policy, search.slots, search.metric, search.mode, search.max_position) == (
        "default",
        2,
        "accuracy",
        "max",
        6,
    )
    assert search.runs is not None
    assert search.curves is not None
    assert {one.reason for one in search.runs} <= {"UNTIL", "TERMINATED", "SUSPENDED"}


def test_the_same_bytes(traces: str) -> None:
    arguments = "--policy bandit --slots 3 --order-seed 1 --fault drop=0.02 --fault straggling=1 --fault noise=0.1 --details --json"
    command = [sys.executable, "-m", "hopyard.cli.main", "simulate", traces, *arguments.split()]
    found = [
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True, timeout=HANG_SECONDS
        ).stdout
        for seed in ("0", "1", "1")
    ]
    assert len(found[0]) > 1000
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("--policy nonsense", 2, "no plugin is called 'nonsense'; there are: asha, "),
        (
            "--set foo=1",
            2,
            "policy default has no parameter foo; it has: ahead, barrier, elastic, epoch, width; an experiment's terms",
        ),
        (
            "--policy median --set grace=1",
            2,
            "grace is ambiguous: it is a parameter of policy median and a term of the experiment; use policy.grace or experiment.grace",
        ),
        ("--set foo", 2, "--set: needs KEY=VALUE, found 'foo'"),
        ("--set epoch=[", 2, "--set epoch: '[' is no value of YAML"),
        ("--set max_losses=-1", 2, "max_losses must be at least 0, found -1"),
        (
            "--policy bandit --set epsilon=-1",
            2,
            "policy bandit: epsilon is -1; it must be a finite number of at least 0",
        ),
        ("--policy bandit --set epsilon=-1", 2, "its parameters are: evaluation_boundary=10, epsilon=0.5, ahead=2"),
        ("--details", 2, "--details goes with --json"),
        ("--cost foo=1", 2, "--cost: there is no foo; there are: start, resume, snapshot, suspend, latency"),
        ("--cost start=x", 2, "--cost start: needs a number, found 'x'"),
        ("--cost start=-1", 2, "cost of start must be a number of seconds >= 0, found -1.0"),
        ("--fault drop=1", 2, "drop must be a chance in [0, 1), found 1.0"),
        ("--target nan", 2, "target must be a finite number, found nan"),
        ("--tmax soon", 2, '--tmax: needs a length of time such as 30s, 15m, 2h, 1d or 1h30m, found "soon"'),
        ("--slots 1000000000", 2, "slots must be at most 100000, found 1000000000"),
        ("--set low=1 --set high=1", 2, "low must be below high, found 1 and 1"),
        ("--set ahead=", 2, "policy default: ahead is None; it must be a whole number"),
        ("--cost start=1e308", 1, "the time is beyond all numbers"),
        ("--slots 0", 2, "slots must be at least 1, found 0"),
        ("--per-node 0", 2, "slots per node must be at least 1, found 0"),
        ("--speeds 1,fast", 2, "--speeds: needs a number, found 'fast'"),
        ("--speeds 0", 2, "speed must be a finite number > 0, found 0.0"),
        ("--jobs 0", 2, "jobs must be at least 1, found 0"),
        ("--max-iterations 0", 2, "max_position (--max-iterations) must be at least 1, found 0"),
        ("--set target_over=3", 2, "target_over is 3: it needs a target, which is not given"),
        (
            "--policy sha --set brackets=[5]",
            2,
            "policy sha: brackets is [5], but the rungs are at 2, 6: bracket s begins at rung s, so the largest is 1",
        ),
        ("--policy asha --set rungs=1000000000000", 2, "policy asha: rungs is 1000000000000; it must be at most 64"),
        (f"--policy {POLICIES}:Changing", 2, "no trace has the hyperparameters {'x': 99}: a policy that changes them"),
        (f"--policy {POLICIES}:Raising", 1, "after 0.625 s: Raising on up-call"),
        (f"--policy {POLICIES}:Parking", 1, "after 0.625 s nothing happens any more; runs that wait for the policy: 1"),
    ],
)
def test_mistakes(traces: str, arguments: str, code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", traces, *arguments.split()]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_traces_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "none.jsonl")
    assert run(["simulate", missing]) == 1
    assert capsys.readouterr().err == f"error: {missing}: there is no such file\n"
    assert run(["simulate"]) == 2
    assert "Missing argument 'TRACES...'" in capsys.readouterr().err


def test_one_configuration_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "twice.jsonl"
    write_traces(path, [CURVES[0], Trace("9", CURVES[0].hyperparameters, "accuracy", "max", (0.1,), (1.0,))])
    assert run(["simulate", str(path)]) == 2
    assert capsys.readouterr().err.startswith("error: traces of jobs 1 and 9 have the same hyperparameters")
