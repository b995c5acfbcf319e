"""Tests of predictors whose code ends its process or never returns: the scheduler constructs them in another process."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState
from hopyard.errors import InvalidInput
from hopyard_scheduler.external_requests.predictions.probe import probe
from tests.integration.children import running
from tests.integration.nodeagent.cluster import gone
from tests.integration.scheduler.conftest import experiment
from tests.timing import HANG_SECONDS

MODULE = "tests.integration.predictors"


async def test_it_says_what_it_reads() -> None:
    assert await probe(f"{MODULE}:Social", {}, 60, None) == "curves"
    assert await probe(f"{MODULE}:Toy", {"spread": 0.5}, 60, None) == "nothing"


async def test_a_parameter_that_it_does_not_take_is_told() -> None:
    with pytest.raises(InvalidInput, match="Toy has no parameter spred; it takes: seconds, spread"):
        await probe(f"{MODULE}:Toy", {"spred": 1}, 60, None)


async def test_one_that_ends_its_process_is_told_with_its_last_words() -> None:
    said = (
        f"predictor {MODULE}:Ending: its process ended with exit code 3 while it was made; it said: famous last words"
    )
    with pytest.raises(InvalidInput) as told:
        await probe(f"{MODULE}:Ending", {}, 60, None)
    assert str(told.value) == said


async def ended_for_its_time(name: str, note: Path) -> None:
    """Check that the construction of a predictor is ended after its time limit.

    The limit grows until the predictor has started, since that takes long on a busy host.
    """
    for seconds in (1, 5, 25, 125):
        with pytest.raises(InvalidInput, match=f"{name} took longer than {seconds} s to be made"):
            await probe(f"{MODULE}:{name}", {"note": str(note)}, seconds, None)
        if note.exists():  # noqa: ASYNC240 - quick
            return
    raise AssertionError(f"{name} was never begun")


async def test_one_that_never_comes_back_is_ended_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "child"
    await ended_for_its_time("Endless", note)
    await gone(int(note.read_text()))
    assert running("hopyard.predictor.process") == []


async def test_one_that_closes_its_output_and_goes_on_is_ended(tmp_path: Path) -> None:
    await ended_for_its_time("Mute", tmp_path / "closed")
    assert running("hopyard.predictor.process") == []


async def test_an_experiment_with_it_is_refused_and_the_scheduler_goes_on(client: AsyncClient, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="its process ended with exit code 3 while it was made"):
        await client.create(experiment(tmp_path / "e", more=f"predictor: '{MODULE}:Ending'"))
    assert await client.experiments() == []


async def test_a_predictor_in_the_code_of_the_experiment_is_made(
    client: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    file = experiment(tmp_path / "e", jobs=1, length=3, more="predictor: 'only_in_the_bundle:Mine'")
    source = "from tests.integration.predictors import Toy\n\nclass Mine(Toy):\n    pass\n"
    (file.parent / "only_in_the_bundle.py").write_text(source)
    made = await client.create(file)
    assert (await client.wait(made.id, HANG_SECONDS)).state is ExperimentState.COMPLETED
    (file.parent / "only_in_the_bundle.py").write_text("raise RuntimeError('not today')")
    with pytest.raises(InvalidInput, match="not today"):
        await client.create(file)
    assert len(list(folder.glob("hopyard-policies-*"))) == 1
    assert list(folder.glob("hopyard-policies-*/policy-*")) == []
