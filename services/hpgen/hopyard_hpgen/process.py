"""A process that runs the generator of one experiment: `python -m hopyard_hpgen.process PARENT [--priority NICE]`.

PARENT is the id of the process that starts this process; this process ends with it. Requests arrive on standard input and answers are
written to standard output, each as a frame: four bytes of length, big-endian, then JSON (`hopyard._runtime.processes.worker_process`).

The first frame has the experiment's specification (`spec`, as JSON) and the folders to search for modules first (`path`). The
answer has the properties of the generator, `size` and `reads`, or `error`. Each further frame is a call of the generator: `call`
is its method, and the other keys are its arguments. The answer has `configuration` for `create`. If the method raised an
exception, the answer has `raised` and `traceback`.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hopyard._common.formatting import printable
from hopyard._runtime.processes import worker_process
from hopyard.errors import InvalidInput
from hopyard.generator import Generator, Result
from hopyard.policy.vocabulary import JobState
from hopyard.spec import spec_from_json
from hopyard_hpgen.experiment_generator import make_generator

_MOST_CHARACTERS: Final = 4_000


def begin(wanted: dict[str, Any]) -> tuple[dict[str, Any], worker_process.Answer]:
    """Create the generator of the specification in the first frame.

    Args:
        wanted: The first frame.

    Returns:
        The answer to the first frame, and the function that answers each later frame.

    Raises:
        InvalidInput: The generator cannot be created.
    """
    spec = spec_from_json(wanted["spec"])
    try:
        generator = make_generator(spec)
    except InvalidInput:
        raise
    except BaseException as error:
        raise InvalidInput(f"generator {spec.generator.name}: {type(error).__name__}: {_text(error)}") from error
    terms = _guarded(lambda: _json({"size": generator.size, "reads": generator.reads}))
    if "raised" in terms:
        raise InvalidInput(f"generator {spec.generator.name}: its size or reads is invalid: {terms['raised']}")

    def answer(question: bytes) -> dict[str, Any]:
        asked = json.loads(question)
        return _guarded(lambda: _called(generator, asked))

    return terms, answer


def _called(generator: Generator, asked: dict[str, Any]) -> dict[str, Any]:
    match asked["call"]:
        case "create":
            return _json({"configuration": generator.create(asked["job"], asked["ordinal"])})
        case "report":
            generator.report(asked["job"], asked["position"], asked["metrics"])
        case "report_final":
            result = asked["result"]
            generator.report_final(asked["job"], Result(**result | {"outcome": JobState(result["outcome"])}))
        case other:
            raise ValueError(f"there is no call {other!r:.80}")
    return {}


def _json(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with values of foreign code. Raise TypeError if a value is not JSON."""
    try:
        json.dumps(answer)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{answer!r:.200} is not JSON: {error}") from error
    return answer


def _guarded(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return call()
    except BaseException as error:  # noqa: BLE001 (the answer has it)
        frames = traceback.extract_tb(error.__traceback__)
        raised = {
            "raised": f"{type(error).__name__}: {_text(error)} ({Path(frames[-1].filename).name}:{frames[-1].lineno})",
            "traceback": "".join(traceback.format_list(frames))[-_MOST_CHARACTERS:]
            + f"{type(error).__name__}: {_text(error)}",
        }
        return {key: text.encode("utf-8", "backslashreplace").decode() for key, text in raised.items()}


def _text(error: BaseException) -> str:
    """Return the message of an exception of foreign code, whose conversion may fail or be large."""
    try:
        return printable(str(error)[:_MOST_CHARACTERS])
    except BaseException as failure:  # noqa: BLE001 (foreign code)
        return f"without a message, because its conversion raised {type(failure).__name__}"


if __name__ == "__main__":
    worker_process.main(begin)
