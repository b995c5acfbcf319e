"""Tests that links between the pages have a target, and that the index of the documentation has every page once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, pages

_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
PAGES = [path.as_posix() for path in pages()]


def links(page: str) -> list[str]:
    """Return the relative links of a page."""
    return [link for link in _LINK.findall((ROOT / page).read_text()) if "://" not in link]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file(page: str) -> None:
    assert [link for link in links(page) if not (ROOT / page).parent.joinpath(link).exists()] == []


def test_the_index_has_each_page_in_one_group_and_on_a_line_of_its_own() -> None:
    groups = re.split(r"^## ", (ROOT / "docs" / "README.md").read_text(), flags=re.MULTILINE)[1:]
    assert [group.splitlines()[0] for group in groups] == ["Start", "How-to", "Concepts", "Reference", "Project"]
    lines = [line for group in groups for line in group.splitlines() if line.startswith("* ")]
    found = [_LINK.findall(line)[0] for line in lines]
    wanted = {path.name for path in ROOT.glob("docs/*.md")} - {"README.md"}
    assert sorted(link for link in found if "/" not in link and link.endswith(".md")) == sorted(wanted)
    assert len(set(found)) == len(found)


def test_the_list_of_examples_has_each_example() -> None:
    wanted = {path.parent.name for path in ROOT.glob("examples/*/experiment.yaml")}
    assert wanted <= {Path(link).parts[0] for link in links("examples/README.md")}


def test_the_readme_leads_to_the_index_and_the_examples() -> None:
    assert {"docs/README.md", "examples/README.md"} <= set(links("README.md"))
