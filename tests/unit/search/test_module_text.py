"""What is sent of a script or a notebook for one of its functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard.errors import InvalidInput
from hopyard.search.module_text import module_text
from tests.unit.search.mains import notebook, run, script

pytestmark = pytest.mark.quick


def test_a_function_brings_what_it_uses_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = script(
        monkeypatch,
        tmp_path,
        """
        import math as maths
        import os.path
        from dataclasses import dataclass

        RATES = {"slow": 0.5, "nothing": float("nan"), "sizes": [1, (2,)]}
        unused = object()

        @dataclass
        class Point:
            x: float
            y: float = 2.0

        def helper(point):
            return maths.sqrt(point.x) + point.y

        def objective(trial):
            assert os.path.basename("a/b") == "b"
            return helper(Point(trial["x"])) * RATES["slow"]

        raise_if_run_again = [1 / 1]
        """,
    )
    text = module_text(name("objective"))
    assert run(text, "objective", {"x": 16.0}) == 3.0
    assert "unused" not in text
    assert "raise_if_run_again" not in text


def test_a_value_is_sent_as_it_is_now_not_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    name = notebook(monkeypatch, "scale = 2", "def objective(trial):\n    return scale * trial['x']", "scale = 5")
    assert run(module_text(name("objective")), "objective", {"x": 1}) == 5


def test_a_value_that_is_not_plain_is_created_again_by_its_assignment(monkeypatch: pytest.MonkeyPatch) -> None:
    name = notebook(
        monkeypatch,
        "import numpy as np\nfrom numpy import exp",
        "def table(n):\n    return np.arange(n), np.ones(n)",
        "count = 3\nx, y = table(count)",
        "def objective(trial):\n    return float((x * y).sum() + exp(0.0))",
    )
    text = module_text(name("objective"))
    assert text.count("table(count)") == 1
    assert run(text, "objective", {}) == 4.0


@pytest.mark.parametrize(
    "change",
    ["x = x * 2", "x += 1", "x[0] = 7", "for x in [np.ones(1)]:\n    pass"],
    ids=["itself", "+=", "item", "loop"],
)
def test_a_value_that_its_assignment_does_not_give_is_refused(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    name = notebook(
        monkeypatch, "import numpy as np\nx = np.ones(2)", change, "def objective(trial):\n    return float(x.sum())"
    )
    with pytest.raises(InvalidInput, match=r"objective\(\) uses 'x', a value of type ndarray, which cannot be sent"):
        module_text(name("objective"))


def test_a_client_is_never_created_again(monkeypatch: pytest.MonkeyPatch) -> None:
    name = notebook(
        monkeypatch,
        "from hopyard import Client\nclient = Client('127.0.0.1:1')",
        "def objective(trial):\n    return len(client.nodes())",
    )
    with pytest.raises(InvalidInput, match="uses 'client', a value of type Client, which cannot be sent"):
        module_text(name("objective"))


def test_the_newest_cell_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    first = "def objective(trial):\n    return 1\n"
    name = notebook(
        monkeypatch, first, "class Net:\n    size = 1", first.replace("1", "Net.size"), "class Net:\n    size = 9"
    )
    assert run(module_text(name("objective")), "objective", {}) == 9


def test_variables_of_enclosing_functions_are_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = script(
        monkeypatch,
        tmp_path,
        """
        from pathlib import Path

        def made(factor, place):
            def double(x):
                return factor * x

            def objective(trial):
                return double(trial["x"]), str(place)

            return objective

        objective = made(4, Path("/data"))
        """,
    )
    assert run(module_text(name("objective")), "objective", {"x": 2}) == (8, "/data")


def test_decorators_are_applied_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = script(
        monkeypatch,
        tmp_path,
        """
        import functools

        def plain(function):
            def wrapper(trial):
                return 1 + function(trial)

            return wrapper

        def wrapped(function):
            @functools.wraps(function)
            def wrapper(trial):
                return 10 + function(trial)

            return wrapper

        @functools.lru_cache
        def data():
            return 100

        @functools.partial
        def thousand():
            return 1000

        @plain
        def one(trial):
            return data()

        def three(trial):
            return thousand() + data()

        @wrapped
        def two(trial):
            return data()
        """,
    )
    one = name("one")
    assert run(module_text(one), one.__name__, {}) == 101
    assert run(module_text(name("two")), "two", {}) == 110
    assert run(module_text(name("three")), "three", {}) == 1100


def test_recursion_and_future_annotations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = script(
        monkeypatch,
        tmp_path,
        """
        from __future__ import annotations

        def even(n: Missing) -> bool:
            return n == 0 or odd(n - 1)

        def odd(n):
            return n != 0 and even(n - 1)

        def objective(trial):
            return even(trial["n"])
        """,
    )
    assert run(module_text(name("objective")), "objective", {"n": 4}) is True


def test_one_name_with_two_values_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = script(
        monkeypatch,
        tmp_path,
        """
        rate = 1

        def made(rate):
            def inner():
                return rate

            return inner

        inner = made(2)

        def objective(trial):
            return inner() + rate
        """,
    )
    with pytest.raises(InvalidInput, match="the name 'rate' has two different values"):
        module_text(name("objective"))


def test_without_source_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = script(monkeypatch, tmp_path, "exec('def objective(trial): return 1')")
    with pytest.raises(InvalidInput, match=r"the source of objective is not known, .*; put it into a file"):
        module_text(name("objective"))
