"""Imports optional libraries where they are used, with an error that says what to install."""

from __future__ import annotations

import importlib
from typing import Any

from hopyard.errors import Unsupported


def need(module: str, extra: str) -> Any:
    """Import and return an optional module.

    Args:
        module: Name of the module.
        extra: The extra of Hopyard that installs the module, such as "data".

    Raises:
        Unsupported: The module is not installed; the message says what to install.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        from hopyard._common.extras import install_command

        raise Unsupported(f"this needs: {install_command(extra)} (no module {error.name})") from error
