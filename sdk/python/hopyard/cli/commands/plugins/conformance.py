"""The command `conformance app`: tests whether a program in any language follows the protocol of training programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hopyard.cli.options import APP_SETTINGS, Json

if TYPE_CHECKING:
    from hopyard._runtime.application.conformance import CaseResult

_HELP = """Test whether a program implements a contract.

**Example:** `hopyard conformance app -- ./my-client`

Policies, generators and predictors have test suites: `hopyard.policy.conformance`, `hopyard.generator.conformance` and
`hopyard.predictor.conformance`.
"""


def register(app: typer.Typer) -> None:
    """Add the command group `conformance` to the command line `app`."""
    group = typer.Typer(help=_HELP, no_args_is_help=True, **APP_SETTINGS)
    group.command("app", no_args_is_help=True)(application)
    app.add_typer(group, name="conformance", rich_help_panel="Try")


def application(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND...",
            help="The program with its arguments, as in an experiment file: {lr} stands for the value of lr.",
            show_default=False,
        ),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option("--case", metavar="NAME", help="Run only this case; may be repeated.", show_default=False),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the cases without running them.")] = False,
    patience: Annotated[
        float,
        typer.Option(min=1, metavar="SECONDS", help="Time limit for each step of the program, such as its start."),
    ] = 30.0,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, max=32, help="Number of parallel cases. [default: one per CPU, at most 4]", show_default=False
        ),
    ] = None,
    trainer: Annotated[
        str,
        typer.Option(
            metavar="FILE.py:CLASS",
            help="The trainer to load, for programs that load trainers such as python -m hopyard._runtime.runner.",
            show_default=False,
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Test an application client: a program in any language that trains as a job.

    Each case starts the program as a node agent starts a command, and plays the agent with a real gRPC server on
    loopback. The program must train the small task in docs/protocol.md (x begins at 0, each iteration adds lr to it,
    the metric `value` is x), so that every report, snapshot and end is known exactly. Each case tests one feature:
    wait, suspend, resume in another process, detect a lost agent, ...

    The result of a case is `ok`, `FAILED` (with the expected and the seen behavior, the exchanged messages, the program's
    output, and the section of docs/protocol.md), or `not run` if it depends on a case that is not ok: fix the first
    failed case, then run again. Exit code 0 if all cases are ok.

    **Examples:** `hopyard conformance app -- ruby client.rb`, `hopyard conformance app --case resume -- ./client --lr
    {lr}`, `hopyard conformance app --list`
    """
    import os
    from pathlib import Path

    from hopyard._runtime.application.conformance import CASES, ClientUnderTest, check
    from hopyard.cli.errors import EXIT_FAILED, WrongUse
    from hopyard.cli.output import emit, emit_json

    if listed:
        emit_json([_case(name) for name in CASES]) if json else emit(
            "\n".join(f"{n:20} {CASES[n].title}" for n in CASES)
        )
        return
    if not command:
        raise WrongUse("name a program, such as: hopyard conformance app -- ruby client.rb")
    at_once = jobs or min(4, len(os.sched_getaffinity(0)))
    client = ClientUnderTest(tuple(command), Path.cwd(), trainer)

    def show(result: CaseResult) -> None:
        if not json:
            emit(_line(result))

    results = check(client, case or (), patience=patience, jobs=at_once, on_result=show)
    passed = all(result.outcome == "ok" for result in results)
    if json:
        emit_json({"passed": passed, "cases": results})
    else:
        emit(_summary(results))
    if not passed:
        raise typer.Exit(EXIT_FAILED)


def _case(name: str) -> dict[str, str]:
    from hopyard._runtime.application.conformance import CASES
    from hopyard._runtime.application.conformance.suite import PAGE

    return {"name": name, "title": CASES[name].title, "place": f"{PAGE}#{CASES[name].section}"}


def _line(result: CaseResult) -> str:
    if result.outcome == "ok":
        return f"ok       {result.name:20} {result.title}"
    if result.outcome == "not run":
        return f"not run  {result.name:20} {result.seen}"
    said = "\n".join(f"           {line}" for line in result.conversation)
    printed = "\n".join(f"           {line}" for line in result.printed.splitlines()) or "           (nothing)"
    return "\n".join(
        [
            f"FAILED   {result.name:20} {result.title}",
            f"         expected: {result.expected}",
            f"         seen:     {result.seen}",
            f"         read:     {result.place}",
            "         the conversation, <- from the program and -> to it:",
            said,
            "         the program printed:",
            printed,
        ]
    )


def _summary(results: list[CaseResult]) -> str:
    count = {outcome: sum(result.outcome == outcome for result in results) for outcome in ("ok", "failed", "not run")}
    left_out = f", {count['not run']} not run" if count["not run"] else ""
    first = next((result.name for result in results if result.outcome == "failed"), None)
    hint = f"; fix {first} first" if first is not None and count["not run"] else ""
    return f"{len(results)} cases: {count['ok']} ok, {count['failed']} failed{left_out}{hint}"
