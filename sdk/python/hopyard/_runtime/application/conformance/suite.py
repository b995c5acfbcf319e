"""All cases, tried on one client, some at a time; and what is said of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Literal

from hopyard._runtime.application.conformance import failure_cases, snapshot_cases
from hopyard._runtime.application.conformance.cases import CASES, Case
from hopyard._runtime.application.conformance.process import CannotStart, ClientUnderTest
from hopyard._runtime.application.conformance.run import RunFixture
from hopyard._runtime.application.conformance.transcript import Unmet
from hopyard.errors import InvalidInput

PAGE: Final = "docs/protocol.md"
PATIENCE_SECONDS: Final = 30.0

_ORDER = (snapshot_cases, failure_cases)  # They add their cases when they are imported.


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What came of a case.

    Attributes:
        name: Of the case.
        title: What a client does there.
        outcome: "not run": it needs a case that is not ok.
        place: Where the page tells of it.
        expected: What should have come; empty unless it failed.
        seen: What came; of a case that was not run, why.
        conversation: The last that was said by the processes of the case (`<-`), and to them (`->`).
        printed: The last lines that they have printed.
        seconds: How long it took.
    """

    name: str
    title: str
    outcome: Literal["ok", "failed", "not run"]
    place: str
    expected: str = ""
    seen: str = ""
    conversation: list[str] = field(default_factory=list)
    printed: str = ""
    seconds: float = 0.0


def check(
    client: ClientUnderTest,
    names: Sequence[str] = (),
    *,
    patience: float = PATIENCE_SECONDS,
    jobs: int = 1,
    stretch: float = 1.0,
    told: Callable[[CaseResult], None] = lambda result: None,
) -> list[CaseResult]:
    """Try a client.

    Args:
        client: What is tried.
        names: The cases to try, whatever they need; none: all, each after those that it needs.
        patience: Seconds that the client may take for each thing that is expected of it, such as to start and attach.
        jobs: How many cases are tried at a time.
        stretch: Factor for all intervals, such as leases and the time in which nothing must come: more than 1 on a machine that is
            slow or busy.
        told: Hears each result, in the order of the cases.

    Raises:
        InvalidInput: There is no such case, or the client cannot be started.
    """
    for name in names:
        if name not in CASES:
            raise InvalidInput(f"there is no case {name!r}; there are: {', '.join(CASES)}")
    chosen = [case for name, case in CASES.items() if not names or name in names]
    futures: dict[str, Future[CaseResult]] = {}
    results = []
    with ThreadPoolExecutor(jobs, "case") as pool:
        try:
            for case in chosen:
                # Those before it have begun when it does, so no one waits for one that cannot begin.
                before = [futures[need] for need in case.needs if need in futures]
                futures[case.name] = pool.submit(_try, case, client, patience, stretch, before)
            for future in futures.values():
                results.append(future.result())
                told(results[-1])
        except CannotStart as error:
            raise InvalidInput(str(error)) from error
        finally:
            pool.shutdown(cancel_futures=True)
    return results


def _try(
    case: Case, client: ClientUnderTest, patience: float, stretch: float, before: Sequence[Future[CaseResult]]
) -> CaseResult:
    place = f"{PAGE}#{case.section}"
    if missing := [result.name for result in (future.result() for future in before) if result.outcome != "ok"]:
        return CaseResult(case.name, case.title, "not run", place, seen=f"needs {', '.join(missing)}")
    began = time.monotonic()
    bench = RunFixture(client, patience, stretch)
    try:
        case.try_out(bench)
    except Unmet as unmet:
        said = [line for run in bench.runs for line in ["-- a process is started", *run.heard.transcript()]]
        printed = "\n".join(filter(None, (run.process.printed() for run in bench.runs if run.process is not None)))
        spent = time.monotonic() - began
        return CaseResult(case.name, case.title, "failed", place, unmet.expected, unmet.seen, said, printed, spent)
    finally:
        bench.close()
    return CaseResult(case.name, case.title, "ok", place, seconds=time.monotonic() - began)
