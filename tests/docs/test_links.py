"""Tests that links between the pages have a target, and that the README links to every page."""

from __future__ import annotations

import re

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


def test_the_readme_leads_to_every_page_and_example() -> None:
    wanted = {path.as_posix() for path in ROOT.glob("docs/*.md")}
    wanted |= {path.parent.as_posix() for path in ROOT.glob("examples/*/experiment.yaml")}
    found = {(ROOT / link).as_posix() for link in links("README.md")}
    assert sorted(wanted - found) == []
