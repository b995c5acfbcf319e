"""Imports the public names of a package on first use (PEP 562), for packages of which most programs need only a part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any


def from_modules(namespace: dict[str, Any], modules: Sequence[str]) -> Callable[[str], Any]:
    """Return a function to use as the `__getattr__` of a package. It imports a public name from the module that defines it.

    Args:
        namespace: The globals of the package, with `__all__`. An imported name is added to them.
        modules: The modules of the package that define the names of `__all__`, the cheapest to import first.

    The function raises AttributeError if the package has no such public name.
    """
    package = namespace["__name__"]

    def load(name: str) -> Any:
        if name in namespace["__all__"]:
            for module in modules:
                home = import_module(f"{package}.{module}")
                if hasattr(home, name):
                    namespace[name] = found = getattr(home, name)
                    return found
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
