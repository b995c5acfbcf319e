"""Upper bounds on the figures of scripts/structure.py. Lower a bound when a change improves its figure."""

import re
import sys
from pathlib import Path

import pytest

from tests.unit.architecture.tree import ROOT

sys.path.append(str(ROOT / "scripts"))
import structure

BOUNDS = {
    "crowded_packages": 1,
    "import_cycles": 0,
    "gerund_or_participle_modules": 0,
    "class_names_used_twice": 4,
    "class_names_used_twice_in_a_package": 0,
    "small_modules_with_one_importer": 25,
}

NO_REASONS = {
    "hopyard._runtime.application.conformance.failure_cases 'lr' in ended.message": "the message of a user's program",
    "hopyard._runtime.bundle text.startswith('#')": "a line of .hopyardignore",
    "hopyard._runtime.bundle text.startswith('!')": "a line of .hopyardignore",
    "hopyard._runtime.bundle text.endswith('/')": "a line of .hopyardignore",
    "hopyard._runtime.bundle '/' in text": "a line of .hopyardignore",
    "hopyard._runtime.bundle text.startswith('**/', index)": "a line of .hopyardignore",
    "hopyard._runtime.bundle text.startswith('**', index)": "a line of .hopyardignore",
    "hopyard._runtime.runner.gang.follower 'go' in message": "a key of a message between ranks",
    "hopyard._runtime.runner.gang.follower 'train' in message": "a key of a message between ranks",
    "hopyard._runtime.runner.gang.follower 'leave' in message": "a key of a message between ranks",
    "hopyard._runtime.runner.gang.follower 'over' in message": "a key of a message between ranks",
    "hopyard._runtime.runner.gang.leader 'failed' in message": "a key of a message between ranks",
    "hopyard_hpgen.isolated_generator 'raised' in said": "a key of the answer of the process of a generator",
    "hopyard._runtime.processes.worker_client 'error' in said": "a key of the answer of a worker process",
    "hopyard_nodeagent.predictions.process 'error' in said": "a key of the answer of a predictor's process",
    "hopyard_nodeagent.predictions.queue 'error' in said": "a key of the answer of a predictor's process",
    "hopyard_appstat.database.writer 'full' in text": "the message of a database driver, which has no code",
    "hopyard_appstat.database.writer 'No space left' in text": "the message of a database driver, which has no code",
}
"""Comparisons of texts that are not reasons of the engine, with what they compare. A reason must be compared by its code."""


@pytest.fixture(scope="module")
def figures() -> dict[str, list[str] | int | float]:
    return structure.figures()


@pytest.mark.parametrize("name", list(BOUNDS))
def test_a_figure_keeps_its_bound(figures: dict[str, list[str] | int | float], name: str) -> None:
    found = figures[name]
    assert isinstance(found, list)
    assert len(found) <= BOUNDS[name], "\n".join(found)


def test_no_text_of_a_reason_is_compared(figures: dict[str, list[str] | int | float]) -> None:
    found = figures["text_comparisons"]
    assert isinstance(found, list)
    assert sorted(re.sub(r":\d+ ", " ", place) for place in found) == sorted(NO_REASONS)


def test_every_package_says_what_it_is_for() -> None:
    silent = [
        module.name for module in structure.modules().values() if module.package and not module.source.startswith('"""')
    ]
    assert silent == []


def test_a_circle_of_imports_is_found() -> None:
    assert structure.cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_a_comparison_with_the_text_of_a_reason_is_found(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        'if event.reason.startswith("refused"): pass\nif reason == "over": pass\nif state == "over": pass\n'
    )
    found = structure.text_comparisons({"module": structure.Module("module", file, package=False)})
    assert found == ["module:1 event.reason.startswith('refused')", "module:2 reason == 'over'"]
