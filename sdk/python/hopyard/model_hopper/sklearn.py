"""The handler of scikit-learn models, which are trained with `partial_fit`.

Models are saved with skops, whose files contain arrays, numbers and class names: reading one creates objects of known classes
and, unlike reading a pickle (also joblib's format), executes no code from the file. A file of skops contains memory addresses
of objects and the time; both are replaced, so that equal trainings give equal bytes. (Equal models from different
trainings may differ in bytes, because a file records which arrays are the same object.)
"""

from __future__ import annotations

import io
import itertools
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hopyard._common.optional_import import need
from hopyard.model_hopper.frameworks import Handler
from hopyard.trainer import SnapshotStateError

_FILE: Final = "model.skops"
_SCHEMA: Final = "schema.json"


class ScikitLearn(Handler):
    """The handler of a scikit-learn estimator, a pipeline, or another container of estimators; `model_fn` returns no optimizer.

    Args:
        trusted: Classes (`module.Class`) that a snapshot may contain in addition to those of scikit-learn, NumPy and SciPy.

    Raises:
        Unsupported: skops is not installed.
    """

    def __init__(self, *, trusted: tuple[str, ...] = ()) -> None:
        self._io = need("skops.io", "sklearn")
        self._trusted = frozenset(trusted)

    def save(self, model: Any, optimizer: Any, directory: Path) -> None:
        """Write the estimator `model` into `directory`.

        Raises:
            TypeError: `model_fn` returned an optimizer, or the estimator contains objects of classes that `load` would refuse: neither
                of scikit-learn, NumPy or SciPy, nor in `trusted`.
        """
        if optimizer is not None:
            raise TypeError(
                f"model_fn returned a scikit-learn estimator and the optimizer {type(optimizer).__qualname__}; allowed: the "
                "estimator alone"
            )
        path = directory / _FILE
        path.write_bytes(_in_order(self._io.dumps(model)))
        self._trust(path)

    def load(self, model: Any, optimizer: Any, directory: Path) -> tuple[Any, None]:
        """Return the estimator saved in `directory`, a new object of the same class as `model`, and None as optimizer.

        Raises:
            SnapshotStateError: The file contains no estimator, or one of another class.
            TypeError: The file contains objects of classes that are neither of scikit-learn, NumPy or SciPy, nor in `trusted`.
        """
        path = directory / _FILE
        try:
            found = self._io.load(path, trusted=self._trust(path))
        except (OSError, ValueError, KeyError) as error:
            raise SnapshotStateError(f"{path} cannot be read: {error}") from error
        if type(found) is not type(model):
            raise SnapshotStateError(
                f"{path} holds a {type(found).__qualname__}; model_fn makes a {type(model).__qualname__} of this configuration"
            )
        return found, None

    def _trust(self, path: Path) -> list[str]:
        """Return the classes in the skops file `path` that skops does not load by default; empty: none.

        Raises:
            TypeError: One of them is neither of scikit-learn nor in `trusted`, the argument of the constructor. (Those of NumPy and
                SciPy that a model may contain are loaded by default.)
        """
        named: list[str] = self._io.get_untrusted_types(file=path)
        others = [one for one in named if not one.startswith("sklearn.") and one not in self._trusted]
        if others:
            raise TypeError(
                f"the estimator holds objects of {', '.join(others)}, which a snapshot does not bring back unasked; if they are "
                "yours: model_hopper.trainer(..., handler=ScikitLearn(trusted=(...)))"
            )
        return named


def _in_order(file: bytes) -> bytes:
    """Return the contents of a skops file with objects numbered in order instead of by memory address, and without the time."""
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        schema = json.loads(archive.read(_SCHEMA))
        names: dict[str, str] = {}
        _number(schema, {}, itertools.count(), names)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as ordered:
            for old, new in sorted(names.items(), key=lambda name: name[1]):
                ordered.writestr(zipfile.ZipInfo(new), archive.read(old))
            ordered.writestr(zipfile.ZipInfo(_SCHEMA), json.dumps(schema))
    return buffer.getvalue()


def _number(node: Any, numbers: dict[int, int], fresh: Iterator[int], names: dict[str, str]) -> None:
    """Replace the memory addresses and file names below a node of a skops schema by consecutive numbers.

    Each plain (JSON) value gets a new number, because it is chance whether two equal ones are the same object.

    Args:
        node: A JSON value of the schema, which is changed in place.
        numbers: Number by memory address, of the objects numbered so far; new objects are added.
        fresh: Yields the next unused number.
        names: New file name by old one, of the files renamed so far; new files are added.
    """
    if isinstance(node, dict):
        if isinstance(address := node.get("__id__"), int):
            if node.get("is_json"):
                node["__id__"] = next(fresh)
            else:
                if address not in numbers:
                    numbers[address] = next(fresh)
                node["__id__"] = numbers[address]
        if isinstance(file := node.get("file"), str):
            names.setdefault(file, f"{len(names):06}{Path(file).suffix}")
            node["file"] = names[file]
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _number(child, numbers, fresh, names)
