"""Policy hosts: load policies, make up-calls on them with a view of their experiment, and return their answers as events.

The names of this package are imported on first use, because programs that only describe events need no policies.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hopyard_engine.policy_host.host import (
        Host,
        MissingPolicy,
        PolicyHost,
        RecordedAnswer,
        as_recorded,
        took_too_long,
    )
    from hopyard_engine.policy_host.view import CoreView, experiment_view, job_view, slot_view, terms_view

__all__ = [
    "CoreView",
    "Host",
    "MissingPolicy",
    "PolicyHost",
    "RecordedAnswer",
    "as_recorded",
    "experiment_view",
    "job_view",
    "slot_view",
    "terms_view",
    "took_too_long",
]

_MODULES: Final = ("host", "view")
"""The modules that define the names."""

if not TYPE_CHECKING:  # A type checker that sees this function would accept any name.

    def __getattr__(name: str) -> object:
        """Import a public name of this package from its module on first use (PEP 562).

        Raises:
            AttributeError: The package has no such public name.
        """
        if name in __all__:
            for module in _MODULES:
                found = vars(import_module(f"{__name__}.{module}"))
                if name in found:
                    globals()[name] = found[name]
                    return found[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
