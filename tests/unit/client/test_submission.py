"""Tests of the arguments of `create`: what it accepts, and its errors for anything else."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import yaml

from hopyard._runtime import bundle
from hopyard.client.submission import pack, prepare
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
