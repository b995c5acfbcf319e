"""Tests of experiment files that are made to break the reader: all are refused with an error, and none takes long or much memory."""

from __future__ import annotations

import json

import pytest
import yaml

from hopyard._common import bounded_yaml
from hopyard._common.bounded_yaml import MAX_DEPTH, MAX_NODES, BoundedLoader, OversizedYaml, top_level_keys
from hopyard.spec import SpecError, canonical_json, load_spec, spec_from_json
from tests.unit.spec.files import GOOD, changed

DIGITS = "9" * 200_000


def nested(levels: int) -> str:
    return changed(6, f"  b: {{choice: [{'[' * levels}1{']' * levels}, 2]}}")


def log(pattern: str) -> str:
    return changed(2, f"log: {{command: [a], metrics: {json.dumps(pattern)}}}")


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed(6, f"  b: {{choice: [1, {DIGITS}]}}"), "needs a number that a double can hold, found 200000 digits"),
        (changed(6, f"  b: {{uniform: [1, {DIGITS}]}}"), "needs a number that a double can hold, found 200000 digits"),
        (changed(6, f"  b: {{choice: [1, 0x{'f' * 300}]}}"), "needs a number that a double can hold"),
        (changed(6, f"  b: {{choice: [1, {'9' * 309}]}}"), "needs a number that a double can hold, found 309 digits"),
        (nested(MAX_DEPTH), f"nested too deeply: needs at most {MAX_DEPTH} levels"),
        ("[" * 100_000, "nested too deeply"),
        ("{a: " * 100_000, "nested too deeply"),
        ("x: " + "y" * 10_000_000, "needs at most 1048576 characters, found 10000003"),
        (f"%YAML {'1' * 5000}.1\n--- 1", "is not YAML"),
        (log("(" * 2000 + "a" + ")" * 2000), "needs a regular expression of at most 1000 characters, found 4001"),
        (log("(?:" * 300 + "(a)" + ")" * 300), "needs a regular expression of at most 1000 characters"),
        (log("(a{99999999999999999999})"), "needs a regular expression, found"),
    ],
)
def test_hostile_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load_spec(text)


@pytest.mark.quick
def test_what_is_just_within_the_limits_is_read() -> None:
    load_spec(nested(MAX_DEPTH - 5))
    load_spec(changed(6, f"  b: {{uniform: [0, 1{'0' * 307}]}}"))


def test_many_values_are_refused_before_the_rest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_yaml, "MAX_NODES", 100)
    loader = BoundedLoader("[" + "1, " * 100_000 + "]")
    with pytest.raises(OversizedYaml, match="needs at most 100 values"):
        loader.get_single_node()
    assert loader.get_mark().column < 10_000


@pytest.mark.quick
def test_texts_that_aliases_multiply_are_refused() -> None:
    text = f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]"
    with pytest.raises(SpecError, match=r"aliases counted each time, with 1048576 characters"):
        load_spec(text)


@pytest.mark.quick
def test_nesting_by_aliases_is_refused() -> None:
    lines = [f"a{n}: &a{n} [[[[[[[[[[{f'*a{n - 1}' if n else 1}]]]]]]]]]]" for n in range(10)]
    with pytest.raises(SpecError, match="levels, aliases followed"):
        load_spec("\n".join(lines))


@pytest.mark.quick
def test_a_text_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_yaml, "MAX_CPU_SECONDS", -1.0)
    with pytest.raises(SpecError, match="takes too long to read"):
        load_spec(GOOD)


@pytest.mark.quick
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, '{"name": ' + DIGITS + "}"])
def test_hostile_json_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        spec_from_json(text)


@pytest.mark.quick
def test_numbers_beyond_a_double_in_json_are_refused() -> None:
    data = json.loads(canonical_json(load_spec(GOOD)))
    data["space"]["lr"] = {"uniform": [0, 10**400]}
    with pytest.raises(SpecError):
        spec_from_json(json.dumps(data))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("a: 1\nb: [1]", {"a", "b"}),
        ("a: !!int ''\nb: !!timestamp x", {"a", "b"}),
        ("a: &a {<<: *a}", {"a"}),
        ("[a]", set()),
        ("a: [", set()),
        ("", set()),
        (b"\xff\xfe\xff", set()),
        pytest.param("[" * 5000, set(), marks=pytest.mark.merge),
    ],
)
def test_top_level_keys_need_no_values(text: str | bytes, keys: set[str]) -> None:
    assert top_level_keys(text) == keys


@pytest.mark.quick
def test_the_loader_reads_what_yaml_reads() -> None:
    text = "a: [1, {b: c}]\nd: &x {e: 2}\nf: *x\n"
    assert BoundedLoader(text).get_single_data() == yaml.safe_load(text)
    assert MAX_NODES == 100_000
