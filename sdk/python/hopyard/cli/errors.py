"""What a person sees when something goes wrong: one line that says what to do, and an exit code."""

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

DEBUG_VARIABLE: Final = "HOPYARD_DEBUG"
"""Set, errors come with their traceback."""


class WrongUse(InvalidInput):
    """The command line itself cannot be carried out."""


class Interrupted(BaseException):
    """The person pressed Ctrl-C. Not an `Exception`, for the same reason as KeyboardInterrupt."""


def explain(error: Exception) -> tuple[str, int]:
    """The message for an error, and the exit code."""
    # Specifications load pydantic; when none was read, this cannot be one's mistake.
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
    """Write an error to stderr; answers the exit code. With HOPYARD_DEBUG set it is raised instead."""
    if os.environ.get(DEBUG_VARIABLE):
        raise error
    text, code = explain(error)
    lines = printable(text).splitlines()
    # A specification's mistakes are one a line, each with its place; everything else is one line and details.
    sys.stderr.write("".join([f"error: {lines[0]}\n", *(f"{line}\n" for line in lines[1:])]))
    return code
