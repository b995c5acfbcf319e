"""Tests of the arguments of `create`: what it accepts, and its errors for anything else."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import yaml

from hopyard._runtime import bundle
from hopyard.client.submission import Submission, left_out_note, missing_file_note, pack, prepare
from hopyard.errors import InvalidInput
from hopyard.spec import SpecError, load_spec

pytestmark = pytest.mark.quick

SPEC = """
name: small
trainer: train.py:Small
metric: {name: accuracy, mode: max}
space: {lr: {uniform: [0.0, 1.0]}}
stop: {jobs: 3, max_iterations: 8}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("class Small:\n    pass\n")
    (tmp_path / "experiment.yaml").write_text(SPEC)
    return tmp_path


def test_a_file_brings_its_folder(folder: Path) -> None:
    for given in (folder / "experiment.yaml", str(folder / "experiment.yaml")):
        submission = prepare(given)
        assert submission.folder == folder
        assert submission.source.endswith("experiment.yaml")
        assert submission.spec.name == "small"


def test_text_and_mapping_take_the_current_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert prepare(SPEC).folder == folder
    data: dict[str, Any] = {
        "name": "small",
        "trainer": "train.py:Small",
        "metric": {"name": "accuracy", "mode": "max"},
        "space": {"lr": {"uniform": [0.0, 1.0]}},
        "stop": {"jobs": 3, "max_iterations": 8},
    }
    assert prepare(data).spec == prepare(SPEC).spec


def test_a_mapping_leaves_to_its_policy_what_it_does_not_say(folder: Path) -> None:
    sent = load_spec(prepare({**yaml.safe_load(SPEC), "policy": "bohb"}, folder).text, "experiment")
    assert sent.with_generator("tpe").generator.name == "tpe"
    assert "predictor" not in sent.model_fields_set


def test_a_trainer_class_becomes_its_place(folder: Path) -> None:
    module_spec = spec_from_file_location("train_of_a_test", folder / "train.py")
    assert module_spec is not None
    assert module_spec.loader is not None
    module = module_from_spec(module_spec)
    sys.modules["train_of_a_test"] = module
    try:
        module_spec.loader.exec_module(module)
        submission = prepare(
            {
                "name": "small",
                "trainer": module.Small,
                "metric": {"name": "accuracy", "mode": "max"},
                "space": {"lr": {"choice": [1, 2]}},
                "stop": {"max_iterations": 8},
            }
        )
    finally:
        del sys.modules["train_of_a_test"]
    assert submission.spec.trainer == "train.py:Small"
    assert submission.folder == folder


def test_a_class_without_a_file_is_refused() -> None:
    made = type("Made", (), {"__module__": "nowhere"})
    with pytest.raises(InvalidInput, match="Made was not defined in a file"):
        prepare({"trainer": made})


def test_what_is_not_there_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nothing.yaml: there is no such file"):
        prepare("nothing.yaml")
    with pytest.raises(InvalidInput, match="this is a folder"):
        prepare(folder)
    with pytest.raises(InvalidInput, match="is not a folder"):
        prepare(SPEC, folder=folder / "train.py")
    with pytest.raises(InvalidInput, match=r"there is no file other.py"):
        prepare(SPEC.replace("train.py", "other.py"), folder=folder)
    with pytest.raises(SpecError, match=r"experiment:\d"):
        prepare("name: 3\nspace: {}\n")


def test_the_code_is_packed(folder: Path) -> None:
    assert "train.py" in pack(folder).files
    assert pack(folder).sha256 == pack(folder).sha256


@pytest.mark.parametrize("vanishing", [1, 99])
def test_a_file_that_vanishes_while_packing_is_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch, vanishing: int
) -> None:
    real, left = bundle.pack, vanishing

    def busy(given: Path, **more: Any) -> bundle.Bundle:
        nonlocal left
        left -= 1
        if left >= 0:
            raise FileNotFoundError(2, "No such file or directory", "code/.train.py.swp")
        return real(given, **more)

    monkeypatch.setattr(bundle, "pack", busy)
    if vanishing == 1:
        assert "train.py" in pack(folder).files
    else:
        with pytest.raises(
            InvalidInput, match=r"files disappear during packing, such as code/.train.py.swp; list them"
        ):
            pack(folder)


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ("", "/given"),
        ("interpreter: /own/python", ""),
        ("interpreter: env", "{folder}/env"),
        ("interpreter: no-env", ""),
        ("interpreter: env\nworking_directory: /elsewhere", ""),
        ("interpreter: ../env\nworking_directory: src", "{folder}/src/../env"),
    ],
)
def test_the_files_interpreter_wins_and_a_relative_one_is_found_beside_the_code(
    folder: Path, fields: str, sent: str
) -> None:
    (folder / "env").mkdir()
    (folder / "src").mkdir()
    submission = prepare(SPEC + fields, folder)
    assert submission.interpreter("/given") == sent.format(folder=folder)


def refused(file: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        prepare(file)
    return str(caught.value)


def test_a_program_points_to_init(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    said = "train.py: this is a program, not an experiment file; write one for it with: hopyard init train.py"
    assert refused(Path("train.py")) == said
    monkeypatch.chdir(folder.parent)
    file = Path(folder.name) / "train.py"
    assert refused(file).endswith(f"hopyard init {file} -o {file.parent}/experiment.yaml")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("search.ipynb", "{}", "this is a notebook, not an experiment file; call client.search in it"),
        ("pyproject.toml", "[project]\n", "this is TOML; an experiment file is YAML or JSON"),
        ("package.json", '{"name": "x", "scripts": {}}', "this is not an experiment file: it has none of the fields"),
        ("env.yaml", "name: x\ndependencies: [numpy]\n", "this is not an experiment file: it has none of the fields"),
    ],
)
def test_another_kind_of_file_is_named(tmp_path: Path, name: str, text: str, expected: str) -> None:
    (tmp_path / name).write_text(text)
    said = refused(tmp_path / name)
    assert said.startswith(f"{tmp_path / name}: {expected}")
    assert "hopyard init SCRIPT" in said
    assert "\n" not in said


