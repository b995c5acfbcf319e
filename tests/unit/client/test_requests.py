"""Tests that the client refuses invalid requests before it calls a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from hopyard.client import AsyncClient
from hopyard.errors import InvalidInput

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("given", "position", "said"),
    [
        ({"x": 1}, 2.5, "position: must be a whole number in 1..max_iterations, found 2.5"),
        ({"x": 1}, "3", "position: must be a whole number in 1..max_iterations, found '3'"),
        ({"x": 1}, True, "position: must be a whole number in 1..max_iterations, found True"),
        ("garbage", 12, "hyperparameters: needs a value for each name of the space, found 'garbage'"),
    ],
)
async def test_what_cannot_be_trained_is_refused(given: Any, position: Any, said: str) -> None:
    client = AsyncClient(server="127.0.0.1:1")
    with pytest.raises(InvalidInput, match=said):
        await client.request("an-experiment", given, position)
