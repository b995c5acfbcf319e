"""Runs the conformance cases on one client, several at a time, and returns the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Literal

from hopyard._runtime.application.conformance import failure_cases, snapshot_cases
from hopyard._runtime.application.conformance.cases import CASES, Case
from hopyard._runtime.application.conformance.process import ClientUnderTest, StartError
from hopyard._runtime.application.conformance.run import RunFixture
from hopyard._runtime.application.conformance.transcript import ProtocolViolation
from hopyard.errors import InvalidInput

PAGE: Final = "docs/protocol.md"
PATIENCE_SECONDS: Final = 30.0

_ORDER = (snapshot_cases, failure_cases)  # These modules register their cases when they are imported.


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one conformance case.

    Attributes:
        name: Name of the case.
        title: What a client must do.
        outcome: "ok", "failed", or "not run" if a case that it needs is not ok.
        place: Page and section of the documentation with the requirement.
        expected: What was expected; empty unless the case failed.
        seen: What was seen; if the case was not run, why.
        conversation: If the case failed, the last messages from (`<-`) and to (`->`) its processes.
        printed: If the case failed, the last output lines of its processes.
        seconds: Duration in seconds.
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
    on_result: Callable[[CaseResult], None] = lambda result: None,
) -> list[CaseResult]:
    """Run conformance cases on a client and return their results, in the order of `CASES`.

    Args:
        client: The client to test.
        names: Names of the cases to run; empty: all. Cases that the named ones need are not added: a named case runs as if those of
            its needed cases that are not named had passed.
        patience: Maximum seconds that the client may take for each expected step, such as to start and attach.
        jobs: Number of cases that run at the same time.
        stretch: Factor for all intervals, such as leases and the time in which no message may arrive: more than 1 on a
            slow or busy host.
        on_result: Called with each result, in the order of the cases.

    Raises:
        InvalidInput: A case does not exist, or the client cannot be started.
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
                # The pool starts cases in order, so a case never waits for one that has not started.
                before = [futures[need] for need in case.needs if need in futures]
                futures[case.name] = pool.submit(_try, case, client, patience, stretch, before)
            for future in futures.values():
                results.append(future.result())
                on_result(results[-1])
        except StartError as error:
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
    except ProtocolViolation as unmet:
        said = [line for run in bench.runs for line in ["-- a process is started", *run.heard.transcript()]]
        printed = "\n".join(filter(None, (run.process.printed() for run in bench.runs if run.process is not None)))
        spent = time.monotonic() - began
        return CaseResult(case.name, case.title, "failed", place, unmet.expected, unmet.seen, said, printed, spent)
    finally:
        bench.close()
    return CaseResult(case.name, case.title, "ok", place, seconds=time.monotonic() - began)
