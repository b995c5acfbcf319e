"""Tests of the quick part of the golden record, and of the code that compares with it."""

from __future__ import annotations

import enum
import hashlib
import json
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest

from tests.golden import journals, product, searches, simulation
from tests.golden.archive import Archive, Entry, Unit
from tests.golden.canonical import Canon, dump
from tests.golden.case import MARK, Case, mark
from tests.golden.difference import compare
from tests.golden.names import NAMES, MissingPlaceError, Names, applicable
from tests.golden.translation import Translation, journal, present_archive

pytestmark = pytest.mark.quick

STEPS = 50


@pytest.mark.parametrize("unit", simulation.schedules())
def test_a_schedule_begins_as_recorded(unit: str) -> None:
    chain = Archive().read("simulation", unit).entries[f"{unit}:0"].chain
    lines = simulation.schedule(unit, 0, most=STEPS)
    assert len(lines) == STEPS
    assert "".join(map(mark, lines)) == chain[: STEPS * MARK]


def test_defaults_of_events_and_effects_are_as_recorded() -> None:
    entries = Archive().read("simulation", "defaults").entries
    assert {case.name: case.digest for case in simulation.cases("defaults")} == {
        name: entry.digest for name, entry in entries.items()
    }


@pytest.mark.parametrize("policy", searches.units())
def test_a_short_search_is_as_recorded(policy: str) -> None:
    entries = Archive().read("searches", policy).entries
    name = min(
        (name for name, entry in entries.items() if len(entry.chain) >= STEPS * MARK),
        key=lambda n: len(entries[n].chain),
    )
    _, verdict = product.search(name.partition(":")[2], policy)
    assert Case(name, searches.lines(verdict)).digest == entries[name].digest


def test_the_record_covers_every_probe_and_policy() -> None:
    archive, policies = Archive(), set(product.policies())
    assert archive.units("simulation") == set(simulation.units())
    assert archive.units("searches") == policies == journals.recorded().keys() == journals.CHANGES.keys()
    assert policies == simulation.PARAMETERS.keys()


def test_hashes_of_the_record_fit_its_text() -> None:
    unit = Archive().read("searches", "asha")
    assert unit.lines
    for name, lines in unit.lines.items():
        case = Case(name, lines)
        assert (case.digest, case.chain) == (unit.entries[name].digest, unit.entries[name].chain)


# -------------------------------------------------------------------------------------------------------- differences


def step(until: int, **more: object) -> str:
    event = {"is": "Told", "at": 7.5, "experiment": "x", "job": "3"}
    return dump({"event": event, "effects": [{"is": "Send", "until": until, **more}]})


def against(old: list[str], new: list[str], *, kept: bool = True) -> list[str]:
    case = Case("x:1", old)
    record = Unit({"x:1": entry_of(case)}, {"x:1": old} if kept else {})
    return [str(one) for one in compare("part", [Case("x:1", new)], record, Unit())]


def entry_of(case: Case) -> Entry:
    return Entry(case.digest, case.chain)


def test_the_first_step_that_differs_is_named_with_its_fields() -> None:
    (said,) = against([step(1), step(4), step(5)], [step(1), step(5), step(5)])
    assert "part/x:1: 1 differ of 3 steps" in said
    assert "step 2: Told of stream x job 3 at 7.5" in said
    assert "effects[0].until was 4, is 5" in said


def test_a_step_of_which_only_the_hash_is_known_is_shown_in_full() -> None:
    (said,) = against([step(1), step(4)], [step(1), step(5)], kept=False)
    assert "step 2: Told of stream x" in said
    assert step(5) in said


@pytest.mark.parametrize(("old", "new", "words"), [(1, 2, "which the record does not have"), (2, 1, "missing now")])
def test_cases_of_other_lengths_differ_where_the_shorter_one_ends(old: int, new: int, words: str) -> None:
    (said,) = against([step(1)] * old, [step(1)] * new)
    assert words in said


def test_equal_cases_do_not_differ() -> None:
    assert against([step(1)], [step(1)]) == []


def test_cases_that_one_side_lacks_differ() -> None:
    case = Case("x:1", [step(1)])
    assert [one.summary for one in compare("part", [case], Unit(), Unit())] == ["not in the record (1 steps)"]
    record = Unit({"x:1": entry_of(case)})
    assert [one.summary for one in compare("part", [], record, Unit())] == ["in the record, but not run any more"]


# -------------------------------------------------------------------------------------------------------------- names


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Old:
    experiment: str
    member: str = "one"
    kinds: frozenset[str] = field(default_factory=frozenset)


class Pair(NamedTuple):
    left: int
    right: float = 1.0


RENAMED = Names(
    {
        "places": {"here": ["nowhere.at_all:Thing", "tests.golden.test_golden:Colour.RED"], "gone": ["nowhere:Thing"]},
        "classes": {"New": "Old"},
        "fields": {"Old": {"stream": "experiment", "experiment": "member"}},
        "keys": {"streams": "experiments"},
        "values": {"Old.member": {"codes.first": "one"}, "kind": {"New": "Old"}},
        "ignored": {"fields": ["Pair.right"], "keys": ["extra"]},
    }
)
"""Names after a rename that gives `experiment` another meaning."""


