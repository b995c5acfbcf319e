"""A process that answers questions with one predictor: `python -m hopyard.predictor.process PARENT [--priority NICE]`.

`hopyard._runtime.worker_process` defines its life. The first frame names the predictor (`name`, `parameters`, and `path`: folders to
search first); it is answered by what it `reads` or an `error`. Each further one is a question (`hopyard.predictor.wire`), answered by
its `result` or an `error`.
"""

from __future__ import annotations

from typing import Any

from hopyard._runtime import worker_process
from hopyard.predictor.factory import new_predictor
from hopyard.predictor.invoke import predicted
from hopyard.predictor.wire import question_from_json


def begin(wanted: dict[str, Any]) -> tuple[dict[str, Any], worker_process.Answer]:
    """The predictor that is wanted."""
    predictor = new_predictor(wanted["name"], wanted["parameters"])
    return {"reads": predictor.reads}, lambda question: {"result": predicted(predictor, question_from_json(question))}


if __name__ == "__main__":
    worker_process.main(begin)
