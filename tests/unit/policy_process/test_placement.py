"""Tests of the choice whether a policy runs in the scheduler's process or in its own."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest
from pydantic import ValidationError

from hopyard._common import plugins
from hopyard._common.plugins import POLICIES, plugin_names
from hopyard.spec import parse_spec
from hopyard.spec.models import GeneratorSpec, PolicySpec
from hopyard_scheduler.policy_process.placement import runs_inline, trusted_plugins

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs a policy of a third party, and a second name for a built-in policy."""
    more = (
        EntryPoint("theirs", "third_party.search:Theirs", POLICIES),
        EntryPoint("alias", "hopyard_policies.bandit:BanditPolicy", POLICIES),
    )
    found = plugins.entries
    monkeypatch.setattr(plugins, "entries", lambda group: (*found(group), *more))


@pytest.mark.parametrize("name", plugin_names(POLICIES))
def test_policies_that_come_with_hopyard_run_inline(name: str) -> None:
    assert runs_inline(PolicySpec(name=name))


@pytest.mark.parametrize(
    ("policy", "inline"),
    [
        ({"name": "hopyard_policies.bandit:BanditPolicy"}, True),
        ({"name": "alias"}, True),
        ({"name": "nobody_has_it"}, True),
        ({"name": "theirs"}, False),
        ({"name": "mine:Mine"}, False),
        ({"name": "hopyard_policies_of_mine.asha:Asha"}, False),
        ({"name": "remote:asha"}, False),
        ({"command": ["./policy"]}, False),
        ({"name": "stage_tree", "tuner": "asha"}, True),
        ({"name": "stage_tree", "tuner": {"name": "asha", "eta": 3}}, True),
        ({"name": "stage_tree", "tuner": "mine:Mine"}, False),
        ({"name": "stage_tree", "tuner": {"name": "theirs"}}, False),
        ({"name": "mop", "tuner": {"name": "stage_tree", "tuner": {"name": "mine:Mine"}}}, False),
        ({"name": "stage_tree", "tuner": "remote:mine"}, True),
        ({"name": "stage_tree", "tuner": 5}, True),
        ({"name": "theirs", "inline": True}, True),
        ({"name": "stage_tree", "tuner": "theirs", "inline": True}, True),
    ],
)
def test_a_policy_runs_inline_if_it_and_what_is_in_it_come_with_hopyard_or_are_trusted(
    policy: dict[str, Any], inline: bool
) -> None:
    assert runs_inline(PolicySpec(**policy)) is inline


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"name": "mine:Mine"}, "found true with mine:Mine; allowed only for the name of an installed plugin"),
        ({"name": "stage_tree", "tuner": {"name": "mine:Mine"}}, "found true with mine:Mine"),
        ({"name": "remote:asha"}, "found true with remote:asha"),
        ({"command": ["./policy"]}, "found true with command, which is always a process"),
    ],
)
def test_code_of_an_experiment_cannot_run_inline(policy: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PolicySpec(**policy, inline=True)
    with pytest.raises(ValidationError, match="found true with mine:Mine"):
        GeneratorSpec(name="mine:Mine", inline=True)


@pytest.mark.parametrize(
    ("policy", "generator", "note"),
    [
        ("theirs", "random", ""),
        ({"name": "theirs", "inline": True}, "random", "policy theirs runs inside the scheduler"),
        (
            {"name": "stage_tree", "tuner": "theirs", "inline": True},
            {"name": "random", "inline": True},
            "policy theirs runs inside the scheduler",
        ),
        ({"name": "asha", "inline": True}, "random", ""),
    ],
)
def test_people_are_told_of_trusted_plugins(policy: Any, generator: Any, note: str) -> None:
    spec = parse_spec(
        {
            "name": "e",
            "command": ["true"],
            "metric": {"name": "loss", "mode": "min"},
            "space": {"x": {"uniform": [0.0, 1.0]}},
            "policy": policy,
            "generator": generator,
            "stop": {"jobs": 1},
        }
    )
    assert trusted_plugins(spec) == (f"{note} (inline: true): its faults affect all experiments" if note else "")
