"""Converts errors to a message for the user and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Final

from hopyard._common.formatting import printable
from hopyard.errors import HopyardError, Internal, InvalidInput, Unavailable, os_error_text

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_WRONG_USE: Final = 2
EXIT_INTERRUPTED: Final = 130

EXIT_OUTPUT_CLOSED: Final = 141
"""Exit code of a command that ended because nobody reads its output any more: 128 + 13, as shells report SIGPIPE."""

DEBUG_VARIABLE: Final = "HOPYARD_DEBUG"
"""Environment variable: if it is set, errors are shown with their traceback."""


class WrongUse(InvalidInput):
    """Raised when the command line is invalid. The exit code of the command is 2."""


class Interrupted(BaseException):
    """Raised when a signal, such as that of Ctrl-C, or a closed output ends a command; see `Interrupts`.

    Like KeyboardInterrupt, it is not an `Exception`, so that handlers of errors do not catch it.
    """


def explain(error: Exception) -> tuple[str, int]:
    """Return the message for the user and the exit code of the command for an error.

    The code is 2 for an invalid command line, input or experiment file, else 1.
    """
    # Importing SpecError loads pydantic. If the module is not loaded, the error cannot be a SpecError.
    spec_errors = sys.modules.get("hopyard.spec.errors")
    if spec_errors is not None and isinstance(error, spec_errors.SpecError):
        return str(error), EXIT_WRONG_USE
    text = str(error) or type(error).__name__
    match error:
        case InvalidInput():
            return text, EXIT_WRONG_USE
        case Unavailable():
            return text, EXIT_FAILED
        case Internal():
            return f"{text} (a bug in Hopyard: the services' logs have the traceback)", EXIT_FAILED
        case HopyardError():
            return text, EXIT_FAILED
        case OSError():
            return os_error_text(error), EXIT_FAILED
        case _:
            name = type(error).__name__
            return f"a bug in Hopyard: {name}: {text} (set {DEBUG_VARIABLE}=1 for the traceback)", EXIT_FAILED


def report(error: Exception) -> int:
    """Write the message of an error to stderr and return the exit code: 2 for invalid input, else 1.

    If HOPYARD_DEBUG is set, raise the error instead.
    """
    if os.environ.get(DEBUG_VARIABLE):
        raise error
    text, code = explain(error)
    lines = printable(text).splitlines()
    # A SpecError has one line for each mistake; other errors have one line and possibly details.
    sys.stderr.write("".join([f"error: {lines[0]}\n", *(f"{line}\n" for line in lines[1:])]))
    return code
