"""Tests of `hopyard data`: its options and its output."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console, RenderableType

from hopyard._runtime.datasets.usage import Storage
from hopyard.cli.commands.cluster.partitions import at_url, data_table, partition, partitions_table
from hopyard.cli.errors import WrongUse
from hopyard.cli.main import run
from hopyard.client.datasets import DataPartition, DataReplica, DataSet, ReplicaState

pytestmark = pytest.mark.quick


def shown(renderable: RenderableType) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=200).print(renderable)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_places_are_nodes_with_paths_or_a_url() -> None:
    assert partition("train", "3=a:/x/y=z:1,b:/w") == DataPartition(
        "train/3", replicas=(DataReplica("a", "/x/y=z:1"), DataReplica("b", "/w"))
    )
    assert partition("eval", "0=s3://bucket/e,0") == DataPartition("eval/0", url="s3://bucket/e,0")


@pytest.mark.parametrize("given", ["0", "=a:/x", "x=a:/x", "0=", "0=/x", "0=a:", "0=a:/x,"])
def test_what_is_no_place_is_refused_with_what_is_needed(given: str) -> None:
    with pytest.raises(WrongUse, match=r"--partition.*needed is"):
        partition("train", given)


def test_a_url_beside_paths_is_refused() -> None:
    with pytest.raises(
        WrongUse, match=r"found .file:///y. beside others; a partition has either one URL or NODE:/PATH"
    ):
        partition("train", "0=a1:/x,file:///y")


@pytest.mark.merge
def test_split_prints_the_command_that_registers_what_it_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("all.npz", x=np.arange(40))
    cut = ["data", "split", "all.npz", "--into", "3", "-o", "a b", "--eval-fraction", "0.25", "--speeds", "1,1,2"]
    assert run([*cut, "--nodes", "g1,g2"]) == 0
    printed = capsys.readouterr()
    words = shlex.split(printed.out)
    assert words[:4] == ["hopyard", "data", "register", "all"]
    assert words[4:] == [
        word
        for option, number, node, file in (
            ("--partition", 0, "g1", "train-0"),
            ("--partition", 1, "g2", "train-1"),
            ("--partition", 2, "g1", "train-2"),
            ("--eval", 0, "g1", "eval-0"),
        )
        for word in (option, f"{number}={node}:{tmp_path}/a b/{file}.npz")
    ]
    assert "train/2: 14 examples" in printed.err or "train/2: 15 examples" in printed.err
    assert run([*cut[:5], "-o", "other", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["examples"] for one in document["partitions"]] == [14, 13, 13]
    assert [one.url for one in at_url(f"file://{tmp_path}/other/")] == [
        f"file://{tmp_path}/other/train-{number}.npz" for number in range(3)
    ]
    assert run([*cut, "--json"]) == 1
    assert "it holds eval-0.npz already" in capsys.readouterr().err
    assert run(["data", "split", "all.npz", "--into", "2", "-o", "x", "--speeds", "1,fast"]) == 2
    assert "--speeds: found '1,fast', allowed are numbers" in capsys.readouterr().err
    assert run(["data", "register", "x"]) == 2
    assert "give --partition (and --eval), or --url" in capsys.readouterr().err


def test_tables_say_what_is_missing_and_why() -> None:
    here = DataReplica("a", "/x", ReplicaState.PRESENT)
    gone = DataReplica("b", "/y", ReplicaState.BROKEN, "/y: there is nothing")
    data = DataSet(
        "fashion",
        (
            DataPartition("train/0", 2048, "ab" * 32, 5, (here, gone)),
            DataPartition("train/1", 10, "cd" * 32, None, (gone,)),
            DataPartition("eval/0", 10, "ef" * 32, 3, (), "s3://b/e"),
        ),
        experiments=("fashion-1",),
    )
    head, line = shown(data_table([data]))
    assert head.split() == ["data", "train", "eval", "examples", "size", "missing", "used", "by"]
    assert line.split() == ["fashion", "2", "1", "-", "2.0", "KiB", "1", "fashion-1"]
    lines = shown(partitions_table(data))
    assert [one.split()[-2:] for one in lines[1:5]] == [
        ["present", "/x"],
        ["broken", "/y"],
        ["broken", "/y"],
        [["read", "yet", "s3://b/e"][1], "s3://b/e"],
    ]
    assert lines[5:] == [
        "train/0: /y: there is nothing",
        "train/1: /y: there is nothing",
        "2.0 KiB in all, 2.0 KiB on 1 node",
        "used by fashion-1",
    ]
    assert "hopyard data split" in shown(data_table([]))[0]


def test_what_nodes_hold_is_held_against_full_copies() -> None:
    on = [DataReplica(node, "/x", ReplicaState.PRESENT) for node in ("a", "b", "c")]
    data = DataSet(
        "fashion",
        (
            DataPartition("train/0", 1024, replicas=(on[0], on[1])),
            DataPartition("train/1", 1024, replicas=(on[1],)),
            DataPartition("eval/0", 512, replicas=(on[2],)),
        ),
    )
    assert data.storage == Storage(data=2560, held=3584, copies=3 * 2560, nodes=3)
    assert shown(partitions_table(data))[-1] == (
        "2.5 KiB in all, 3.5 KiB on 3 nodes; a full copy on each of them, as task parallelism needs, would be 7.5 KiB"
    )