def test_a_rename_changes_no_canonical_text() -> None:
    New = make_dataclass("New", [("stream", str), ("experiment", str, "one"), ("kinds", frozenset, frozenset())])
    canon = Canon(RENAMED)
    assert canon.text(New("x", "two")) == canon.text(Old("x", "two")) == '{"experiment":"x","is":"Old","member":"two"}'


def test_a_rename_applies_only_where_it_has_taken_place() -> None:
    renames = {"stream": "experiment", "experiment": "member"}
    assert applicable(renames, ["experiment", "member"]) == {}
    assert applicable(renames, ["stream", "experiment"]) == renames
    assert applicable({"a": "b", "b": "a"}, ["a", "b"]) == {"a": "b", "b": "a"}


def test_fields_at_their_default_are_left_out() -> None:
    canon = Canon(Names({}))
    assert canon.plain(Old("x")) == {"is": "Old", "experiment": "x"}
    assert canon.plain(Old("x", kinds=frozenset("ba"))) == {"is": "Old", "experiment": "x", "kinds": ["a", "b"]}
    assert canon.plain(Pair(1, 1)) == {"is": "Pair", "left": 1, "right": 1}


def test_documents_have_canonical_keys_and_values() -> None:
    document = {"streams": [1.23456789012], "kind": "New", "extra": 1}
    assert Canon(RENAMED).plain(document) == {"experiments": [1.23456789], "kind": "Old"}
    assert Canon(RENAMED).plain(Pair(1, 2.0)) == {"is": "Pair", "left": 1}


def test_numbers_have_as_many_digits_as_count() -> None:
    canon = Canon(Names({}))
    assert canon.plain([0.1 + 0.2, 1795537092.07805, -0.0, float("nan")]) == [0.3, 1795537092.078, 0.0, "nan"]
    assert json.loads(canon.text({"enum": Colour.RED, 3: True})) == {"enum": "Colour.RED", "3": True}


def test_what_has_no_canonical_form_is_refused() -> None:
    with pytest.raises(TypeError, match=r"builtins\.object has no canonical form"):
        Canon(Names({})).plain([object()])


def test_code_is_found_at_the_first_place_that_exists() -> None:
    assert RENAMED.find("here") is Colour.RED
    with pytest.raises(MissingPlaceError, match=r"gone: none of nowhere:Thing exists; .* names\.toml"):
        RENAMED.find("gone")


# --------------------------------------------------------------------------------------------------- recorded journals


@dataclass(frozen=True)
class Part:
    size: int


@dataclass(frozen=True)
class Whole:
    size: int


@dataclass(frozen=True)
class Told:
    stream: str
    body: Part | Whole
    parts: tuple[Part, ...] = ()
    payload: Any = None


@dataclass(frozen=True)
class Asked:
    stream: str


EVENTS = Told | Asked


def test_journals_are_translated_to_present_names_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {
        "places": {"event_union": ["tests.golden.test_golden:EVENTS"]},
        "classes": {"Told": "Said", "Part": "Piece"},
        "fields": {"Said": {"stream": "experiment"}, "Piece": {"size": "length"}},
    }
    monkeypatch.setattr(product, "NAMES", Names(tables))
    recorded = {
        "experiment": "x",
        "body": {"is": "Piece", "length": 1},
        "parts": [{"length": 2}],
        "payload": {"length": 3},
    }
    present = {"stream": "x", "body": {"is": "Part", "size": 1}, "parts": [{"size": 2}], "payload": {"length": 3}}
    assert Translation(to_present=True).record("Said", recorded) == ("Told", present)
    assert Translation(to_present=False).record("Told", present) == ("Said", recorded)
    assert Translation(to_present=True).record("Unknown", {"a": 1}) == ("Unknown", {"a": 1})


class Swapped(Names):
    """Names of code in which two classes have swapped their names since the record was written."""

    def __init__(self, tables: Mapping[str, Any], swapped: Mapping[str, str]) -> None:
        super().__init__(tables)
        self._swapped = swapped

    def class_name(self, cls: type) -> str:
        known = super().class_name(cls)
        other = self._swapped.get(cls.__name__)
        return next((super(Swapped, self).class_name(one) for one in self._all() if one.__name__ == other), known)

    def _all(self) -> tuple[type, ...]:
        return get_args(self.find("event_union"))


def test_a_recorded_journal_is_translated_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = journals.recorded()["asha"], tmp_path / "asha.hopyard"
    before = [one["kind"] for one in journal(present_archive(source, target))]
    one, two = sorted(set(before))[:2]
    swapped = {one: two, two: one}
    monkeypatch.setattr(product, "NAMES", Swapped(tomllib.loads(NAMES.read_text()), swapped))
    assert present_archive(source, target) == target
    after = [record["kind"] for record in journal(target)]
    assert after == [swapped.get(kind, kind) for kind in before] != before
    with zipfile.ZipFile(target) as archive:
        promised = json.loads(archive.read("manifest.json"))["members"]["journal.jsonl"]["sha256"]
        assert hashlib.sha256(archive.read("journal.jsonl.zst")).hexdigest() == promised
