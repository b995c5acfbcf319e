"""The rule for names of nodes."""

from __future__ import annotations

import re
from typing import Final

from hopyard.errors import InvalidInput

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


def check_node_name(name: str, place: str) -> str:
    """Return the name of a node if it has 1 to 128 letters, digits, '.', '_' and '-', as host names have, and is not '.' or '..'.

    Args:
        name: The name.
        place: Where it comes from, for the error message.

    Raises:
        InvalidInput: The name is invalid.
    """
    if _NAME.fullmatch(name) is None or name in (".", ".."):
        raise InvalidInput(f"{place}: found {name[:80]!r}, allowed are 1 to 128 letters, digits, '.', '_' and '-'")
    return name
