"""Reads JSON of unknown origin with limits, so that later steps can convert, send and store what was read."""

from __future__ import annotations

import json
import re
from typing import Any, Final

MAX_DEPTH: Final = 100
"""Maximum depth of nested lists and objects."""

MAX_DIGITS: Final = 308
"""Maximum length of an integer in characters. Each such integer can be converted to a float."""

MAX_COUNT: Final = 2**46
"""Maximum number of bytes or examples in one message of an agent. More than 100,000 of them can be added without exceeding int64."""

_BRACKET: Final = re.compile(r"[\[{]")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def read_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. `NaN`, `Infinity` and `-Infinity` are accepted, as Python's json module does.

    Raises:
        ValueError: The text is not JSON in UTF-8, is nested deeper than `MAX_DEPTH`, has an integer of more than `MAX_DIGITS`
            characters, or has an unpaired surrogate, which has no UTF-8 encoding. The message continues a sentence that begins
            with the name of the text, such as "is not JSON".
    """
    try:
        text = text.decode() if isinstance(text, bytes) else text
        found = json.loads(text, parse_int=_integer)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"is not JSON: {error}") from error
    except RecursionError:
        raise ValueError(f"is nested deeper than {MAX_DEPTH} levels") from None
    if sum(1 for _ in zip(_BRACKET.finditer(text), range(MAX_DEPTH + 1), strict=False)) > MAX_DEPTH:
        _check_depth(found)
    if _SURROGATE.search(text):
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("has text that is no Unicode: it contains an unpaired surrogate") from None
    return found


def read_count(found: object, name: str) -> int:
    """Return `found`, a number of bytes or things in a JSON value.

    Args:
        found: The value.
        name: Name of the value in the error message.

    Raises:
        ValueError: The value is not an integer from 0 to `MAX_COUNT`.
    """
    if type(found) is not int or not 0 <= found <= MAX_COUNT:
        raise ValueError(f"{name}: found {found!r:.80}, allowed is an integer from 0 to {MAX_COUNT}")
    return found


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"has an integer of {len(digits)} characters, at most {MAX_DIGITS} are allowed")
    return int(digits)


def _check_depth(found: object) -> None:
    level = [found]
    for _ in range(MAX_DEPTH + 1):
        nested = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, list | dict)]
        if not nested:
            return
        level = [item for items in nested for item in items]
    raise ValueError(f"is nested deeper than {MAX_DEPTH} levels")
