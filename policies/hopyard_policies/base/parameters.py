"""What the parameters of policies have in common."""

from __future__ import annotations


def need_whole(name: str, value: object, least: int = 1) -> None:
    """Refuses a parameter that is no whole number, or too small.

    Raises:
        ValueError: It is not, or is below `least`; it says what it is and what it must be.
    """
    if type(value) is not int or value < least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}")


def need_seconds(name: str, value: object, most: float) -> None:
    """Refuses a parameter that is no number of seconds above 0.

    Raises:
        ValueError: It is not, or is above `most`; it says what it is and what it must be.
    """
    if type(value) not in (int, float) or not 0 < value <= most:  # type: ignore[operator]  # it is a number
        raise ValueError(f"{name} is {value!r}; it must be a number of seconds above 0, up to {most:g}")


def need_part(name: str, value: object) -> None:
    """Refuses a parameter that is no part of a whole, 0 .. 1.

    Raises:
        ValueError: It is not; it says what it is and what it must be.
    """
    if type(value) not in (int, float) or not 0 <= value <= 1:  # type: ignore[operator]  # it is a number
        raise ValueError(f"{name} is {value!r}; it must be a number from 0 to 1")
