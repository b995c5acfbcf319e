"""A process that answers a policy's questions of one kind: `python -m hopyard.solver.process PARENT [--priority NICE]`.

`hopyard.runner.frames` tells how it lives. The first frame says which solver (`kind`, and `path`: folders to look for it first); it is
answered by an object that is empty, or has an `error`. Each further one is a question (`payload`, `seconds`), answered by its
`result` or an `error`.
"""

from __future__ import annotations

import json
import sys

from hopyard.errors import InvalidInput
from hopyard.runner import frames
from hopyard.solver.asking import new_solver, solved


def serve(read: frames.Read, write: frames.Write) -> None:
    """Answer until there is nothing more to read."""
    first = read()
    if first is None:
        return
    wanted = json.loads(first)
    sys.path[:0] = wanted["path"]
    try:
        solver = new_solver(wanted["kind"])
    except InvalidInput as error:
        write(frames.failed(str(error)))
        return
    write({})
    while (question := read()) is not None:
        asked = json.loads(question)
        try:
            write({"result": solved(wanted["kind"], solver, asked["payload"], asked["seconds"])})
        except InvalidInput as error:
            write(frames.failed(str(error)))


if __name__ == "__main__":
    frames.main(serve)
