"""Handlers for machine learning libraries: seeding, saving, loading, evaluating and gangs, which differ between libraries."""

from __future__ import annotations

import importlib
import random
import sys
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

from hopyard.errors import Unsupported
from hopyard.model_hopper.gang import Gang
from hopyard.trainer import TrainerContext


class Handler(ABC):
    """Handles models of one library for a `HoppingTrainer`; `model` and `optimizer` are what `model_fn` returned.

    Subclass it for a library that Hopyard does not know, and implement at least `save` and `load`.
    """

    def prepare(self) -> None:
        """Make settings of this process on which results depend, such as the number of threads. Does nothing by default.

        It is called before a model is created.
        """

    def seed(self, seed: int) -> None:
        """Seed every random generator that training may use, by default the global ones of Python and NumPy; `seed` is 0 or more."""
        random.seed(seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed % 2**32)  # the most its legacy generator takes

    def change(self, model: Any, optimizer: Any, name: str, old: object, new: object) -> None:
        """Apply a changed hyperparameter to the model or optimizer. Does nothing by default.

        It is called once for each hyperparameter with a new value, before training continues; `train_fn` receives the value, too.

        Args:
            model: The model.
            optimizer: The optimizer.
            name: Name of the hyperparameter.
            old: Value until now; None: it had none.
            new: Value from now on; None: it has none.
        """

    def evaluating(self, model: Any) -> AbstractContextManager[object]:
        """Return a context manager within which the model is evaluated and not trained. Changes nothing by default."""
        return nullcontext()

    def gang(self, context: TrainerContext, model: Any) -> Gang:
        """Join the other ranks of a run on several slots, and return the gang. By default not supported.

        Raises:
            Unsupported: The library cannot train one model on several slots.
            GangError: The ranks did not all join.
        """
        raise Unsupported(
            f"a {type(model).__qualname__} trains on one slot, and it was placed on {context.world_size}; allowed on several: "
            "a torch.nn.Module"
        )

    @abstractmethod
    def save(self, model: Any, optimizer: Any, directory: Path) -> None:
        """Write the state of model and optimizer into an empty directory."""

    @abstractmethod
    def load(self, model: Any, optimizer: Any, directory: Path) -> tuple[Any, Any]:
        """Return model and optimizer with the state that `save` wrote into `directory`: the given objects or new ones."""


class SavedByItself(Handler):
    """The handler of models with methods `save(directory)` and `load(directory)`; it neither saves nor loads an optimizer."""

    def save(self, model: Any, optimizer: Any, directory: Path) -> None:
        """Call the model's method `save` with `directory`. The optimizer is not saved."""
        model.save(directory)

    def load(self, model: Any, optimizer: Any, directory: Path) -> tuple[Any, Any]:
        """Call the model's method `load` with `directory`, and return the given model and optimizer."""
        model.load(directory)
        return model, optimizer


_LIBRARIES: Final = {
    "torch": ("torch.nn", "Module", "hopyard.model_hopper.pytorch", "PyTorch"),
    "sklearn": ("sklearn.base", "BaseEstimator", "hopyard.model_hopper.sklearn", "ScikitLearn"),
}
"""By library: module and name of the base class of its models, and module and name of its handler."""


def handler_for(model: object) -> Handler:
    """Return the handler for a model, chosen by its type.

    A PyTorch module and a scikit-learn estimator have the handlers of these libraries. Any other model with methods `save` and `load`
    has a `SavedByItself`.

    Raises:
        Unsupported: The model is not a PyTorch module or scikit-learn estimator and has no methods `save` and `load`; or a library
            that its handler needs is not installed.
    """
    for library, (module, base, home, name) in _LIBRARIES.items():
        # A model of this library can exist only if the library is imported, so the check imports nothing.
        kind = getattr(sys.modules.get(module), base, None) if library in sys.modules else None
        if kind is not None and isinstance(model, kind):
            found: Handler = getattr(importlib.import_module(home), name)()
            return found
    if callable(getattr(model, "save", None)) and callable(getattr(model, "load", None)):
        return SavedByItself()
    raise Unsupported(
        f"model_fn returned a {type(model).__qualname__}; allowed: a torch.nn.Module, a scikit-learn estimator, something with "
        "save(directory) and load(directory), or any model with a handler of your own (model_hopper.trainer(..., handler=...))"
    )
