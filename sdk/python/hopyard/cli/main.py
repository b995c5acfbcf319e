"""The entry point of the `hopyard` command."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import Final

from hopyard.cli.errors import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, Interrupted, report
from hopyard.cli.output import discard, reader_closed

_GARBAGE_OBJECTS: Final = 200_000
"""Number of new objects after which Python looks for cyclic garbage: imports create up to 150,000 and no garbage."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code: 0 (done), 1 (failed), 2 (wrong use), 130 (interrupted) and others.

    `arguments` are the words after `hopyard` on the command line; None: those of this process.

    The working directory is added to the import path, so that policies named `module:Class` are found, as in the services
    that `hopyard run` starts.
    """
    _open_missing_streams()
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
        from hopyard._common.extras import install_command

        sys.stderr.write(f"error: the hopyard command needs {error.name}: {install_command('cli')}\n")
        return EXIT_FAILED
    try:
        code = _code(build(arguments)(arguments, prog_name="hopyard"))
        sys.stdout.flush()
        return code
    except SystemExit as error:
        # Rich and click end the process with 1 if the reader closed the pipe.
        return _end_without_reader() if isinstance(error.__context__, BrokenPipeError) else _code(error.code)
    except (KeyboardInterrupt, Interrupted):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _end_without_reader()
    except Exception as error:  # noqa: BLE001 - the outermost handler: no command may end in a traceback
        return report(error)


def _open_missing_streams() -> None:
    """Replace a stdout or stderr that was closed when the process started (`2>&-`) by the null device.

    Otherwise messages would raise errors, and the next opened file would get the descriptor of the missing stream.
    """
    while sys.stdout is None or sys.stderr is None:
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it stays open until the process ends
        if sys.stdout is None:
            sys.stdout = stream
        else:
            sys.stderr = stream


def _end_without_reader() -> int:
    """Discard all further output, since the reader closed the pipe (`hopyard jobs | head`), and return the exit code 0."""
    for stream in (sys.stdout, sys.stderr):
        if reader_closed(stream):
            discard(stream)
    return EXIT_DONE


def _code(given: object) -> int:
    if given is None:
        return EXIT_DONE
    return given if isinstance(given, int) else EXIT_FAILED


if __name__ == "__main__":
    main()
