from __future__ import annotations

import grpc
import pytest

from hopyard import errors
from hopyard._net.rpc import status_codes

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("kind", list(status_codes.CODES))
def test_every_error_comes_back_as_itself(kind: type[errors.HopyardError]) -> None:
    error = kind("message")
    back = status_codes.error_from(
        status_codes.code_of(error), status_codes.message_of(error), status_codes.name_of(error)
    )
    assert type(back) is kind
    assert str(back) == "message"


def test_the_table_has_every_class() -> None:
    every = {value for value in vars(errors).values() if isinstance(value, type)} - {errors.HopyardError}
    assert every == set(status_codes.CODES)


def test_a_peer_without_class_names_gives_the_first_of_the_code() -> None:
    assert type(status_codes.error_from(grpc.StatusCode.FAILED_PRECONDITION, "m")) is errors.Conflict


def test_a_name_that_does_not_fit_its_code_is_not_believed() -> None:
    assert type(status_codes.error_from(grpc.StatusCode.NOT_FOUND, "m", "StaleEpoch")) is errors.NotFound


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_every_status_is_an_error(code: grpc.StatusCode) -> None:
    assert isinstance(status_codes.error_from(code, ""), errors.HopyardError)


def test_a_subclass_travels_as_its_nearest_known_base() -> None:
    class Special(errors.Exhausted):
        pass

    assert status_codes.code_of(Special("m")) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert status_codes.name_of(Special("m")) == "Exhausted"
    assert status_codes.code_of(errors.HopyardError("m")) is grpc.StatusCode.INTERNAL


@pytest.mark.parametrize("text", ["x" * 100_000, "ü" * 100_000, "a\n" * 50_000])
def test_a_long_message_is_cut_to_fit_a_header(text: str) -> None:
    cut = status_codes.message_of(errors.InvalidInput(text))
    assert cut.endswith("...")
    assert text.startswith(cut[:-3])
    assert 500 < len(cut) < 4200
