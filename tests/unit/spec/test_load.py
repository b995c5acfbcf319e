"""Tests of valid experiment files, their defaults and their canonical form."""

import json

import pytest
from hypothesis import given
from pydantic import ValidationError

from hopyard.space import Choice, Constant, IntUniform, LogUniform, Space
from hopyard.spec import SpecError, canonical_json, load_spec, parse_spec, spec_from_json
from tests.unit.space.strategies import spaces
from tests.unit.spec.files import GOOD, SMALLEST

pytestmark = pytest.mark.quick


def test_the_whole_file() -> None:
    spec = load_spec(GOOD)
    assert spec.name == "digits"
    assert spec.trainer == "train.py:DigitsTrainer"
    assert spec.program == "trainer"
    assert (spec.metric.name, spec.metric.mode, spec.metric.target, spec.metric.kill_threshold) == (
        "accuracy",
        "max",
        0.97,
        0.15,
    )
    assert spec.space == Space(
        {
            "lr": LogUniform(1e-4, 1.0),
            "batch_size": Choice((32, 64, 128)),
            "layers": IntUniform(1, 4),
            "epochs": Constant(20),
        }
    )
    assert (spec.generator.name, spec.generator.seed, spec.generator.parameters) == ("random", 7, {})
    assert (spec.policy.name, spec.policy.parameters) == ("pop", {"evaluation_boundary": 10})
    assert (spec.stop.jobs, spec.stop.max_iterations, spec.stop.max_time, spec.stop.max_failures) == (100, 60, 900.0, 5)
    assert (spec.resources.slots, spec.resources.per_job.cpus, spec.resources.per_job.gpus) == (2, 1, 0)


def test_defaults() -> None:
    spec = load_spec(SMALLEST)
    assert spec.program == "command"
    assert spec.command == ("python", "train.py")
    assert (spec.metric.target, spec.metric.kill_threshold) == (None, None)
    assert (spec.generator.name, spec.generator.seed) == ("random", 0)
    assert (spec.policy.name, spec.policy.parameters) == ("default", {})
    assert (spec.stop.jobs, spec.stop.max_iterations, spec.stop.max_time, spec.stop.max_failures) == (
        None,
        None,
        None,
        3,
    )
    assert (spec.snapshot.provider, spec.snapshot.every, spec.snapshot.keep_latest, spec.snapshot.keep_best) == (
        "auto",
        None,
        1,
        1,
    )
    assert (spec.resources.slots, spec.resources.per_job.cpus, spec.resources.per_job.gpus) == (None, 1, 0)
    assert (spec.unit, spec.seed, spec.weight, spec.share) == ("epochs", 0, 1.0, None)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-4", 1e-4),
        ("1E3", 1000.0),
        ("1.5e-4", 1.5e-4),
        (".5", 0.5),
        ("1_000", 1000),
        ("0x10", 16),
        ("0o10", 8),
        ("010", 10),
        ("-3", -3),
        ("'1e-4'", "1e-4"),
        ("on", "on"),
        ("no", "no"),
        ("true", True),
        ("12:30", "12:30"),
        ("2001-01-01", "2001-01-01"),
        ("~", None),
        ("null", None),
        ("1.2.3", "1.2.3"),
        ("e5", "e5"),
        ("-", "-"),
    ],
)
def test_scalars_are_what_they_look_like(written: str, value: object) -> None:
    if written == "-":
        written = "'-'"
    spec = load_spec(f"{SMALLEST}policy: {{x: {written}}}")
    found = spec.policy.parameters["x"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("30s", 30), ("15m", 900), ("2h", 7200), ("1d", 86400), ("1h30m", 5400), ("1.5h", 5400), ("90", 90), ("0.5", 0.5)],
)
def test_lengths_of_time(written: str, seconds: float) -> None:
    assert load_spec(f"{SMALLEST}stop: {{max_time: {written}}}").stop.max_time == seconds


def test_a_plugin_without_parameters_is_just_named() -> None:
    spec = load_spec(f"{SMALLEST}policy: mine.policies:Greedy\ngenerator: grid\n")
    assert (spec.policy.name, spec.generator.name) == ("mine.policies:Greedy", "grid")


