"""What differs between machine learning libraries when a model hops: seeding, saving, loading, and evaluating."""

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
    """One library's way; `model` and `optimizer` are what `model_fn` returned."""

    def prepare(self) -> None:
        """Settle what decides about results in this process, before a model is made. Does nothing here."""

    def seed(self, seed: int) -> None:
        """Seed every random generator that training may draw from; `seed` is 0 or more. Python's and NumPy's here."""
        random.seed(seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed % 2**32)  # the most its legacy generator takes

    def change(self, model: Any, optimizer: Any, name: str, old: object, new: object) -> None:
        """A hyperparameter has another value from now on; `train_fn` gets it anyway. Does nothing here."""

    def evaluating(self, model: Any) -> AbstractContextManager[object]:
        """A context in which the model is measured and does not learn. None of its own here."""
        return nullcontext()

    def gang(self, context: TrainerContext, model: Any) -> Gang:
        """Meet the other ranks of a run on several slots. Refused here: a model of most libraries trains on one.

        Raises:
            Unsupported: The library has no way to do that.
            GangError: The ranks did not come together.
        """
        raise Unsupported(
            f"a {type(model).__qualname__} trains on one slot, and it was placed on {context.world_size}; allowed on several: "
            "a torch.nn.Module"
        )

    @abstractmethod
    def save(self, model: Any, optimizer: Any, directory: Path) -> None:
        """Write the state of both into an empty directory."""

    @abstractmethod
    def load(self, model: Any, optimizer: Any, directory: Path) -> tuple[Any, Any]:
        """The model and the optimizer in the state that `save` wrote: those given, or new ones."""


class SavedByItself(Handler):
    """For models with methods `save(directory)` and `load(directory)`; their optimizer, if any, is their own matter."""

    def save(self, model: Any, optimizer: Any, directory: Path) -> None:
        """Let the model save itself."""
        model.save(directory)

    def load(self, model: Any, optimizer: Any, directory: Path) -> tuple[Any, Any]:
        """Let the model load itself."""
        model.load(directory)
        return model, optimizer


_LIBRARIES: Final = {
    "torch": ("torch.nn", "Module", "hopyard.model_hopper.pytorch", "PyTorch"),
    "sklearn": ("sklearn.base", "BaseEstimator", "hopyard.model_hopper.sklearn", "ScikitLearn"),
}
"""A library that is loaded, its models' base class, and its handler."""


def handler_for(model: object) -> Handler:
    """The handler of a model, by its type.

    Raises:
        Unsupported: it is no PyTorch module, no scikit-learn estimator, and has no `save` and `load`; or what its handler
            needs is not installed.
    """
    for library, (module, base, home, name) in _LIBRARIES.items():
        # Whoever has such a model has imported its library: nothing is imported to find out.
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
