"""Conformance cases about failures: a lost agent, hanging iterations, invalid values. See `cases` for the form of a case."""

from __future__ import annotations

from itertools import takewhile
from typing import Final

from hopyard._runtime.application.conformance.cases import FAR, case, failed
from hopyard._runtime.application.conformance.run import QUIET_SECONDS, ProcessRun, RunFixture
from hopyard._runtime.application.conformance.transcript import ProtocolViolation
from hopyard._runtime.runner.watchdog import EXIT_AGENT_GONE, EXIT_GANG_BROKEN, EXIT_HUNG
from hopyard.v1 import common_pb2

_SOON_SECONDS: Final = 10.0
"""Maximum seconds that a process may take to exit after it has lost its agent."""
_LONG: Final = 600.0


@case("kill", "the-end", "waiting")
def kill(bench: RunFixture) -> None:
    """Leaves no process behind when it is killed.

    Kill the process group of a client, and raise `ProtocolViolation` if other processes that the client started still run 10 seconds
    (times the fixture's `stretch`) later.
    """
    run = bench.begin({"lr": 0.5}, allowed=1)
    run.reported(1)
    assert run.process is not None
    run.process.kill()
    if left := run.process.left(_SOON_SECONDS * bench.stretch):
        raise ProtocolViolation("no process of its own that outlives it in a group of its own", f"{len(left)} of them")


@case("agent-gone", "when-the-agent-is-gone", "waiting")
def agent_gone(bench: RunFixture) -> None:
    """Exits with code 75 when its agent crashes or ends the stream, while training and while waiting.

    Raise `ProtocolViolation` if the client does not exit within 10 seconds (times the fixture's `stretch`) or exits with another
    code.
    """
    run = bench.begin({"lr": 0.5}, allowed=1)
    run.reported(1)
    run.place.hang_up()
    run.exits(EXIT_AGENT_GONE, "when the agent ends the stream of a run that waits", _SOON_SECONDS)
    run = _training(bench)
    bench.agent.stop()
    run.exits(EXIT_AGENT_GONE, "when the agent vanishes in a long iteration", _SOON_SECONDS)


@case("agent-silent", "when-the-agent-is-gone", "waiting")
def agent_silent(bench: RunFixture) -> None:
    """Exits with code 75 when its agent has been silent for longer than the lease, and not before.

    The lease is the time without a message, given in the start message, after which a client must regard its agent as lost. Raise
    `ProtocolViolation` if the client exits earlier, later or with another code.
    """
    run = bench.begin({"lr": 0.5}, lease=3.0, allowed=1)
    run.reported(1)
    run.quiet("the agent gives a sign of life each second", seconds=4.0)
    run.place.silent.set()
    run.quiet("the lease is not over yet", seconds=1.0)
    limit = f"the lease of {3 * bench.stretch:g} s"
    run.exits(EXIT_AGENT_GONE, f"when the agent has been silent for longer than {limit}", 3 + _SOON_SECONDS)


@case("refused", "attaching", "attach")
def refused(bench: RunFixture) -> None:
    """Exits with a message and a nonzero exit code when the agent refuses it.

    The client must exit when the agent answers UNAUTHENTICATED. Start a client with a token that the agent does not know, and raise
    `ProtocolViolation` if it does not exit in time, exits with code 0, or prints nothing.
    """
    run = bench.begin({"lr": 0.5}, allowed=FAR, known=False)
    assert run.process is not None
    code = run.exits(None, "when the agent answers UNAUTHENTICATED")
    if code == 0 or not run.process.printed():
        raise ProtocolViolation(
            "an exit code other than 0, and a message", f"code {code}, and printed {run.process.printed()!r}"
        )


@case("iteration-timeout", "signs-of-life", "waiting")
def iteration_timeout(bench: RunFixture) -> None:
    """Exits with code 76 when an iteration exceeds its time limit; waiting does not count.

    Raise `ProtocolViolation` if the client exits while it waits for a decision, or does not exit with code 76 in an iteration that
    hangs.
    """
    run = bench.begin({"lr": 0.5}, allowed=1, iteration_timeout=2.0)
    run.reported(1)
    run.quiet("the run waits, which may take as long as it likes", seconds=3.0)
    run = _training(bench, iteration_timeout=2.0)
    run.exits(
        EXIT_HUNG, f"when an iteration takes longer than the {2 * bench.stretch:g} s that it may", 2 + _SOON_SECONDS
    )


@case("bad-hyperparameters", "failures", "attach")
def bad_hyperparameters(bench: RunFixture) -> None:
    """Fails with a message that names the hyperparameter that it cannot use.

    Start a run whose learning rate is a text, and raise `ProtocolViolation` unless the client reports a failure of user code or
    exits with a nonzero code, before any report, and names `lr`.
    """
    run = bench.begin({"lr": "fast"}, allowed=FAR)
    assert run.process is not None
    expected = "ended FAILED with a message that names lr; or an exit code other than 0, 75, 76 and 77, with lr in what it printed"
    run.until(lambda: run.heard.ended is not None or run.heard.closed or _over(run), expected)
    if (ended := run.heard.ended) is not None:
        users = (ended.reason, ended.failure) == (
            common_pb2.RUN_END_REASON_FAILED,
            common_pb2.FAILURE_CLASS_USER_CODE,
        )
        named = users and "lr" in ended.message
        failed(bench, run, "FAILED")
    else:
        code = run.exits(None, "when it cannot use its hyperparameters")
        named = code > 0 and code not in (EXIT_AGENT_GONE, EXIT_HUNG, EXIT_GANG_BROKEN) and "lr" in run.process.said()
    said = takewhile(lambda word: not word.startswith("ended"), run.heard.order)
    if not named or any(word.startswith("report") for word in said):
        raise ProtocolViolation(expected, f"{run.seen()}; printed: {run.process.printed()!r}")


def _training(bench: RunFixture, iteration_timeout: float = 0.0) -> ProcessRun:
    """Start a run with an endless first iteration, and return it once the client has attached.

    Args:
        bench: The fixture of the case.
        iteration_timeout: Maximum duration of an iteration in seconds, as sent to the client; 0: unlimited.
    """
    run = bench.begin({"lr": 0.5, "seconds": _LONG}, allowed=FAR, iteration_timeout=iteration_timeout)
    run.until(lambda: bool(run.heard.said), "hello")
    run.heard.wait(lambda: run.heard.closed, QUIET_SECONDS)
    return run


def _over(run: ProcessRun) -> bool:
    return run.process is not None and run.process.exit_code is not None
