"""Tests of the check of an address that other hosts receive: they must be able to reach it."""

import pytest

from hopyard._net.server.addresses import check_host
from hopyard.errors import InvalidInput

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", ""])
def test_all_addresses_at_once_are_refused(host: str) -> None:
    with pytest.raises(InvalidInput, match="the address by which other computers reach this one, found"):
        check_host(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "192.168.0.10", "::1", "first.lan"])
def test_an_address_or_a_name_is_fine(host: str) -> None:
    check_host(host)
