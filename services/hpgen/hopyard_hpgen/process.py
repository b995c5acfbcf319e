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
from typing import Any, Final

from hopyard._runtime.processes import worker_process
from hopyard.errors import InvalidInput
from hopyard.generator import Generator, Result
from hopyard.policy.vocabulary import JobState
from hopyard.spec import spec_from_json
from hopyard_hpgen.experiment_generator import make_generator

_MOST_CHARACTERS: Final = 20_000


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
    generator = make_generator(spec)
    terms = _guarded(lambda: {"size": generator.size, "reads": generator.reads})
    if "raised" in terms:
        raise InvalidInput(f"generator {spec.generator.name}: size or reads raised {terms['raised']}")

    def answer(question: bytes) -> dict[str, Any]:
        asked = json.loads(question)
        return _guarded(lambda: _called(generator, asked))

    return terms, answer


def _called(generator: Generator, asked: dict[str, Any]) -> dict[str, Any]:
    match asked["call"]:
        case "create":
            proposed = generator.create(asked["job"], asked["ordinal"])
            try:
                json.dumps(proposed)
            except (TypeError, ValueError, RecursionError) as error:
                raise TypeError(f"it proposed {proposed!r:.200}, which is not JSON: {error}") from error
            return {"configuration": proposed}
        case "report":
            generator.report(asked["job"], asked["position"], asked["metrics"])
        case "report_final":
            result = asked["result"]
            generator.report_final(asked["job"], Result(**result | {"outcome": JobState(result["outcome"])}))
    return {}


def _guarded(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return call()
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the answer has it)
        raised = {
            "raised": f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS],
            "traceback": traceback.format_exc()[-_MOST_CHARACTERS:],
        }
        return {key: text.encode("utf-8", "backslashreplace").decode() for key, text in raised.items()}


if __name__ == "__main__":
    worker_process.main(begin)
