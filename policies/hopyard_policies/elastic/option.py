"""The parameter `elastic` of policies, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

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
        number = int(size) if isinstance(size, str) and size.isdecimal() else size  # JSON has no other keys.
        if type(number) is not int or number < 1 or number in found or not is_number(seconds) or seconds <= 0:
            raise ValueError(
                f"elastic.profile has {size!r}: {seconds!r}; it must be a number of machines, each once, with the seconds (> 0) that "
                "a unit takes on them"
            )
        found[number] = seconds
    if not found:
        raise ValueError(
            f'elastic.profile is {profile!r}; it must be seconds by number of machines, such as {{"1": 8.0, "2": 4.2}}'
        )
    return found


def is_number(value: object) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and type(value) is not bool and math.isfinite(value)
