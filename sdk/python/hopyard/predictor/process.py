"""A process that answers questions to one predictor: `python -m hopyard.predictor.process PARENT [--priority NICE]`.

`hopyard.runner.frames` tells how it lives. The first frame says which predictor (`name`, `parameters`, and `path`: folders to look
for it first); it is answered by what it `reads` or an `error`. Each further one is a question (`hopyard.predictor.wire`), answered by
its `result` or an `error`.
"""

from __future__ import annotations

from typing import Any

from hopyard.predictor.asking import predicted
from hopyard.predictor.loading import new_predictor
from hopyard.predictor.wire import question_from_json
from hopyard.runner import frames


def begin(wanted: dict[str, Any]) -> tuple[dict[str, Any], frames.Answer]:
    """The predictor that is wanted."""
    predictor = new_predictor(wanted["name"], wanted["parameters"])
    return {"reads": predictor.reads}, lambda question: {"result": predicted(predictor, question_from_json(question))}


if __name__ == "__main__":
    frames.main(begin)
