"""Tests of the written form of sizes in bytes."""

from __future__ import annotations

import pytest

from hopyard.spec import SpecError, canonical_json, load_spec, spec_from_json
from hopyard.spec.units import size_bytes
from tests.unit.spec.files import GOOD, changed

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (1, 1),
        (4096, 4096),
        ("4096", 4096),
        ("17B", 17),
        ("500MB", 500_000_000),
        ("500 MB", 500_000_000),
        ("1.5kB", 1500),
        ("2GiB", 2 * 2**30),
        ("0.5KiB", 512),
        ("1tib", 2**40),
        ("1.9999B", 1),
    ],
)
def test_what_is_written_is_what_is_meant(written: object, expected: int) -> None:
    assert size_bytes(written) == expected


@pytest.mark.parametrize("written", [0, -1, True, 1.5, "", "GiB", "2 G", "2GiBs", "-2GiB", "1e3", "2  GiB", None, [1]])
def test_what_is_no_amount_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"needs an amount of bytes"):
        size_bytes(written)


def test_a_memory_limit_is_bytes_in_the_canonical_form() -> None:
    spec = load_spec(changed(13, "resources: {per_job: {memory: 2GiB}}"))
    assert spec.resources.per_job.memory == 2 * 2**30
    assert spec_from_json(canonical_json(spec)) == spec
    assert load_spec(GOOD).resources.per_job.memory is None


def test_a_wrong_memory_limit_names_its_place() -> None:
    with pytest.raises(SpecError, match=r"resources\.per_job\.memory: needs an amount of bytes .*, found \"lots\""):
        load_spec(changed(13, "resources: {per_job: {memory: lots}}"))


def test_logs_have_limits_unless_none_is_wanted() -> None:
    spec = load_spec(changed(13, "logs: {per_job: 64KiB, per_experiment: null}"))
    assert (spec.logs.per_job, spec.logs.per_experiment) == (65536, None)
    assert spec_from_json(canonical_json(spec)) == spec
    assert (load_spec(GOOD).logs.per_job, load_spec(GOOD).logs.per_experiment) == (10 * 2**20, 2**30)


def test_a_limit_of_logs_too_small_for_a_beginning_and_an_end_is_refused() -> None:
    with pytest.raises(SpecError, match=r"logs\.per_job: needs at least 64KiB \(65536 bytes\), found 1000"):
        load_spec(changed(13, "logs: {per_job: 1kB}"))
