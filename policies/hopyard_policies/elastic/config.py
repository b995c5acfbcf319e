"""The parameter `elastic` of policies, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

MOST_MACHINES: Final = 10_000
"""The largest gang that may be spoken of."""

_OPTIONS: Final = ("profile", "efficiency", "pause", "most", "anew")


def checked(option: object) -> Mapping[str, Any]:
    """The option as a mapping of what it may have.

    Raises:
        ValueError: It is none.
    """
    if not isinstance(option, Mapping):
        raise ValueError(
            f"elastic: found {option!r}; it must be a mapping, which may have {', '.join(_OPTIONS)}: {{}} measures what it needs"
        )
    if strange := sorted(str(name) for name in set(option) - set(_OPTIONS)):
        raise ValueError(f"elastic has no option {', '.join(strange)}; it may have {', '.join(_OPTIONS)}")
    return option


def profile_of(profile: object) -> dict[int, float]:
    """Seconds by number of machines, as an experiment file or JSON has them.

    Raises:
        ValueError: They are not.
    """
    found: dict[int, float] = {}
    for size, seconds in profile.items() if isinstance(profile, Mapping) else ():
        number = (
            int(size) if isinstance(size, str) and size.isdecimal() and len(size) <= 9 else size
        )  # JSON has no other keys.
        sized = type(number) is int and 0 < number <= MOST_MACHINES and number not in found
        if not sized or not is_number(seconds) or seconds <= 0:
            raise ValueError(
                f"elastic.profile has {_short(size)}: {_short(seconds)}; it must be a number of machines, up to {MOST_MACHINES}, each "
                "once, with the seconds (> 0) that a unit takes on them"
            )
        found[number] = seconds
    if not found:
        raise ValueError(
            f'elastic.profile is {profile!r}; it must be seconds by number of machines, such as {{"1": 8.0, "2": 4.2}}'
        )
    return found


def is_number(value: object) -> bool:
    """Whether it is a finite number."""
    if not isinstance(value, int | float) or type(value) is bool:
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # A whole number that no float can hold.
        return False


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:30]}..."
