"""Checks of policy parameters."""

from __future__ import annotations


def need_whole(name: str, value: object, least: int = 1) -> None:
    """Check that a parameter is an integer, not a boolean, of at least `least`.

    Args:
        name: The name of the parameter, for the message.
        value: Its value.
        least: The least allowed value.

    Raises:
        ValueError: The value is not allowed. The message names the parameter, its value and the allowed values.
    """
    if type(value) is not int or value < least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}")


def need_seconds(name: str, value: object, most: float) -> None:
    """Check that a parameter is a number of seconds in (0, most].

    Args:
        name: The name of the parameter, for the message.
        value: Its value.
        most: The largest allowed value.

    Raises:
        ValueError: The value is not allowed. The message names the parameter, its value and the allowed values.
    """
    if type(value) not in (int, float) or not 0 < value <= most:  # type: ignore[operator]  # it is a number
        raise ValueError(f"{name} is {value!r}; it must be a number of seconds above 0, up to {most:g}")


def need_part(name: str, value: object) -> None:
    """Check that a parameter is a number in [0, 1]; booleans and NaN are not allowed.

    Args:
        name: The name of the parameter, for the message.
        value: Its value.

    Raises:
        ValueError: The value is not allowed. The message names the parameter, its value and the allowed values.
    """
    if type(value) not in (int, float) or not 0 <= value <= 1:  # type: ignore[operator]  # it is a number
        raise ValueError(f"{name} is {value!r}; it must be a number from 0 to 1")
