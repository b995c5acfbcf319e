"""Imports optional libraries where they are used, with an error that says what to install."""

from __future__ import annotations

import importlib
from typing import Any

from hopyard.errors import Unsupported


def need(module: str, extra: str) -> Any:
    """Imports and returns a module that the given extra installs.

    Raises:
        Unsupported: The module is not installed; the message says what to install.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise Unsupported(f"this needs: pip install 'hopyard[{extra}]' (no module {error.name})") from error
