"""A process that answers a policy's questions of one kind: `python -m hopyard.solver.process PARENT [--priority NICE]`.

`hopyard.runner.frames` tells how it lives. The first frame says which solver (`kind`, and `path`: folders to look for it first); it is
answered by an object that is empty, or has an `error`. Each further one is a question (`payload`, `seconds`), answered by its
`result` or an `error`.
"""

from __future__ import annotations

import json
from typing import Any

from hopyard.runner import frames
from hopyard.solver.asking import new_solver, solved


def begin(wanted: dict[str, Any]) -> tuple[dict[str, Any], frames.Answer]:
    """The solver that is wanted."""
    kind = wanted["kind"]
    solver = new_solver(kind)

    def answer(question: bytes) -> dict[str, Any]:
        asked = json.loads(question)
        return {"result": solved(kind, solver, asked["payload"], asked["seconds"])}

    return {}, answer


if __name__ == "__main__":
    frames.main(begin)
