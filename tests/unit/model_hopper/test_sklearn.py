"""Tests of scikit-learn estimators that hop: trained by `partial_fit`, saved without pickles."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("skops")

from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier

from hopyard import model_hopper
from hopyard.model_hopper.sklearn import ScikitLearn
from hopyard.trainer import UserCodeError
from tests.unit.model_hopper import programs
from tests.unit.model_hopper.programs import Arrays, partition, tour, visit

KINDS = {"sgd": SGDClassifier, "bayes": GaussianNB, "mlp": MLPClassifier}


def model_fn(config: Mapping[str, Any]) -> Any:
    kind = KINDS[config["kind"]]
    return kind() if kind is GaussianNB else kind(random_state=1)


def train_fn(data: Arrays, model: Any, optimizer: None, config: Mapping[str, Any]) -> dict[str, float]:
    model.partial_fit(*data, classes=[0, 1])
    return {"train_accuracy": model.score(*data)}


def evaluate_fn(data: Arrays, model: Any, config: Mapping[str, Any]) -> dict[str, float]:
    return {"accuracy": model.score(*data)}


PROGRAM = model_hopper.trainer(
    input_fn=programs.input_fn, model_fn=model_fn, train_fn=train_fn, evaluate_fn=evaluate_fn
)


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    return [partition(tmp_path / f"part{number}.npz", 60, number) for number in range(3)]


@pytest.mark.parametrize("kind", KINDS)
def test_hops_train_as_one_estimator_that_stays(kind: str, parts: list[Path], tmp_path: Path) -> None:
    config = {"kind": kind}
    tour(PROGRAM, config, parts, tmp_path)
    stayed = model_fn(config)
    for part in parts:
        stayed.partial_fit(*programs.input_fn(part), classes=[0, 1])
    data = programs.input_fn(parts[0])
    report = visit(PROGRAM, config, parts[0], tmp_path, snapshot=tmp_path / "snapshot-2", mode="evaluate")
    assert report.metrics["accuracy"] == stayed.score(*data)
    hopped, _ = ScikitLearn().load(model_fn(config), None, tmp_path / "snapshot-2" / "state" / "model")
    for name, value in vars(stayed).items():
        if isinstance(value, np.ndarray):
            assert np.array_equal(value, getattr(hopped, name)), name


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_training_leaves_the_same_bytes(kind: str, parts: list[Path], tmp_path: Path) -> None:
    """Check that a saved model does not contain addresses of objects or the time of day."""
    saved: list[list[bytes]] = []
    kept: list[object] = []
    for life in ("one", "other"):
        files = []
        for number, part in enumerate(parts):
            before = tmp_path / f"{life}-{number - 1}" if number else None
            visit(PROGRAM, {"kind": kind}, part, tmp_path, snapshot=before, save=tmp_path / f"{life}-{number}")
            files.append(tmp_path / f"{life}-{number}" / "state" / "model" / "model.skops")
            kept += [bytearray(144) for _ in range(7 * (life == "one"))]  # so that addresses differ
        saved.append([file.read_bytes() for file in files])
        with zipfile.ZipFile(files[-1]) as archive:
            assert {one.date_time for one in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert saved[0] == saved[1]


class Doubled:
    """A callable of the user's code inside an estimator."""

    def __call__(self, x: Any) -> Any:
        return 2 * x


def test_objects_of_other_classes_are_named_and_refused(tmp_path: Path) -> None:
    from sklearn.preprocessing import FunctionTransformer

    with pytest.raises(TypeError, match=r"Doubled.*trusted="):
        ScikitLearn().save(FunctionTransformer(Doubled()), None, tmp_path)
    name = f"{Doubled.__module__}.Doubled"
    handler = ScikitLearn(trusted=(name,))
    handler.save(FunctionTransformer(Doubled()), None, tmp_path)
    assert isinstance(handler.load(FunctionTransformer(), None, tmp_path)[0].func, Doubled)


def test_an_estimator_of_another_class_is_refused(parts: list[Path], tmp_path: Path) -> None:
    visit(PROGRAM, {"kind": "sgd"}, parts[0], tmp_path, save=tmp_path / "saved")
    with pytest.raises(Exception, match=r"holds a SGDClassifier; model_fn makes a GaussianNB"):
        visit(PROGRAM, {"kind": "bayes"}, parts[0], tmp_path, snapshot=tmp_path / "saved")


def test_a_missing_library_is_named(parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skops.io", None)

    class Fresh(PROGRAM):  # type: ignore[misc, valid-type]
        _found = None

    with pytest.raises(UserCodeError, match=r"pip install .*\[sklearn\]'"):
        visit(Fresh, {"kind": "sgd"}, parts[0], tmp_path)