def test_a_json_file_with_mistakes_is_no_other_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{"name": "x", "space": {"lr": {"uniform": [0, 1]}}, "metrik": "loss"}')
    assert "metrik: unknown field" in refused(tmp_path / "mine.json")


def test_a_folder_points_to_the_experiment_files_in_it(folder: Path, tmp_path: Path) -> None:
    (folder / "environment.yml").write_text("name: x\n")
    assert refused(folder) == f"{folder}: this is a folder; name the experiment file in it: {folder}/experiment.yaml"
    (folder / "experiment.yaml").unlink()
    said = f"this is a folder; it has no experiment file; write one for it with: hopyard init {folder}/train.py -o {folder}"
    assert said in refused(folder)
    (folder / "train.py").unlink()
    assert f"hopyard init {folder}/SCRIPT" in refused(folder)


IGNORED = "# large files\n\ndata/\n*.bin\n!keep.bin\n"


@pytest.fixture
def partly_packed(folder: Path) -> Path:
    """A code folder of which some files are not packed."""
    (folder / ".hopyardignore").write_text(IGNORED)
    for name in ("data/train.csv", "sub/weights.bin", "keep.bin", "logs/cluster.lock", "logs/x", "venv/bin/python"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    return folder


def submission(folder: Path, **fields: Any) -> Submission:
    command = {"trainer": None, "command": ["python", "train.py"], **fields}
    data = {name: value for name, value in {**yaml.safe_load(SPEC), **command}.items() if value is not None}
    return prepare(data, folder)


def test_what_is_not_packed_has_a_reason(partly_packed: Path) -> None:
    for path, reason in (
        ("data/train.csv", ".hopyardignore line 3 (data/) excludes it"),
        ("./data", ".hopyardignore line 3 (data/) excludes it"),
        ("sub/weights.bin", ".hopyardignore line 4 (*.bin) excludes it"),
        ("venv/bin/python", "the default pattern venv/ excludes it"),
        ("logs/x", f"{partly_packed / 'logs'} is the data directory of a cluster"),
        ("../" + partly_packed.name + "/../", f"it is outside of {partly_packed}"),
        (str(partly_packed / "data"), ".hopyardignore line 3 (data/) excludes it"),
        ("keep.bin", ""),
        ("train.py", ""),
        (".", ""),
        ("missing", ""),
    ):
        assert bundle.why_left_out(partly_packed, path) == reason, path
    packed = bundle.pack(partly_packed).files
    assert packed == (".hopyardignore", "experiment.yaml", "keep.bin", "train.py")


def test_a_path_of_the_command_that_is_not_packed_is_noted(partly_packed: Path) -> None:
    left_out = f"data/train.csv exists in {partly_packed} but is not packed for the nodes: .hopyardignore line 3 (data/) excludes it"
    assert left_out_note(submission(partly_packed)) == ""
    for fields in (
        {"command": ["python", "train.py", "data/train.csv"]},
        {"command": ["python", "train.py", "--data=data/train.csv"]},
        {"environment": {"DATA": "data/train.csv"}},
        {"command": None, "log": {"command": ["cat", "data/train.csv"], "metrics": {"accuracy": "a (.*)"}}},
    ):
        assert left_out_note(submission(partly_packed, **fields)) == left_out
    (partly_packed / "sub" / "run.sh").write_text("")
    moved = submission(partly_packed, command=["./run.sh", "weights.bin", "../keep.bin"], working_directory="sub")
    assert left_out_note(moved).startswith("sub/weights.bin exists in ")
    outside = left_out_note(submission(partly_packed, command=["python", "train.py", ".."]))
    assert outside == f".. exists but is not packed for the nodes: it is outside of {partly_packed}"


@pytest.mark.parametrize(
    ("fields", "pattern", "field"),
    [
        ({"trainer": "train.py:Small", "command": None}, "*.py", "trainer: train.py"),
        ({"working_directory": "data"}, "", "working_directory: data"),
    ],
)
def test_what_every_run_needs_must_be_packed(
    partly_packed: Path, fields: dict[str, Any], pattern: str, field: str
) -> None:
    (partly_packed / ".hopyardignore").write_text(f"{IGNORED}{pattern}\n")
    with pytest.raises(InvalidInput, match=f"{field} exists in .* but is not packed .*hopyardignore line"):
        submission(partly_packed, **fields)


@pytest.mark.parametrize(
    "error",
    [
        "setup at position 0: FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'",
        'the program ended with exit code 1; its last lines:\n  File "x.py"\ncat: data/train.csv: No such file or directory',
        "OSError: data/train.csv not found.",
        "FileNotFoundError: [Errno 2] No such file or directory: '/node/agent/.bundles/5af/data/train.csv'",
    ],
)
def test_a_missing_file_that_was_not_packed_is_named(partly_packed: Path, error: str) -> None:
    assert missing_file_note(submission(partly_packed), error) == (
        f"data/train.csv exists in {partly_packed} but is not packed for the nodes: .hopyardignore line 3 (data/) excludes it"
    )


@pytest.mark.parametrize(
    "error",
    [
        "",
        "ValueError: no data",
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/other.csv'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/home/data.csv'",
    ],
)
def test_other_errors_name_no_file(partly_packed: Path, error: str) -> None:
    assert missing_file_note(submission(partly_packed), error) == ""
