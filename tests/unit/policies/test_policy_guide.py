"""Tests that the reference in the policy author's guide names every up-call, view and down-call with its arguments."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing

import pytest

from hopyard import policy
from hopyard.policy import Cluster, CurvePoint, ExperimentView, Incumbent, JobState, JobView, Policy, SlotView
from hopyard.policy import vocabulary as words
from tests.unit.architecture.tree import ROOT

pytestmark = pytest.mark.quick

GUIDE = ROOT / "docs" / "policies.md"

# Not for policy authors: the down-calls are implemented with these.
INNER = {"submit", "new_job_id", "new_ticket"}


def section(title: str) -> str:
    """Return the text below a second-level heading, up to the next one."""
    text = GUIDE.read_text()
    assert f"\n## {title}\n" in text
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title: str) -> list[str]:
    """Return the first cells, if they are code, of the tables in a section."""
    return re.findall(r"^\| (`.*?) \|", section(title), re.MULTILINE)


def signature(function: object) -> str:
    """Return a signature in the format of the guide: name(a, b=, *c, **d)."""
    assert inspect.isfunction(function)
    kinds: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = list(inspect.signature(function).parameters.values())[1:]
    parts = [
        f"{kinds.get(p.kind, '')}{p.name}{'' if p.default is inspect.Parameter.empty else '='}" for p in parameters
    ]
    return f"{function.__name__}({', '.join(parts)})"


def public(cls: type) -> dict[str, object]:
    return {name: value for name, value in vars(cls).items() if not name.startswith("_") and name not in INNER}


def test_every_up_call_is_named_with_its_arguments() -> None:
    told = [re.match(r"`(.*?)`", row)[1] for row in rows("Up-calls") if "(" in row]  # type: ignore[index]  # it matches
    assert told == [signature(method) for method in public(Policy).values() if inspect.isfunction(method)]
    attributes = [name for name, value in public(Policy).items() if not inspect.isfunction(value)]
    assert all(f"`{name} = " in section("Up-calls") for name in attributes)


def test_all_of_the_view_and_every_down_call_are_named_with_their_arguments() -> None:
    told = [re.match(r"`(.*?)`", row)[1] for title in ("The view", "Down-calls") for row in rows(title)]  # type: ignore[index]
    views = {view.__name__ for view in (JobView, SlotView, ExperimentView, CurvePoint, Incumbent)}
    expected = {
        name if isinstance(value, property) else signature(value)
        for name, value in public(Cluster).items()
        if isinstance(value, property) or inspect.isfunction(value)
    }
    assert sorted(told) == sorted(expected | views)


SHOWN = [
    *(cls for cls in typing.get_args(words.Call) if dataclasses.fields(cls)),
    words.Report,
    words.Verdict,
    JobView,
    SlotView,
    ExperimentView,
    CurvePoint,
    Incumbent,
]


@pytest.mark.parametrize("cls", SHOWN, ids=lambda cls: cls.__name__)
def test_every_field_is_named(cls: type) -> None:
    (cell,) = re.findall(rf"^\| `{cls.__name__}` \| (.*) \|$", GUIDE.read_text(), re.MULTILINE)
    told = re.findall(r"`(\w+)", re.sub(r"\([^)]*\)", "", cell))
    fields = [field.name for field in dataclasses.fields(cls)]
    others = [name for name in vars(cls) if not name.startswith("_") and name not in fields]
    assert told == [*fields, *others], "fields first, in their order"


def test_states_reasons_and_decisions_are_all_there() -> None:
    text = GUIDE.read_text()
    names = [state.value for state in JobState] + [reason.value for reason in policy.RunEndReason]
    names += [kind.value for kind in words.DecisionKind]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_the_links_of_the_guide_lead_somewhere() -> None:
    text = GUIDE.read_text()
    anchors = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        else:
            assert (GUIDE.parent / target.partition("#")[0]).exists(), target
