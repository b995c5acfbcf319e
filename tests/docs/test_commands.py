"""Runs the commands and programs of each page of the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from _pytest.terminal import TerminalReporter

from tests.conftest import require_system_package
from tests.docs.options import mistakes
from tests.docs.page_runner import Run
from tests.docs.pages import ROOT, pages, read_page

PAGES = [path.as_posix() for path in pages()]
_NEEDS_FASHION_MNIST = (
    "examples/fashion_mnist/README.md",
    "examples/fashion_mnist_script/README.md",
    "examples/log_mode/README.md",
)
_AT_NIGHT = (
    "CONTRIBUTING.md",
    "docs/backup.md",
    "docs/gangs.md",
    "docs/halving.md",
    "docs/mop.md",
    "docs/operations.md",
    "docs/pbt.md",
    "docs/plots.md",
    "docs/policies.md",
    "docs/recovery.md",
    "docs/simulation.md",
    "docs/snapshots.md",
    "docs/stage-trees.md",
    "docs/studies.md",
    "examples/fashion_mnist/README.md",
    "examples/fashion_mnist_script/README.md",
    "examples/mop_digits/README.md",
    "examples/own_policy/README.md",
    "examples/own_predictor/README.md",
    "examples/secondary_metric/README.md",
)
"""Pages whose commands take more than 5 s of CPU time. README.md, docs/first-experiment.md and docs/tour.md take more and guard
each merge."""


def _tiered(page: str) -> ParameterSet:
    return pytest.param(page, marks=pytest.mark.nightly if page in _AT_NIGHT else pytest.mark.merge)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [_tiered(page) for page in PAGES])
def test_every_block_does_what_the_page_says(page: str, tmp_path: Path) -> None:
    if page in _NEEDS_FASHION_MNIST:
        require_system_package("dataset-fashion-mnist", "/usr/share/datasets/fashion-mnist")
    (folder := tmp_path / "work").mkdir()  # Pages also use its parent, such as `../backups`.
    Run(folder, page).blocks(read_page((ROOT / page).read_text(), page))


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_are_only_named_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    assert list(mistakes(text, read_page(text, page))) == []


def test_what_is_not_run_says_why(request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]) -> None:
    blocks = [block for page in PAGES for block in read_page((ROOT / page).read_text(), page)]
    left_out = [block for block in blocks if "not run" in block.marks]
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    assert isinstance(reporter, TerminalReporter)
    with capfd.disabled():
        reporter.write_line(f"\n{len(left_out)} of {len(blocks)} blocks of the documentation are not run:")
        for block in left_out:
            reporter.write_line(f"{block.place}: {block.marks['not run']}")
    assert len(left_out) < len(blocks) / 4
