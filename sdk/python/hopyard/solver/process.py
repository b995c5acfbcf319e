"""A process that runs requests of policies to one solver: `python -m hopyard.solver.process PARENT [--priority NICE]`.

PARENT is the id of the process that starts this process; this process ends with it. NICE is the nice value of this process
(default: 19, the lowest priority). Requests arrive on standard input and answers are written to standard output, each as a
frame: four bytes of length, big-endian, then JSON (`hopyard._runtime.processes.worker_process`).

The first frame names the solver: `kind`, and `path`, a list of folders to search for modules first. The answer is an empty
object, or an object with `error`. Each further frame is a request with `payload` and `seconds`; its answer is an object with
`result` or `error`.
"""

from __future__ import annotations

import json
from typing import Any

from hopyard._runtime.processes import worker_process
from hopyard.solver.invoke import new_solver, solved


def begin(wanted: dict[str, Any]) -> tuple[dict[str, Any], worker_process.Answer]:
    """Create the solver that the first frame names.

    Args:
        wanted: The first frame; `kind` names the solver.

    Returns:
        The answer to the first frame (an empty object), and the function that answers each later frame.

    Raises:
        InvalidInput: The solver cannot be created.
    """
    kind = wanted["kind"]
    solver = new_solver(kind)

    def answer(question: bytes) -> dict[str, Any]:
        asked = json.loads(question)
        return {"result": solved(kind, solver, asked["payload"], asked["seconds"])}

    return {}, answer


if __name__ == "__main__":
    worker_process.main(begin)
