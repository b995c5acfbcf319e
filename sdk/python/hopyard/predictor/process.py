"""A process that answers questions with one predictor: `python -m hopyard.predictor.process PARENT [--priority NICE]`.

PARENT is the id of the process that starts this process; this process ends with it. NICE is the nice value of this process
(default: 19, the lowest priority). Requests arrive on standard input and answers are written to standard output, each as a
frame: four bytes of length, big-endian, then JSON (`hopyard._runtime.processes.worker_process`).

The first frame names the predictor: `name`, `parameters`, and `path`, a list of folders to search for modules first. Its
answer is an object with `reads` or `error`. Each further frame is a question (`hopyard.predictor.wire`); its answer is an
object with `result` or `error`.
"""

from __future__ import annotations

from typing import Any

from hopyard._runtime.processes import worker_process
from hopyard.predictor.factory import new_predictor
from hopyard.predictor.invoke import predicted
from hopyard.predictor.wire import question_from_json


def begin(wanted: dict[str, Any]) -> tuple[dict[str, Any], worker_process.Answer]:
    """Create the predictor that the first frame names.

    Args:
        wanted: The first frame. Its `name` and `parameters` describe the predictor; its `path` was applied before the call.

    Returns:
        The answer to the first frame (an object with the predictor's `reads`), and the function that answers each later frame.

    Raises:
        InvalidInput: The predictor cannot be created.
    """
    predictor = new_predictor(wanted["name"], wanted["parameters"])
    return {"reads": predictor.reads}, lambda question: {"result": predicted(predictor, question_from_json(question))}


if __name__ == "__main__":
    worker_process.main(begin)
