"""Test that an agent is welcomed, and gets commands again, only after the core has handled its own announcement."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from hopyard_engine.core.core import Core
from hopyard_engine.core.effects import Welcome
from hopyard_engine.core.events import NodeJoined
from hopyard_engine.core.types import SlotSpec
from hopyard_scheduler.agents.sessions import Session, Sessions
from hopyard_scheduler.runtime.effect_executor import EffectExecutor

pytestmark = pytest.mark.quick


def test_the_welcome_of_a_killed_agent_is_not_sent_to_its_successor() -> None:
    """While the database was away, the first agent was killed, and its successor opened a session before the effects are carried out.

    With the welcome, the successor would get the commands to the runs of the first one.
    """
    core, sessions = Core(), Sessions(10.0, lambda: 0.0)
    anything: Any = MagicMock()
    executor = EffectExecutor(
        SimpleNamespace(epoch=1, cluster="c", history="c"),  # type: ignore[arg-type]
        sessions,
        store=anything,
        generators=anything,
        predictions=anything,
        solvers=anything,
        tickets=SimpleNamespace(node_key=lambda node: b""),  # type: ignore[arg-type]
        heartbeat_seconds=1.0,
        clock=lambda: 0.0,
    )
    executor.attach(core, anything, anything)

    def effects_of_joining(incarnation: str) -> list[Welcome]:
        joined = NodeJoined(0.0, "n1", incarnation, (SlotSpec("n1/0"),))
        return [effect for effect in core.handle(joined) if isinstance(effect, Welcome)]

    sessions.open(Session("n1", "first", "unix:/n1"))
    (welcome,) = effects_of_joining("first")
    successor = Session("n1", "second", "unix:/n1")
    sessions.open(successor)
    executor.carry(welcome)
    assert not successor.ready
    (welcome,) = effects_of_joining("second")
    executor.carry(welcome)
    assert successor.ready
