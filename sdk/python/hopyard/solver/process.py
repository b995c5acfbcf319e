"""A process that answers a policy's questions of one kind: `python -m hopyard.solver.process PARENT [--priority NICE]`.

`hopyard._runtime.worker_process` defines its life. The first frame names the solver (`kind`, and `path`: folders to search first).
It is answered by an object that is empty, or has an `error`. Each further one is a question (`payload`, `seconds`), answered by its
`result` or an `error`.
"""

from __future__ import annotations

import json
from typing import Any

from hopyard._runtime import worker_process
from hopyard.solver.invoke import new_solver, solved


def begin(wanted: dict[str, Any]) -> tuple[dict[str, Any], worker_process.Answer]:
    """The solver that is wanted."""
    kind = wanted["kind"]
    solver = new_solver(kind)

    def answer(question: bytes) -> dict[str, Any]:
        asked = json.loads(question)
        return {"result": solved(kind, solver, asked["payload"], asked["seconds"])}

    return {}, answer


if __name__ == "__main__":
    worker_process.main(begin)
