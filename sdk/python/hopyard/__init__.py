"""Hopyard: a cluster for hyperparameter search.

The public names are loaded on first use, so that a training script that imports hopyard loads only the modules it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from hopyard._version import __version__

if TYPE_CHECKING:
    from hopyard.client import AsyncClient, Client
    from hopyard.generator import Generator
    from hopyard.policy import Policy
    from hopyard.script import checkpoint, hyperparameters, report, seed
    from hopyard.script.trial import Trial
    from hopyard.study import AsyncStudy, Study
    from hopyard.trainer import Trainer

__all__ = [
    "AsyncClient",
    "AsyncStudy",
    "Client",
    "Generator",
    "Policy",
    "Study",
    "Trainer",
    "Trial",
    "__version__",
    "checkpoint",
    "hyperparameters",
    "report",
    "seed",
]

_HOME: Final = {
    "AsyncClient": "hopyard.client",
    "AsyncStudy": "hopyard.study",
    "Client": "hopyard.client",
    "Generator": "hopyard.generator",
    "Policy": "hopyard.policy",
    "Study": "hopyard.study",
    "Trainer": "hopyard.trainer",
    "Trial": "hopyard.script.trial",
    "checkpoint": "hopyard.script",
    "hyperparameters": "hopyard.script",
    "report": "hopyard.script",
    "seed": "hopyard.script",
}


if not TYPE_CHECKING:  # with this function, a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Load a public name from its module on first use (PEP 562). Raise AttributeError for any other name."""
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Return the public names, sorted."""
    return sorted(__all__)
