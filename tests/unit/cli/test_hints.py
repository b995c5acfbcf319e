"""Tests of the hints on the next command to use."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard._runtime.bundle import code_files, pack
from hopyard.cli.commands.experiments.hints import changed_code_note, changed_policy_note, next_step, unused_note
from hopyard.client.types import Experiment, ExperimentState, Metric
from hopyard.spec import load_spec

pytestmark = pytest.mark.quick

S = ExperimentState


@pytest.mark.parametrize(
    ("state", "rests", "extended", "expected"),
    [
        (S.RUNNING, False, True, ""),
        (S.RUNNING, True, True, "no cluster runs in d to train it: hopyard resume e1 --data d"),
        (S.PAUSED, False, True, "it stays paused until: hopyard resume e1 --data d"),
        (S.PAUSING, True, False, "no cluster runs in d to train it: hopyard resume e1 --data d"),
        (S.ENDING, False, True, "it is ending; the change takes effect after its end"),
        (S.STOPPED, True, True, "the extension leaves nothing to train; add jobs: hopyard extend e1 --jobs N --data d"),
        (S.FAILED, False, False, "it has ended; to continue it: hopyard extend e1 --data d"),
    ],
)
def test_next_step(state: ExperimentState, rests: bool, extended: bool, expected: str) -> None:
    experiment = Experiment("e1", "digits", state, Metric("accuracy"))
    assert next_step(experiment, Path("d") if rests else None, " --data d", extended=extended) == expected


@pytest.mark.parametrize(
    ("program", "left_out"),
    [
        ("command: [python, train.py, '{lr}', '--depth={model.depth}', '{units}']", ""),
        ("command: [python, train.py, '{lr}', '{{units}}']", "{model.depth}, {units}"),
        ("log: {command: [./fit, '{lr}', '{model.depth}'], metrics: 'acc=(.+)'}", "{units}"),
        ("command: [python, train.py]", ""),
        ("trainer: train.py:Mine", ""),
    ],
    ids=["all used", "some", "log", "it asks for them itself", "trainer"],
)
def test_a_searched_value_that_the_command_leaves_out_is_noted(program: str, left_out: str) -> None:
    spec = load_spec(
        f"name: a\n{program}\n"
        "metric: {name: accuracy, mode: max}\n"
        "space: {lr: {uniform: [0, 1]}, model: {space: {depth: {int: [1, 2]}}}, units: {choice: [16, 32]}}\n"
        "stop: {jobs: 1, max_iterations: 1}\n"
    )
    note = unused_note(spec)
    assert (f"the command does not use {left_out} of the space:" in note) if left_out else note == ""


SPEC = """name: digits
command: [python, train.py]
metric: {name: accuracy, mode: max}
space: {lr: {uniform: [0.0, 1.0]}}
stop: {jobs: 2}
"""
BEFORE = "changed since the experiment was created"
AFTER = f"{BEFORE}; its jobs keep the code of then. For the new code: hopyard run"


@pytest.mark.parametrize(
    ("program", "files", "changes", "expected"),
    [
        ("command: [python, train.py]", "a b", {}, ""),
        ("command: [python, train.py]", "a b", {"search.yaml": SPEC + "seed: 3\n"}, ""),
        ("command: [python, train.py]", "a b", {"train.py": "new"}, f"note: train.py has {AFTER} search.yaml"),
        ("command: [python, train.py]", "a b", {"new.py": "new"}, ""),
        (
            "command: [python, train.py]",
            "a b",
            {"a.py": "1", "train.py": "2"},
            f"note: train.py, a.py have {AFTER} search.yaml",
        ),
        (
            "command: [python, train.py]",
            "a b c",
            {"a.py": "1", "b.py": "2", "c.py": "3", "train.py": "4"},
            f"note: train.py, a.py, b.py and 1 more have {AFTER} search.yaml",
        ),
        (
            "command: [python, -m, lib.fit]",
            "lib/fit",
            {"lib/fit.py": "new"},
            f"note: lib/fit.py has {AFTER} search.yaml",
        ),
        ("trainer: train.py:Mine", "", {"train.py": "new"}, f"note: train.py has {AFTER} search.yaml"),
        # The folder of the code is not known: only the script is compared.
        ("command: [python, train.py]", "a b", {"search.yaml": None, "b.py": None, "a.py": "new"}, ""),
        (
            "command: [python, train.py]",
            "a b",
            {"search.yaml": None, "b.py": None, "a.py": "new", "train.py": "new"},
            f"note: train.py has {AFTER} experiment.yaml",
        ),
        (
            "command: [python, train.py]",
            "a",
            {"search.yaml": None, "a.py": "new"},
            f"note: a.py has {AFTER} experiment.yaml",
        ),
        ("command: [python, train.py]", "a", {"train.py": None, "a.py": "new"}, ""),
    ],
)
def test_files_that_differ_from_the_code_of_the_experiment_are_named(
    tmp_path: Path, program: str, files: str, changes: dict[str, str | None], expected: str
) -> None:
    (tmp_path / "lib").mkdir()
    text = SPEC.replace("command: [python, train.py]", program).replace("jobs: 2", "jobs: 2, max_iterations: 4")
    (tmp_path / "search.yaml").write_text(text)
    for name in ("train", *files.split()):
        (tmp_path / f"{name}.py").write_text(f"print({name!r})\n")
    code = code_files(pack(tmp_path).data)
    for name, content in changes.items():
        if content is None:
            (tmp_path / name).unlink()
        else:
            (tmp_path / name).write_text(content)
    assert changed_code_note(load_spec(text).model_dump(mode="json", exclude_unset=True), code, tmp_path) == expected


@pytest.mark.parametrize(
    ("changed", "ignored", "expected"),
    [
        ("last.pt out.csv", "", f"note: 2 files that are not code have {BEFORE}; its jobs keep the files of then"),
        ("last.pt", "", f"note: 1 file that is not code has {BEFORE}; its jobs keep the files of then"),
        ("last.pt out.csv", "*.pt\nout.csv\n", ""),
        ("last.pt", "*.pt\n[z-a]\n", f"note: 1 file that is not code has {BEFORE}; its jobs keep the files of then"),
        (
            "train.py last.pt out.csv lib/net.json",
            "*.pt\n",
            f"note: train.py, lib/net.json have {BEFORE} (so has 1 file that is not code); its jobs keep the code of then. For the new "
            "code: hopyard run search.yaml",
        ),
        ("lib/net.json last.pt", "lib\n*.pt\n", ""),
        ("tool", "", f"note: tool has {AFTER} search.yaml"),
        ("requirements.txt", "", f"note: requirements.txt has {AFTER} search.yaml"),
    ],
)
def test_changed_files_that_are_not_code_are_counted(tmp_path: Path, changed: str, ignored: str, expected: str) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "search.yaml").write_text(SPEC)
    for name in (
        "train.py",
        "last.pt",
        "plot.png",
        "out.csv",
        "tool",
        "lib/net.json",
        "requirements.txt",
        ".hopyardignore",
    ):
        (tmp_path / name).write_text("old")
    (tmp_path / "tool").chmod(0o755)
    code = code_files(pack(tmp_path).data)
    (tmp_path / ".hopyardignore").write_text(ignored)
    for name in changed.split():
        (tmp_path / name).write_text("new")
    note = changed_code_note(load_spec(SPEC).model_dump(mode="json", exclude_unset=True), code, tmp_path)
    assert note == expected


@pytest.mark.parametrize(
    ("fields", "changed", "code", "policy"),
    [
        ("generator: {name: 'propose:Mine', width: 1}", "propose.py", "", ""),
        ("generator: 'lib.net:Mine'", "lib/net.py lib/__init__.py", "lib/__init__.py", ""),
        ("generator: 'propose:Mine'", "propose.py lib/net.py", "lib/net.py", ""),
        ("generator: 'train:Mine'", "train.py", "train.py", ""),
        ("generator: random", "propose.py", "propose.py", ""),
        ("policy: 'stop:Mine'", "stop.py", "", "stop.py"),
        ("policy: 'stop:Mine'", "train.py stop.py", "train.py", "stop.py"),
        ("policy: 'train:Mine'", "train.py", "train.py", "train.py"),
        ("policy: {name: pbt, tuner: {name: 'stop:Mine'}}", "stop.py", "", "stop.py"),
        ("policy: 'stop:Mine'\ngenerator: 'propose:Mine'", "propose.py", "", ""),
        # The process of a command runs in the folder of the recorded code; one that a person starts is the person's.
        ("policy: {command: [python, stop.py]}", "stop.py", "stop.py", ""),
        ("policy: 'remote:stop'", "stop.py", "stop.py", ""),
    ],
)
def test_modules_that_the_services_load_are_not_code_of_the_jobs(
    tmp_path: Path, fields: str, changed: str, code: str, policy: str
) -> None:
    text = f"{SPEC.replace('jobs: 2', 'jobs: 2, max_iterations: 4')}{fields}\n"
    (tmp_path / "lib").mkdir()
    (tmp_path / "search.yaml").write_text(text)
    for name in ("train.py", "propose.py", "stop.py", "lib/net.py", "lib/__init__.py"):
        (tmp_path / name).write_text("old")
    then = code_files(pack(tmp_path).data)
    spec = load_spec(text).model_dump(mode="json", exclude_unset=True)
    assert (changed_code_note(spec, then, tmp_path), changed_policy_note(spec, then, tmp_path, "e1")) == ("", "")
    for name in changed.split():
        (tmp_path / name).write_text("new")
    assert changed_code_note(spec, then, tmp_path) == (f"note: {code} has {AFTER} search.yaml" if code else "")
    assert changed_policy_note(spec, then, tmp_path, "e1") == (
        f"note: {policy}, a module of the policy, has {BEFORE}: the next process of the policy loads the new file if the cluster was "
        "started in this folder, else the code of then. If it decides otherwise than recorded, the experiment is paused; to compare: "
        "hopyard replay e1"
        if policy
        else ""
    )
