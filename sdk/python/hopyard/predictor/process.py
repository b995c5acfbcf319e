"""A process that answers questions to one predictor: `python -m hopyard.predictor.process PARENT [--priority NICE]`.

`hopyard.runner.frames` tells how it lives. The first frame says which predictor (`name`, `parameters`, and `path`: folders to look
for it first); it is answered by what it `reads` or an `error`. Each further one is a question (`hopyard.predictor.wire`), answered by
its `result` or an `error`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from hopyard.errors import InvalidInput
from hopyard.predictor.asking import predicted
from hopyard.predictor.base import Predictor
from hopyard.predictor.loading import new_predictor
from hopyard.predictor.wire import question_from_json
from hopyard.runner import frames


def answer(predictor: Predictor, question_json: bytes) -> dict[str, Any]:
    """What a predictor says to a question: its `result`, or the `error` that its code raised or its answer has."""
    try:
        return {"result": predicted(predictor, question_from_json(question_json))}
    except InvalidInput as error:
        return frames.failed(str(error))


def serve(read: frames.Read, write: frames.Write) -> None:
    """Answer until there is nothing more to read."""
    first = read()
    if first is None:
        return
    wanted = json.loads(first)
    sys.path[:0] = wanted["path"]
    try:
        predictor = new_predictor(wanted["name"], wanted["parameters"])
    except InvalidInput as error:
        write(frames.failed(str(error)))
        return
    write({"reads": predictor.reads})
    while (question := read()) is not None:
        write(answer(predictor, question))


if __name__ == "__main__":
    frames.main(serve)
