"""The entry point of the `hopyard` command."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Final

from hopyard.cli.errors import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, Interrupted, report

_GARBAGE_OBJECTS: Final = 50_000
"""Number of new objects after which Python looks for cyclic garbage: imports create many and no garbage."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with 0 (done), 1 (failed), 2 (wrong use) or 130 (interrupted).

    `arguments` are the words after `hopyard` on the command line; None: those of this process.

    The working directory is added to the import path, so that policies named `module:Class` are found, as in the services
    that `hopyard run` starts.
    """
    gc.set_threshold(_GARBAGE_OBJECTS, 10, 10)
    if "" not in sys.path:
        sys.path.append("")  # last, so that the user's files do not hide installed modules
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: list[str]) -> int:
    """Run the command line `arguments` and return its exit code. The message of an error is written to stderr."""
    try:
        from hopyard.cli.app import build
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.stderr.write(f"error: the hopyard command needs {error.name}: pip install 'hopyard[cli]'\n")
        return EXIT_FAILED
    try:
        return _code(build(arguments)(arguments, prog_name="hopyard"))
    except SystemExit as error:
        return _code(error.code)
    except (KeyboardInterrupt, Interrupted):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe (`hopyard jobs | head`); without stdout the interpreter reports no error at exit.
        sys.stdout = None
        return EXIT_DONE
    except Exception as error:  # noqa: BLE001 - the outermost handler: no command may end in a traceback
        return report(error)


def _code(given: object) -> int:
    if given is None:
        return EXIT_DONE
    return given if isinstance(given, int) else EXIT_FAILED


if __name__ == "__main__":
    main()
