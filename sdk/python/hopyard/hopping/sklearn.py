"""Models of scikit-learn, trained with `partial_fit`.

They are saved with skops, whose files hold arrays, numbers and the names of classes: reading one constructs objects of known classes
and runs nothing that the file brings along, as reading a pickle (joblib's format too) would. Bytes of equal models may differ: a
file tells which objects were one and the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from hopyard.extras import need
from hopyard.hopping.handlers import Handler
from hopyard.trainer import SnapshotStateError

_FILE: Final = "model.skops"


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
        self._io.dump(model, path)
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
                "yours: hopping.trainer(..., handler=ScikitLearn(trusted=(...)))"
            )
        return named