def test_a_bare_pattern_is_for_the_metric() -> None:
    text = SMALLEST.replace("command: [python, train.py]", "log: {command: [./fit], metrics: 'loss=([0-9.]+)'}")
    spec = load_spec(text)
    assert spec.log is not None
    assert spec.log.metrics == {"loss": "loss=([0-9.]+)"}
    assert spec.program == "log"
    assert spec_from_json(canonical_json(spec)) == spec


def test_a_grid_over_a_divided_continuum_needs_no_other_end() -> None:
    text = SMALLEST.replace("{choice: [0.1, 0.2]}", "{uniform: [0, 1], count: 3}")
    with pytest.raises(SpecError, match="the space is endless"):
        load_spec(text)
    assert load_spec(f"{text}generator: grid").stop.jobs is None


def test_anchors_may_be_used() -> None:
    text = SMALLEST.replace("{choice: [0.1, 0.2]}", "&lr {choice: [0.1, 0.2]}, wd: *lr")
    assert load_spec(text).space["wd"] == Choice((0.1, 0.2))


@pytest.mark.parametrize("text", [GOOD, SMALLEST])
def test_canonical_json_comes_back_equal(text: str) -> None:
    spec = load_spec(text)
    written = canonical_json(spec)
    assert spec_from_json(written) == spec
    assert canonical_json(spec_from_json(written)) == written
    assert load_spec(written) == spec
    assert "\n" not in written


def test_canonical_json_is_the_same_for_the_same_experiment() -> None:
    lines = GOOD.splitlines()
    # The sections are in another order, and defaults are present or omitted.
    other = "\n".join([*lines[8:11], *lines[:8], lines[12], "snapshot: {every: 1}", "seed: 0", "weight: 1.0"])
    assert canonical_json(load_spec(other)) == canonical_json(load_spec(GOOD))


def test_canonical_json_keeps_the_order_of_the_space_and_the_types_of_numbers() -> None:
    text = SMALLEST.replace("{lr: {choice: [0.1, 0.2]}}", "{z: {choice: [1, 2.0]}, a: 3}")
    spec = spec_from_json(canonical_json(load_spec(text)))
    assert list(spec.space) == ["z", "a"]
    choice = spec.space["z"]
    assert isinstance(choice, Choice)
    assert [type(value) for value in choice.values] == [int, float]


@pytest.mark.merge
@given(spaces)
def test_every_space_survives(space: Space) -> None:
    data = {
        "name": "x",
        "trainer": "a:B",
        "metric": {"name": "m", "mode": "max"},
        "stop": {"max_iterations": 1, "jobs": 1},
    }
    spec = parse_spec({**data, "space": space.to_dict()})
    assert spec_from_json(canonical_json(spec)) == spec
    assert spec.space == space


def test_what_is_not_a_specification_is_refused_without_a_line() -> None:
    with pytest.raises(SpecError, match=r"^experiment: is not JSON"):
        spec_from_json("{")
    with pytest.raises(SpecError, match=r"^experiment: needs a mapping with name"):
        spec_from_json("[]")
    with pytest.raises(SpecError, match=r"^client: nam: unknown field \(did you mean name\?\)"):
        parse_spec({**json.loads(canonical_json(load_spec(SMALLEST))), "nam": 1}, "client")


def test_a_specification_cannot_be_changed() -> None:
    spec = load_spec(SMALLEST)
    with pytest.raises(ValidationError):
        spec.name = "other"  # type: ignore[misc]  # the point of the test
    spec.policy.parameters["x"] = 1
    assert spec.policy.parameters == {}


def test_every_field_is_described() -> None:
    schema = type(load_spec(SMALLEST)).model_json_schema()
    sections = [schema, *schema["$defs"].values()]
    bare = [
        f"{section['title']}.{name}"
        for section in sections
        for name, field in section["properties"].items()
        if "description" not in field
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("written", "count"),
    [
        ("1048576", 1048576),
        ("7B", 7),
        ("500MB", 500_000_000),
        ("500 MB", 500_000_000),
        ("1.5GiB", 1_610_612_736),
        ("10GiB", 10 * 2**30),
        ("2kB", 2000),
        ("2KB", 2000),
        ("2KiB", 2048),
        ("1TB", 10**12),
        ("null", None),
    ],
)
def test_bytes(written: str, count: int | None) -> None:
    spec = load_spec(f"{SMALLEST}snapshot: {{quota: {written}}}")
    assert spec.snapshot.quota == count
    assert spec_from_json(canonical_json(spec)).snapshot.quota == count
