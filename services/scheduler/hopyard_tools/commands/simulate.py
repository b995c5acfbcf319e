"""The command `hopyard simulate`, which runs a search in virtual time on recorded learning curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hopyard.cli.options import Json

if TYPE_CHECKING:
    from hopyard_simulator import Result, World

_CONDITIONS = "Conditions"

T = TypeVar("T")


def command(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACES...",
            help="Recorded curves, a job a line: .jsonl, .jsonl.gz (`hopyard trace`).",
            show_default=False,
        ),
    ],
    policy: Annotated[
        str, typer.Option("--policy", metavar="NAME", help="A policy's name (see `hopyard plugins`) or module:Class.")
    ] = "default",
    slots: Annotated[int, typer.Option("--slots", metavar="N", help="Slots.")] = 1,
    target: Annotated[
        float | None,
        typer.Option("--target", metavar="Y", help="The search is over when a report is as good.", show_default=False),
    ] = None,
    tmax: Annotated[
        str | None,
        typer.Option(
            "--tmax", metavar="TIME", help="Virtual time after which it is over: 90s, 15m, 2h.", show_default=False
        ),
    ] = None,
    order_seed: Annotated[
        int | None,
        typer.Option(
            "--order-seed",
            metavar="K",
            help="Shuffle the configurations; without it: the traces' order.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Seed of the policy's and the faults' chance.")] = 0,
    predictor: Annotated[
        str,
        typer.Option(
            "--predictor", metavar="NAME", help="What predicts curves, for policies that ask: pop, earlyterm."
        ),
    ] = "pooled",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A parameter of the policy, a term of the experiment such as kill_threshold, or as predictor.KEY one of the "
            "predictor; repeatable. If policy and experiment have KEY: policy.KEY or experiment.KEY.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", metavar="N", help="The first N configurations only.", show_default=False)
    ] = None,
    max_iterations: Annotated[
        int | None,
        typer.Option("--max-iterations", metavar="N", help="Where jobs are complete. [default: the longest curve]"),
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(
            "--cost",
            metavar="KEY=SECONDS",
            help="start, resume, snapshot, suspend, latency, prediction, solution, detection or evaluation; repeatable.",
            show_default=False,
            rich_help_panel=_CONDITIONS,
        ),
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="KEY=NUMBER",
            help="straggling, drop, node_failures, downtime or noise; repeatable.",
            show_default=False,
            rich_help_panel=_CONDITIONS,
        ),
    ] = None,
    per_node: Annotated[
        int,
        typer.Option(
            "--per-node",
            metavar="N",
            help="Slots that share a node, and fail together.",
            rich_help_panel=_CONDITIONS,
        ),
    ] = 1,
    speeds: Annotated[
        str,
        typer.Option(
            "--speeds", metavar="S,S,...", help="Speeds of the slots, in turn: 1,1,0.5.", rich_help_panel=_CONDITIONS
        ),
    ] = "1",
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="KEY=N",
            help="Partitions on the nodes, in turn: train, eval and replicas; repeatable. A position of the traces is an epoch then.",
            show_default=False,
            rich_help_panel=_CONDITIONS,
        ),
    ] = None,
    from_scratch: Annotated[
        bool,
        typer.Option(
            "--from-scratch",
            help="Resumed jobs train from the beginning, as if there were no snapshots.",
            rich_help_panel=_CONDITIONS,
        ),
    ] = False,
    details: Annotated[
        bool, typer.Option("--details", help="With --json: every run and every report, for `hopyard plot`.")
    ] = False,
    json: Json = False,
) -> None:
    """Run a search in virtual time, on recorded curves.

    The scheduler and the policy are those of a live cluster; slots, costs and faults are simulated. The same command gives
    the same result.

    **Examples:** `hopyard simulate digits.jsonl --policy bandit --slots 4 --target 0.97`,
    `hopyard simulate digits.jsonl --slots 8 --order-seed 3 --cost start=2 --fault drop=0.001 --json`
    """
    from hopyard.cli.output import emit, emit_json
    from hopyard.errors import InvalidInput
    from hopyard.spec.units import option_seconds
    from hopyard.traces import read_traces
    from hopyard_simulator import Costs, Faults, Fleet, Partitions, TraceWorkload, simulate

    if details and not json:
        raise InvalidInput("--details goes with --json: the runs and reports are in the document")
    workload = TraceWorkload(read_traces(*traces), max_iterations)
    with _progress(quiet=json) as watch:
        result = simulate(
            workload,
            policy,
            fleet=Fleet(slots, per_node, _numbers("--speeds", speeds)),
            parameters=dict(_pairs("--set", settings, _value)),
            target=target,
            max_time=option_seconds("--tmax", tmax) if tmax is not None else None,
            jobs=jobs,
            seed=seed,
            order_seed=order_seed,
            costs=_made(Costs, "--cost", cost),
            faults=_made(Faults, "--fault", fault),
            predictor=predictor,
            data=_made(Partitions, "--data", data) if data else None,
            from_scratch=from_scratch,
            details=details,
            watch=watch,
        )
    if json:
        emit_json({"traces": [str(path) for path in traces], **result.plain()})
    else:
        emit(_table(result))


def _table(result: Result) -> Any:
    """Return the result of a simulation as a table for people."""
    from rich.table import Table

    from hopyard._common.formatting import NOTHING, count, number

    given = "".join(f" {key}={value}" for key, value in result.parameters.items())
    table = Table(
        title=f"{result.policy}{given} on {count(result.slots, 'slot')}",
        show_header=False,
        box=None,
        title_justify="left",
    )
    best = f"{number(result.best)} (job {result.best_job})" if result.best_job is not None else NOTHING
    never = "never" if result.target is not None else NOTHING
    rows = {
        "time to target": _span(result.time_to_target) if result.time_to_target is not None else never,
        "best": best,
        "time": f"{_span(result.time)} ({result.reason})",
        "slot time": f"{_span(result.job_seconds)}, {result.utilisation:.1%} of what there was",
        "jobs": f"{result.jobs_started} started, {result.jobs_terminated} ended early, "
        f"{len(result.jobs_at_R)} trained to the end"
        + (f", the first after {_span(result.first_at_R)}" if result.first_at_R is not None else ""),
        "iterations": str(result.iterations),
        "suspends": str(result.suspends),
        "promotions": str(result.promotions),
    }
    if result.predictions:
        of = f" of {result.predictor}" if result.predictor is not None else ""
        rows["predictions"] = f"{result.predictions} asked{of}, {result.predictions_failed} failed"
    if result.note:
        rows["note"] = result.note
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _span(seconds: float) -> str:
    """Return a duration in virtual seconds as text.

    Below a minute it has three significant digits, because policies may differ by little.
    """
    from hopyard._common.formatting import duration

    return f"{seconds:.3g}s" if seconds < 59.95 else duration(seconds)


def _pairs(option: str, given: Sequence[str] | None, value: Callable[[str, str], Any]) -> Iterator[tuple[str, Any]]:
    from hopyard.errors import InvalidInput

    for pair in given or ():
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InvalidInput(f"{option}: needs KEY=VALUE, found {pair!r}")
        yield key.strip(), value(f"{option} {key.strip()}", text.strip())


def _value(where: str, text: str) -> Any:
    """Parse a value with YAML, as in an experiment file.

    Args:
        where: The option and the key, for the error message.
        text: The text of the value.

    Raises:
        InvalidInput: The text is not valid YAML.
    """
    import yaml

    from hopyard.errors import InvalidInput

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput(f"{where}: {text!r} is no value of YAML") from error


def _number(where: str, text: str) -> float:
    from hopyard.errors import InvalidInput

    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{where}: needs a number, found {text!r}") from None


def _numbers(where: str, text: str) -> tuple[float, ...]:
    return tuple(_number(where, part) for part in text.split(","))


def _made(kind: Callable[..., T], option: str, given: Sequence[str] | None) -> T:
    """Create an object from the KEY=NUMBER pairs of an option.

    Args:
        kind: The class of the object, such as `Costs`. The keys are the names of its parameters.
        option: The option, for error messages.
        given: The pairs; None: none, so all parameters have their defaults.

    Raises:
        InvalidInput: A key is unknown, a value is not a number, or the class rejects a value.
    """
    import inspect

    from hopyard.errors import InvalidInput

    values = dict(_pairs(option, given, _number))
    names = list(inspect.signature(kind).parameters)
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise InvalidInput(f"{option}: there is no {', '.join(unknown)}; there are: {', '.join(names)}")
    return kind(**values)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[World], None] | None]:
    """Show progress on stderr while the context is open, if stderr is a terminal and `quiet` is False.

    The context value is the function to call with the simulation; None: no progress is shown.
    """
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    with Progress(TextColumn("{task.description}"), console=console, transient=True) as progress:
        task = progress.add_task("simulating")

        def show(world: World) -> None:
            from hopyard._common.formatting import duration

            jobs = len(world.experiment.jobs)
            done = jobs - len(world.experiment.open)
            progress.update(
                task,
                description=f"simulating: {duration(world.timeline.now)}, {done} of {jobs} jobs ended, {world.events} events",
            )

        yield show
