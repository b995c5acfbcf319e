"""Tests of the commands of docs/exporting.md, as the page has them."""

from __future__ import annotations

import asyncio
import csv
import json
import shlex
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hopyard.cli.main import run
from tests.e2e.harness import REPOSITORY, cluster, softmax_file
from tests.timing import HANG_SECONDS

ELSEWHERE = ("http://localhost:5000",)
"""Texts of commands that need an external server."""


def commands() -> list[list[str]]:
    lines = (REPOSITORY / "docs" / "exporting.md").read_text().splitlines()
    found = [shlex.split(line)[1:] for line in lines if line.startswith("hopyard ")]
    return [one for one in found if not set(ELSEWHERE) & set(one)]


@pytest.mark.timeout(300)
async def test_the_commands_of_the_page_do_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for package, extra in (("pyarrow.parquet", "parquet"), ("tensorboardX", "tensorboard")):
        pytest.importorskip(package, reason=f"pip install './hopyard[{extra}]'")
    monkeypatch.chdir(tmp_path)
    for variable in ("HOPYARD_SERVER", "HOPYARD_DATA"):
        monkeypatch.delenv(variable, raising=False)
    file = softmax_file(tmp_path / "code", name="digits", stop={"jobs": 2, "max_iterations": 3})
    async with cluster(tmp_path / "hopyard-data", {"n": 1}) as (_, client):
        made = await client.wait(await client.create(file), HANG_SECONDS)
        best = await client.best(made)
        output: dict[str, str] = {}
        for command in commands():
            code, output[" ".join(command)], err = await _run(command, capfd)
            assert code == 0, (command, err)
    assert best is not None
    rows = list(csv.DictReader((tmp_path / "digits.csv").read_text().splitlines()))
    assert [(row["job"], row["state"], row["position"]) for row in rows] == [
        ("1", "COMPLETED", "3"),
        ("2", "COMPLETED", "3"),
    ]
    assert float(next(row for row in rows if row["job"] == best.id)["hp.lr"]) == best.hyperparameters["lr"]
    document = json.loads(output["results digits --format json"])
    assert max(row["best"] for row in document["rows"]) == best.best_value
    assert _parquet(tmp_path / "reports.parquet")["position"] == [1, 2, 3, 1, 2, 3]
    assert len(list((tmp_path / "runs" / made.id).glob("*/events.*"))) == 2
    names = zipfile.ZipFile(tmp_path / "digits.hopyard").namelist()
    assert {"manifest.json", "journal.jsonl.zst", "experiments.json.zst", "statistics.jsonl.zst"} < set(names)
    # The other cluster continued the experiment: it has a third job, and the first two are unchanged.
    _, out, _ = await _run(["results", "digits", "--json", "--data", "elsewhere"], capfd)
    there = json.loads(out)["rows"]
    assert [row["job"] for row in there] == ["1", "2", "3"]
    assert there[:2] == document["rows"]


async def _run(command: list[str], capture: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run a command in this process, or, for `--watch`, in a separate process, which receives signals."""
    if "--watch" not in command:
        code = await asyncio.to_thread(run, command)
        return code, *capture.readouterr()
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "hopyard.cli.main", *command)
    code = await process.wait()
    return code, *capture.readouterr()


def _parquet(path: Path) -> dict[str, list[Any]]:
    import pyarrow.parquet

    table: dict[str, list[Any]] = pyarrow.parquet.read_table(path).to_pydict()
    return table
