"""The command group `data`: splits data into partitions, and manages the catalog of partitioned data sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hopyard.cli.options import APP_SETTINGS, Data, Json, Server

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient
    from hopyard.client.datasets import DataPartition, DataSet

_HELP = """Split data into partitions, and register their locations.

The jobs of an experiment with `data: NAME` run on the nodes that hold its partitions.

**Examples:** `hopyard data split train.npz --into 4 --out parts`, `hopyard data list`
"""

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the data set in experiment files.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the command group `data` to the command line `app`."""
    group = typer.Typer(help=_HELP, no_args_is_help=True, **APP_SETTINGS)
    group.command("register")(register_)
    group.command("list")(list_)
    for command in (show, drop, split):
        group.command()(command)
    app.add_typer(group, name="data", rich_help_panel="Act")


def register_(
    name: Name,
    partition: Annotated[
        list[str] | None,
        typer.Option(
            "--partition",
            metavar="N=NODE:/PATH,...",
            help="A partition to train on, numbered from 0, with each node that holds it and its path there; or N=URL.",
            show_default=False,
        ),
    ] = None,
    evaluate: Annotated[
        list[str] | None,
        typer.Option(
            "--eval",
            metavar="N=NODE:/PATH,...",
            help="A partition to evaluate on, in the same form.",
            show_default=False,
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A copy of the output of `hopyard data split` in an object store: nodes download a partition when they "
            "first read it.",
            show_default=False,
        ),
    ] = None,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Register partitioned data under a name.

    Each node reads the files named for it. All files must exist, and the replicas of a partition must be equal.
    Everything is registered or nothing. A partition is a file or a folder. The name must not be registered yet.

    **Examples:** `hopyard data register mnist --partition 0=gpu1:/d/0.npz,gpu2:/d/0.npz --partition 1=gpu2:/d/1.npz
    --eval 0=gpu1:/d/test.npz`, `hopyard data register mnist --url s3://bucket/mnist`
    """
    import uuid

    from hopyard.cli.commands.cluster.partitions import at_url, partitions_table
    from hopyard.cli.commands.cluster.partitions import partition as parse
    from hopyard.cli.connect import with_client
    from hopyard.cli.errors import WrongUse
    from hopyard.cli.output import emit, emit_json

    given = [parse("train", one) for one in partition or ()] + [parse("eval", one) for one in evaluate or ()]
    if bool(given) is (url is not None):
        raise WrongUse("hopyard data register: give --partition (and --eval), or --url")
    parts: list[DataPartition] = given if url is None else at_url(url)
    request = uuid.uuid4().hex

    async def work(client: AsyncClient) -> DataSet:
        return await client.register_data(name, parts, request_id=request)

    made = with_client(server, data, "hopyard data register", work, agent=True, fresh=True)
    if json:
        emit_json(made)
    else:
        emit(partitions_table(made))


def list_(server: Server = None, data: Data = None, json: Json = False) -> None:
    """List the data sets.

    **Examples:** `hopyard data list`, `hopyard data list --json`
    """
    from hopyard.cli.commands.cluster.partitions import data_table
    from hopyard.cli.connect import with_client
    from hopyard.cli.output import emit, emit_json, say
    from hopyard.client.types import NodeState

    up = False

    async def work(client: AsyncClient) -> list[DataSet]:
        nonlocal up
        up = any(node.state is NodeState.UP for node in await client.nodes())
        return await client.data_sets()

    found = with_client(server, data, "hopyard data list", work, read_only=True)
    if json:
        emit_json(found)
    else:
        emit(data_table(found))
        if found and not up:
            say(
                "no node runs, so no partition is available: `hopyard up`, or the command that started this cluster's agents"
            )


def show(name: Name, server: Server = None, data: Data = None, json: Json = False) -> None:
    """Show where the partitions of a data set are, their problems, and the storage that they use on nodes.

    **Example:** `hopyard data show mnist`
    """
    from hopyard.cli.commands.cluster.partitions import partitions_table
    from hopyard.cli.connect import with_client
    from hopyard.cli.output import emit, emit_json, plain

    async def work(client: AsyncClient) -> DataSet:
        return await client.data_set(name)

    found = with_client(server, data, "hopyard data show", work, read_only=True)
    if json:
        emit_json({**plain(found), "storage": found.storage})
    else:
        emit(partitions_table(found))


def drop(name: Name, server: Server = None, data: Data = None, json: Json = False) -> None:
    """Remove a data set from the catalog; its files are kept.

    It fails if an unfinished experiment uses the data set.

    **Example:** `hopyard data drop mnist`
    """
    from hopyard.cli.connect import with_client
    from hopyard.cli.output import emit_json, say

    async def work(client: AsyncClient) -> None:
        await client.drop_data(name)

    with_client(server, data, "hopyard data drop", work)
    if json:
        emit_json({"dropped": name})
    else:
        say(f"{name} is removed from the catalog; its files are kept")


def split(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An .npz or .parquet file.", show_default=False)],
    into: Annotated[int, typer.Option(min=1, help="Number of partitions to train on.", show_default=False)],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="The output folder.", show_default=False)],
    shuffle_seed: Annotated[
        int, typer.Option(min=0, help="Seed of the shuffle: the same seed gives the same partitions.")
    ] = 0,
    speeds: Annotated[
        str | None,
        typer.Option(
            metavar="S,S,...",
            help="Relative speed of each partition's node: the number of examples is proportional to it. [default: equal]",
            show_default=False,
        ),
    ] = None,
    eval_fraction: Annotated[
        float, typer.Option(min=0.0, help="Fraction of the examples to evaluate on, such as 0.1.")
    ] = 0.0,
    eval_into: Annotated[int, typer.Option(min=1, help="Number of partitions to evaluate on.")] = 1,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the data set. [default: the file's]", show_default=False),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="NODE,...",
            help="Nodes in the printed command. [default: node1, node2, ..., the names that `hopyard up --agents` uses]",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Split a file into shuffled partitions.

    All arrays of an npz must have the same first length; a Parquet file is split by rows. The command that registers
    the partitions is printed. The output folder must not contain partitions.

    **Examples:** `hopyard data split train.npz --into 4 --out parts --eval-fraction 0.1`, `hopyard data split
    all.parquet --into 3 --out parts --speeds 1,1,2.5`
    """
    from hopyard._common import formatting
    from hopyard._runtime.datasets.names import check_data_name
    from hopyard._runtime.datasets.split import SplitPlan
    from hopyard._runtime.datasets.split import split as cut
    from hopyard.cli.commands.cluster.partitions import register_command
    from hopyard.cli.errors import WrongUse
    from hopyard.cli.output import emit, emit_json, say

    try:
        given = tuple(float(speed) for speed in speeds.split(",")) if speeds is not None else ()
    except ValueError as error:
        raise WrongUse(
            f"--speeds: found {speeds!r}, allowed are numbers separated by commas, such as 1,1,2.5"
        ) from error
    try:
        called = check_data_name(name if name is not None else file.stem)
    except ValueError as error:
        raise WrongUse(f"--name: {error}") from error
    made = cut(file, out, SplitPlan(into, shuffle_seed, given, eval_fraction, eval_into))
    on = [node for node in (nodes or "").split(",") if node] or [f"node{number + 1}" for number in range(into)]
    command = register_command(called, out, made, on)
    if json:
        emit_json({"folder": out.absolute(), "partitions": made, "command": command})
        return
    for one in made:
        say(
            f"{one.name}: {formatting.count(one.examples, 'example')}, {formatting.size(one.size_bytes)}, {out / one.file}"
        )
    say("copy each file to its node (for replicas to several), then register them with the paths there:")
    emit(command)
