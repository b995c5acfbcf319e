"""Tests of the tuners of examples/tuners: their requests to a study that answers from a table, against requests computed by hand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import pytest

from hopyard.client.types import Metric, Point
from hopyard.space import Space
from hopyard.study import AsyncStudy, Evaluation

pytestmark = pytest.mark.quick

FOLDER = Path(__file__).parents[3] / "examples" / "tuners"


@pytest.fixture(autouse=True)
def _as_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


def tuner(name: str) -> Any:
    """Import a module of the folder examples/tuners."""
    found = import_module(name)
    assert Path(str(found.__file__)).parent == FOLDER
    return found


class Table(AsyncStudy):
    """Simulates a study: answers at once from a function of the configuration's name and the position; records requests in `asked`."""

    def __init__(self, value: Callable[[str, int], float], mode: Literal["max", "min"] = "max") -> None:
        super().__init__("127.0.0.1:1")
        self.value, self.mode = value, mode
        self.asked: list[tuple[str, int]] = []

    @property
    def metric(self) -> Metric:
        return Metric("m", self.mode)

    @property
    def space(self) -> Space:
        return Space.from_dict(tuner("pbt").SPACE)

    async def eval(
        self,
        configuration: Mapping[str, Any],
        position: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the face of a study
        request_id: str = "",
    ) -> Evaluation:
        name = str(configuration.get("name", configuration))
        self.asked.append((name, position))
        await asyncio.sleep(0)
        curve = tuple(Point(at, self.value(name, at)) for at in range(1, position + 1))
        return Evaluation(f"{name}@{position}", configuration, position, curve[-1].value, curve=curve)


def named(names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


async def test_sha_keeps_the_best_third_of_each_rung() -> None:
    # At position 1 the best three are i, h and g; at 3 the order is reversed.
    study = Table(lambda name, at: ord(name) if at < 3 else -ord(name))
    best = await tuner("sha").sha(study, named("abcdefghi"), (1, 3, 9))
    assert study.asked == [*((name, 1) for name in "abcdefghi"), ("i", 3), ("h", 3), ("g", 3), ("g", 9)]
    assert (best.configuration["name"], best.position) == ("g", 9)


async def test_sha_rounds_down_and_stops_where_nobody_is_left_or_the_last_rung_is_reached() -> None:
    study = Table(lambda name, at: ord(name), "min")
    await tuner("sha").sha(study, named("abcdefg"), (2, 7, 20))
    assert study.asked[7:] == [("a", 7), ("b", 7)]  # 7 // 3 is 2; 2 // 3 is 0
    study.asked.clear()
    await tuner("sha").sha(study, named("abcd"), (1, 3, 5), eta=2)
    assert [position for _, position in study.asked] == [1, 1, 1, 1, 3, 3, 5]


def test_hyperbands_brackets_are_those_of_its_papers_table() -> None:
    brackets = tuner("hyperband").brackets
    rungs = (1, 3, 9, 27, 81)
    assert brackets(81) == [(81, rungs), (34, rungs[1:]), (15, rungs[2:]), (8, rungs[3:]), (5, rungs[4:])]
    assert [(number, rungs[0]) for number, rungs in brackets(27)] == [(27, 1), (12, 3), (6, 9), (4, 27)]
    assert brackets(16, eta=4) == [(16, (1, 4, 16)), (6, (4, 16)), (3, (16,))]
    assert brackets(100, eta=4) == [(64, (2, 6, 25, 100)), (22, (6, 25, 100)), (8, (25, 100)), (4, (100,))]


async def test_asha_has_no_short_last_step() -> None:
    study = Table(lambda name, at: ord(name), "min")
    await tuner("asha").asha(study, named("abcdefgh"), least=1, most=9, eta=2, width=1)
    assert {position for _, position in study.asked} == {1, 2, 5, 9}


async def test_asha_promotes_at_once_who_is_among_the_best_of_those_there_are() -> None:
    study = Table(lambda name, at: ord(name), "min")
    best = await tuner("asha").asha(study, named("dcba"), least=1, most=4, eta=2, width=1)
    # Rung 1: of (d, c) c is promoted; of (d, c, b) b; of all four b and a. Rung 2: of (c, b) b is promoted; of (c, b, a) a.
    expected = [("d", 1), ("c", 1), ("c", 2), ("b", 1), ("b", 2), ("b", 4), ("a", 1), ("a", 2), ("a", 4)]
    assert study.asked == expected
    assert (best.configuration["name"], best.position) == ("a", 4)


async def test_median_ends_who_never_was_as_good_as_the_others_were_on_average() -> None:
    study = Table(lambda name, at: {"a": at, "b": 0.0, "c": 10.0 if at == 1 else 0.0}[name])
    best = await tuner("median").by_median(study, named("abc"), most=4, every=2, width=1)
    # The average of a up to 2 is 1.5; b's best, 0, is worse. c's best, 10, is not worse than the median of a's and b's averages.
    assert study.asked == [("a", 2), ("a", 4), ("b", 2), ("c", 2), ("c", 4)]
    assert best.configuration["name"] == "a"


async def test_copies_of_pbt_begin_as_their_parents() -> None:
    pbt = tuner("pbt")
    study = Table(lambda name, at: float(len(name)), "min")
    study.asked.clear()
    await pbt.pbt(study, population=4)
    assert [position for _, position in study.asked] == [3] * 4 + [6] * 4 + [9] * 4 + [12] * 4
    parent = pbt.with_lr(study.space.sample(random.Random(0)), 0, 0.5)
    child = pbt.with_lr(parent, 2, 9.0)
    assert parent["lr"]["sequence"]["multi_step"]["values"] == [0.5] * 4
    assert child["lr"]["sequence"]["multi_step"]["values"] == [0.5, 0.5, 4.0, 4.0]  # clipped to its space
    assert not study.space.problems(child)
