"""Tests of `hopyard plan`: what searches would train together and alone, with the spaces of the Hippo paper among them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hopyard._common.plugins import load_plugin
from hopyard._runtime.bundle import code_hash
from hopyard.cli.commands.experiments import plan_preview
from hopyard.cli.main import run
from hopyard.client.submission import pack, prepare
from hopyard_scheduler.experiments.program import ExperimentProgram

pytestmark = pytest.mark.quick

SPACES = Path(__file__).parents[3] / "benchmarks" / "stage_tree"
SPACE = """
space:
  lr: {sequence: [{constant: 0.1}, {multi_step: {initial: 0.1, milestones: [6], gamma: 0.1}}]}
  momentum: {choice: [0.9, 0.8]}
stop: {max_iterations: 10}
"""


def _planned(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Any:
    assert run(["plan", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("name", "trials", "total", "unique"),
    [
        # If equal functions merged but not equal values, the last numbers would be 10140, 980 and 66000.
        ("resnet56", 120, 14400, 10128),
        ("mobilenetv2", 20, 2400, 978),
        ("bert", 4, 108000, 66000),
    ],
)
def test_the_tables_of_the_paper(
    name: str, trials: int, total: int, unique: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _planned(capsys, SPACES / f"{name}.yaml", "--slots", "40")
    assert (found["trials"], found["total_steps"], found["unique_steps"]) == (trials, total, unique)
    assert found["merge_rate"] == total / unique
    assert found["critical_path"] == total // trials
    assert found["makespan_lower_bound"] >= max(total // trials, unique / 40)


@pytest.mark.merge
@pytest.mark.parametrize(
    ("name", "trials", "rate"), [("resnet56", 448, 2.447), ("mobilenetv2", 240, 3.144), ("bert", 40, 2.045)]
)
def test_the_enlarged_spaces(name: str, trials: int, rate: float, capsys: pytest.CaptureFixture[str]) -> None:
    found = _planned(capsys, SPACES / f"{name}_large.yaml")
    assert found["trials"] == trials
    assert found["merge_rate"] == pytest.approx(rate, abs=0.01)


@pytest.mark.merge
def test_several_files_share_what_they_have_in_common(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other, foreign = tmp_path / "one.yaml", tmp_path / "other.yaml", tmp_path / "foreign.yaml"
    one.write_text(SPACE)
    other.write_text(SPACE.replace("[6]", "[3]").replace("0.8]", "0.7]"))
    foreign.write_text(SPACE + "seed: 5\n")
    alone = _planned(capsys, one)
    assert (alone["trials"], alone["total_steps"], alone["unique_steps"]) == (4, 40, 28)
    # With momentum 0.9, the other file adds one branch from position 3 on; with 0.7, all its training is new.
    both = _planned(capsys, one, other)
    assert (both["total_steps"], both["unique_steps"]) == (80, 28 + 7 + 17)
    assert [part["unique_steps"] for part in both["files"]] == [28, 34]
    assert both["merge_rate"] == 80 / 52
    assert _planned(capsys, one, foreign)["unique_steps"] == 56
    assert run(["plan", str(one), str(other), "--slots", "3"]) == 0
    text = capsys.readouterr().out
    assert "all together" in text
    assert "least on 3" in text


PROGRAM = f"name: x\ntrainer: train.py:X\nmetric: {{name: m, mode: max}}\n{SPACE}generator: grid\n"


def _written(folder: Path, more: str = "", code: str = "x = 1\n", name: str = "search.yaml") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(code)
    (folder / name).write_text(PROGRAM + more)
    return folder / name


def test_programs_with_equal_names_in_different_folders_share_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = _written(tmp_path / "one"), _written(tmp_path / "other", code="x = 2\n")
    found = _planned(capsys, one, other)
    assert (found["total_steps"], found["unique_steps"]) == (80, 56)
    assert found["merge_rate"] == found["files"][0]["merge_rate"] == 80 / 56


@pytest.mark.parametrize("folder", ["one", "copy"])
def test_a_program_and_its_copy_share_everything(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = _written(tmp_path / "one"), _written(tmp_path / folder)
    assert _planned(capsys, one, other)["unique_steps"] == 28


def test_files_of_one_folder_share_their_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = _written(tmp_path / "one"), _written(tmp_path / "one", "weight: 2\n", name="other.yml")
    assert _planned(capsys, one, other)["unique_steps"] == 28


@pytest.mark.parametrize(
    ("more", "same"),
    [
        ("policy: stage_tree\nweight: 3\nresources: {slots: 2}\nlogs: {per_job: 1MiB}\n", True),
        ("environment: {DEPTH: '3'}\n", False),
        ("resources: {per_job: {cpus: 2}}\n", False),
        ("resources: {per_job: {gpus: 1}}\n", False),
        ("working_directory: .\n", False),
        ("interpreter: /usr/bin/python3\n", False),
        ("snapshot: {provider: framework}\n", False),
        ("unit: steps\n", False),
        ("seed: 5\n", False),
    ],
)
def test_programs_are_equal_where_the_scheduler_calls_them_equal(
    more: str, same: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [_written(tmp_path / "one"), _written(tmp_path / "other", more)]
    assert (_planned(capsys, *files)["unique_steps"] == 28) is same
    roots = set[str]()
    for file in files:
        submission = prepare(file)
        program = ExperimentProgram(submission.spec, "", submission.interpreter(""))
        roots.add(program.root(code_hash(pack(submission.folder).data)))
    assert (len(roots) == 1) is same


def test_files_without_a_program_share_values_across_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / name / "space.yaml" for name in ("one", "other")]
    for file in files:
        _written(file.parent, code=f"# {file}\n")
        file.write_text(SPACE)
    assert _planned(capsys, *files)["unique_steps"] == 28


def test_a_code_folder_that_cannot_be_packed_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = _written(tmp_path / "one"), _written(tmp_path / "other")
    (other.parent / "data").symlink_to("/")
    assert run(["plan", str(other)]) == 0  # The code of one file is not compared.
    assert run(["plan", str(one), str(other)]) == 2
    assert f"{other}: the code folder cannot be packed: " in capsys.readouterr().err.replace("\n", "")


def test_an_experiments_own_generator_proposes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "search.yaml"
    file.write_text(
        "name: x\ntrainer: t.py:T\nmetric: {name: m, mode: max}\nspace: {lr: {sequence: {linear: {start: {uniform: [0, 1]}, "
        "total_iters: 9}}}}\ngenerator: {name: random, seed: 3}\nstop: {jobs: 7, max_iterations: 5}\n"
    )
    found = _planned(capsys, file)
    assert (found["trials"], found["unique_steps"]) == (7, 35)


@pytest.mark.merge
def test_a_policys_own_generator_proposes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    def loaded(group: str, name: str, base: type | None = None) -> object:
        asked.append(name)
        return load_plugin(group, "random" if name == "tpe" else name, base)

    monkeypatch.setattr(plan_preview, "load_plugin", loaded)
    file = tmp_path / "search.yaml"
    text = (
        "name: x\ntrainer: t.py:T\nmetric: {name: m, mode: max}\nspace: {x: {uniform: [0, 1]}}\n"
        "policy: bohb\nstop: {jobs: 3, max_iterations: 9}\n"
    )
    for more, generator in (("", "tpe"), ("generator: {seed: 4}\n", "tpe"), ("generator: sobol\n", "sobol")):
        file.write_text(text + more)
        asked.clear()
        assert run(["plan", str(file)]) == 0
        assert asked == [generator]
    file.write_text(text.replace("policy: bohb", "policy: {name: stage_tree, tuner: bohb}"))
    asked.clear()
    assert run(["plan", str(file)]) == 0
    assert asked == ["tpe"]


def test_a_wrong_parameter_of_the_policy_is_told_as_by_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(SPACE + "policy: {name: stage_tree, tunner: sha}\n")
    assert run(["plan", str(file)]) == 2
    said = capsys.readouterr().err
    assert ": policy.tunner: stage_tree has no parameter tunner; it takes: " in said
    assert said.endswith("; did you mean tuner?\n")


def test_a_file_that_is_no_text_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "space.yaml"
    file.write_bytes(b"name: caf\xe9\n")
    assert run(["plan", str(file)]) == 2
    assert f"{file}: cannot be read as UTF-8 text" in capsys.readouterr().err.replace("\n", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SPACE.replace("stop: {max_iterations: 10}", ""), "stop.max_iterations is missing"),
        (SPACE.replace("gamma", "gama"), ":3: space.lr.sequence[1].multi_step.gama: no such field (did you mean gamma?)"),
        (SPACE.replace("[0.9, 0.8]", "[1]") + "constraints: [momentum < 0]\n", "proposes nothing"),
        ("space: {x: {uniform: [0, 1]}}\nstop: {max_iterations: 3}\ngenerator: random\n", "stop: needs jobs or max_time"),
        ("space: {x: {uniform: [0, 1]}}\nstop: {max_iterations: 3, max_time: 1h}\ngenerator: random\n", "stop.jobs is missing"),
        ("space: {x: {uniform: [0, 1]}}\nstop: {max_iterations: 3}\n", "uniform needs count or step"),
        (SPACE + "policy: {name: stage_tree, tuner: mop}\n", ":6: policy.tuner: stage_tree: tuner is mop, which sends jobs"),
        (SPACE + "policy: {name: asha, eta: 1}\n", ":6: policy.eta: asha: eta is 1; it must be a whole number of at least 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_told(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(text)
    assert run(["plan", str(file)]) == 2
    assert said in capsys.readouterr().err


def test_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(tmp_path / "none.yaml")]) != 0
    assert "none.yaml" in capsys.readouterr().err
