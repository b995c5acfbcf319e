"""Validation of the policy parameter `elastic`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

MOST_SLOTS: Final = 10_000
"""Upper limit of the size of a gang."""

_OPTIONS: Final = ("profile", "efficiency", "pause", "most", "anew")


def checked(option: object) -> Mapping[str, Any]:
    """Check that the policy parameter `elastic` is a mapping with known keys (`_OPTIONS`), and return it unchanged.

    The values are not checked.

    Raises:
        ValueError: `option` is not a mapping, or it has an unknown key.
    """
    if not isinstance(option, Mapping):
        raise ValueError(
            f"elastic: found {option!r}; it must be a mapping, which may have {', '.join(_OPTIONS)}: {{}} measures what it needs"
        )
    if strange := sorted(str(name) for name in set(option) - set(_OPTIONS)):
        raise ValueError(f"elastic has no option {', '.join(strange)}; it may have {', '.join(_OPTIONS)}")
    return option


def profile_of(profile: object) -> dict[int, float]:
    """Check a profile and return it: the seconds that a unit of training takes, by number of slots.

    Args:
        profile: A mapping from an experiment file or from JSON; its keys may be strings of digits.

    Raises:
        ValueError: A number of slots or a time is invalid, or the profile is empty or not a mapping.
    """
    found: dict[int, float] = {}
    for size, seconds in profile.items() if isinstance(profile, Mapping) else ():
        # JSON keys are strings.
        number = int(size) if isinstance(size, str) and size.isdecimal() and len(size) <= 9 else size
        sized = type(number) is int and 0 < number <= MOST_SLOTS and number not in found
        if not sized or not is_number(seconds) or seconds <= 0:
            raise ValueError(
                f"elastic.profile has {_short(size)}: {_short(seconds)}; it must be a number of slots, up to {MOST_SLOTS}, each "
                "once, with the seconds (> 0) that a unit takes on them"
            )
        found[number] = seconds
    if not found:
        raise ValueError(
            f'elastic.profile is {profile!r}; it must be seconds by number of slots, such as {{"1": 8.0, "2": 4.2}}'
        )
    return found


def is_number(value: object) -> bool:
    """Return whether a value is an integer or float that is finite as a float; False for booleans."""
    if not isinstance(value, int | float) or type(value) is bool:
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # An integer too large for a float.
        return False


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:30]}..."
