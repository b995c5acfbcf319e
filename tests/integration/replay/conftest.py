"""Replays of what a whole cluster did."""

from __future__ import annotations

from tests.integration.scheduler.conftest import address, client

__all__ = ["address", "client"]
