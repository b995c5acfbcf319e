"""Libraries that only some need: imported where they are used, and named when they are not there."""

from __future__ import annotations

import importlib
from typing import Any

from hopyard.errors import Unsupported


def need(module: str, extra: str) -> Any:
    """A module of an extra.

    Raises:
        Unsupported: It is not installed; the message says what to install.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise Unsupported(f"this needs: pip install 'hopyard[{extra}]' (no module {error.name})") from error
