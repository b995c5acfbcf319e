"""Tests that invalid policy parameters are reported before anything starts, with their line in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard.cli.commands.experiments.preflight import check_policy, sharing_note
from hopyard.cli.commands.experiments.session_commands import run_file
from hopyard.client.submission import Submission
from hopyard.spec import SpecError, load_spec

pytestmark = pytest.mark.quick

TEXT = """name: a
command: [train, "{lr}"]
metric: {name: accuracy, mode: max}
space: {lr: {uniform: [0, 1]}}
stop: {jobs: 16, max_iterations: 256}
"""


def submission(policy: str) -> Submission:
    text = TEXT + policy
    return Submission(text, "x.yaml", load_spec(text, "x.yaml"), None)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("policy:\n  name: asha\n  Eta: 3\n", "x.yaml:8: policy.Eta: asha has no parameter Eta; it takes: "),
        ("policy:\n  name: asha\n  eta: 1\n", "x.yaml:8: policy.eta: asha: eta is 1; it must be a whole number"),
        ("policy: {name: asha, rungs: 3, r: 2}\n", "x.yaml:6: policy.rungs: asha: rungs is 3 and r is 2"),
        (
            "policy: {name: stage_tree, tuner: {name: asha, eta: 1}}\n",
            "x.yaml:6: policy.tuner: stage_tree: tuner asha: eta",
        ),
        ("policy: mop\n", "x.yaml: data: mop sends jobs to partitioned data, and the experiment names none; register "),
        (
            "policy: mop\ndata: dig\n",
            "x.yaml:2: command: mop sends jobs to partitioned data, and a program of this kind does",
        ),
        ("policy: default\ndata: dig\n", "x.yaml:7: data: default sends no job to a partition, so none would be read"),
        (
            "policy: {name: asha, elastic: {}}\n",
            "x.yaml:2: command: asha trains jobs on several slots at once, and a program of this kind runs on one; use",
        ),
        (
            "policy: stage_tree\nsnapshot:\n  provider: criu\n",
            "x.yaml:8: snapshot.provider: stage_tree lets jobs continue from snapshots of jobs with other hyperparameters",
        ),
    ],
)
def test_a_wrong_parameter_is_told_with_its_line(policy: str, said: str) -> None:
    with pytest.raises(SpecError) as raised:
        check_policy(submission(policy))
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize(
    "policy",
    [
        "policy: {name: asha, eta: 3}\n",
        "policy: mine:Policy\n",
        "policy: {name: stage_tree, tuner: mine:Policy}\n",
        "policy: {name: mop, tuner: {name: stage_tree, tuner: {name: mine:Policy}}}\n",
        "policy: not_here\n",
        "policy: {name: stage_tree, share: false}\nsnapshot: {provider: criu}\n",
        "policy: stage_tree\nsnapshot: {provider: framework}\n",
        "",
    ],
)
def test_what_fits_or_is_not_known_here_passes(policy: str) -> None:
    check_policy(submission(policy))


def test_no_data_directory_is_left_behind(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(TEXT + "policy: {name: asha, eta: 1}\n")
    with pytest.raises(SpecError, match="eta is 1"):
        run_file(file, folder=None, slots=1, server=None, data=tmp_path / "data", json=False)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("program", "policy", "noted"),
    [
        ("hopyard.report(loss=1.0)", "policy: stage_tree\n", True),
        ("hopyard.report(loss=1.0, checkpoint={})", "policy: stage_tree\n", False),
        ("hopyard.report(loss=1.0)", "policy: {name: stage_tree, share: false}\n", False),
        ("hopyard.report(loss=1.0)", "", False),
    ],
)
def test_of_a_script_that_saves_nothing_it_is_said_that_its_trials_share_nothing(
    program: str, policy: str, noted: bool, tmp_path: Path
) -> None:
    (tmp_path / "t.py").write_text(f"import hopyard\n{program}\n")
    text = TEXT.replace("[train,", "[python, t.py,") + policy
    said = sharing_note(Submission(text, "x.yaml", load_spec(text, "x.yaml"), tmp_path))
    assert said.startswith("note: stage_tree trains once") is noted
    assert ("t.py gives hopyard.report no checkpoint" in said) is noted
