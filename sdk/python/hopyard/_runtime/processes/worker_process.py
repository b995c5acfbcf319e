"""Main loop of a worker process that runs one plugin and answers requests for it.

`hopyard.predictor.process` and `hopyard.solver.process` use it. The process runs at the given priority (nice value), by
default the lowest, so that it does not slow down training. The kernel kills it first if memory is short, and it ends with
the process that started it. Requests arrive on standard input and answers are written to standard output, each as a frame:
four bytes of length, big-endian, then JSON. What the plugin prints is written to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from hopyard._runtime.runner.watchdog import die_with
from hopyard.errors import InvalidInput

_MOST_CHARACTERS: Final = 4000
_LOWEST: Final = 19
_FIRST_TO_GO: Final = Path("/proc/self/oom_score_adj")

Read = Callable[[], bytes | None]
Write = Callable[[dict[str, Any]], None]

Answer = Callable[[bytes], dict[str, Any]]
"""A function that takes the bytes of a request frame and returns the answer."""

Begin = Callable[[dict[str, Any]], tuple[dict[str, Any], Answer]]
"""A function that processes the first frame; it returns the answer to this frame and the function that answers requests."""


def failed(error: str) -> dict[str, Any]:
    """Return an error answer with the text `error`, truncated to 4,000 characters.

    Lone surrogates are escaped, so that the text can be encoded as UTF-8.
    """
    return {"error": error[:_MOST_CHARACTERS].encode("utf-8", "backslashreplace").decode()}


def serve(begin: Begin, read: Read, write: Write) -> None:
    """Answer requests until the input ends; the message of an `InvalidInput` error becomes an error answer.

    If the first frame fails with `InvalidInput`, the error is written and the function returns. Other errors propagate.

    Args:
        begin: Processes the first frame, a JSON object whose `path` lists folders to put first on `sys.path`; returns the answer
            to it, and the function that answers requests.
        read: Returns the bytes of the next frame; None: the input has ended.
        write: Writes an answer.
    """
    first = read()
    if first is None:
        return
    wanted = json.loads(first)
    sys.path[:0] = wanted["path"]
    try:
        said, answer = begin(wanted)
    except InvalidInput as error:
        write(failed(str(error)))
        return
    write(said)
    while (question := read()) is not None:
        try:
            write(answer(question))
        except InvalidInput as error:
            write(failed(str(error)))


def main(begin: Begin) -> None:
    """Run `serve` on the process's standard streams until the input ends.

    The command line is `PARENT [--priority NICE]`: the process id of the parent, with which this process ends, and its nice
    value. Before the first frame, standard input is replaced by /dev/null and standard output by standard error, so that the plugin
    cannot read or write frames.

    Args:
        begin: As for `serve`.
    """
    arguments = argparse.ArgumentParser()
    arguments.add_argument("parent", type=int)
    arguments.add_argument("--priority", type=int, default=_LOWEST)
    given = arguments.parse_args()
    die_with(given.parent)
    os.nice(given.priority)
    with suppress(OSError):  # The system does not have this file.
        _FIRST_TO_GO.write_text("1000")
    frames_in, frames_out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    serve(begin, lambda: _read(frames_in), lambda said: _write(frames_out, said))


def _read(stream: BinaryIO) -> bytes | None:
    head = stream.read(4)
    if len(head) < 4:
        return None
    return stream.read(int.from_bytes(head, "big"))


def _write(stream: BinaryIO, said: dict[str, Any]) -> None:
    body = json.dumps(said, separators=(",", ":")).encode()
    stream.write(len(body).to_bytes(4, "big") + body)
    stream.flush()
