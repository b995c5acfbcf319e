"""Models of scikit-learn, trained with `partial_fit`.

They are saved with skops, whose files hold arrays, numbers and the names of classes: reading one constructs objects of known classes
and runs nothing that the file brings along, as reading a pickle (joblib's format too) would. A file of skops has addresses of objects
and the time of day in it; these are put in order, so that the same training leaves the same bytes. (Bytes of equal models that were
trained otherwise may differ: a file tells which arrays were one and the same.)
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
    """Saves an estimator, or a pipeline or other container of estimators; there is no optimizer beside it."""

    def __init__(self, *, trusted: tuple[str, ...] = ()) -> None:
        """Allow classes of scikit-learn, NumPy and SciPy, and those of your own that are named (`module.Class`).

        Raises:
            Unsupported: skops is not installed.
        """
        self._io = need("skops.io", "sklearn")
        self._trusted = frozenset(trusted)

    def save(self, model: Any, optimizer: Any, directory: Path) -> None:
        """Write the estimator; what could not be read again is refused here.

        Raises:
            TypeError: `model_fn` returned an optimizer, which has no place here, or the estimator holds objects of other classes.
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
        """Read the estimator: a new object of the class that `model_fn` makes.

        Raises:
            SnapshotStateError: it is none, or one of another class.
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
        """The classes in a file beyond those that skops always takes."""
        named: list[str] = self._io.get_untrusted_types(file=path)
        others = [one for one in named if not one.startswith("sklearn.") and one not in self._trusted]
        if others:
            raise TypeError(
                f"the estimator holds objects of {', '.join(others)}, which a snapshot does not bring back unasked; if they are "
                "yours: model_hopper.trainer(..., handler=ScikitLearn(trusted=(...)))"
            )
        return named


def _in_order(file: bytes) -> bytes:
    """The same file with its objects numbered as they come, instead of by their addresses, and without a time."""
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
    """Numbers what is below a node of a schema, files included. Plain values are never one and the same: whether they are is chance."""
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
