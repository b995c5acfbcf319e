"""Which hosts may be told to others."""

from __future__ import annotations

import ipaddress

from hopyard.errors import InvalidInput


def check_host(host: str) -> None:
    """Refuse to be known by an address that means all of them: others are told it, and could not come back by it.

    Raises:
        InvalidInput: `host` is 0.0.0.0, :: or empty.
    """
    try:
        unspecified = ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:  # a name
        unspecified = not host
    if unspecified:
        raise InvalidInput(
            f"--host needs the address by which other computers reach this one, found {host!r}: it is told to them; "
            "`hostname -I` lists this computer's addresses"
        )
