"""A process that answers questions to one predictor: `python -m hopyard.predictor.process PARENT [--priority NICE]`.

It is of the lowest priority unless told otherwise, since training goes on beside it; when memory is short it is the first to go;
and it ends with the process that started it. Frames go in by the
standard input and out by the standard output: four bytes of length, the highest first, then JSON. What the predictor's own code
prints goes to the standard error.

The first frame says which predictor (`name`, `parameters`, and `path`: folders to look for it first); it is answered by what it
`reads` or an `error`. Each further one is a question (`hopyard.predictor.wire`), answered by its `result` or an `error`.
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

from hopyard.errors import InvalidInput
from hopyard.predictor.asking import predicted
from hopyard.predictor.base import Predictor
from hopyard.predictor.loading import new_predictor
from hopyard.predictor.wire import question_from_json
from hopyard.runner.watch import die_with

_MOST_CHARACTERS: Final = 4000
_LOWEST: Final = 19
_FIRST_TO_GO: Final = Path("/proc/self/oom_score_adj")


def answer(predictor: Predictor, question_json: bytes) -> dict[str, Any]:
    """What a predictor says to a question: its `result`, or the `error` that its code raised or its answer has."""
    try:
        return {"result": predicted(predictor, question_from_json(question_json))}
    except InvalidInput as error:
        return _failed(str(error))


def serve(read: Callable[[], bytes | None], write: Callable[[dict[str, Any]], None]) -> None:
    """Answer until there is nothing more to read."""
    first = read()
    if first is None:
        return
    wanted = json.loads(first)
    sys.path[:0] = wanted["path"]
    try:
        predictor = new_predictor(wanted["name"], wanted["parameters"])
    except InvalidInput as error:
        write(_failed(str(error)))
        return
    write({"reads": predictor.reads})
    while (question := read()) is not None:
        write(answer(predictor, question))


def _failed(error: str) -> dict[str, Any]:
    """What a message can hold: bounded, and without the halves of characters that somebody's text may have."""
    return {"error": error[:_MOST_CHARACTERS].encode("utf-8", "backslashreplace").decode()}


def _read(stream: BinaryIO) -> bytes | None:
    head = stream.read(4)
    if len(head) < 4:
        return None
    return stream.read(int.from_bytes(head, "big"))


def _write(stream: BinaryIO, said: dict[str, Any]) -> None:
    body = json.dumps(said, separators=(",", ":")).encode()
    stream.write(len(body).to_bytes(4, "big") + body)
    stream.flush()


def main() -> None:
    """Keep the two streams for the frames, whatever the predictor's code does with input and output."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("parent", type=int)
    arguments.add_argument("--priority", type=int, default=_LOWEST)
    given = arguments.parse_args()
    die_with(given.parent)
    os.nice(given.priority)
    with suppress(OSError):  # Not on this system.
        _FIRST_TO_GO.write_text("1000")
    frames_in, frames_out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    serve(lambda: _read(frames_in), lambda said: _write(frames_out, said))


if __name__ == "__main__":
    main()
