"""Tests that a temporary cluster is used only when all its nodes are up."""

import pytest

from hopyard.cli.connect import joined
from hopyard.client.types import Node, NodeState

pytestmark = pytest.mark.quick


def node(state: NodeState) -> Node:
    return Node(id="local", address="127.0.0.1:1", state=state)


async def test_a_node_is_waited_for_until_it_is_up() -> None:
    answers = [[], [node(NodeState.LOST)], [node(NodeState.LOST), node(NodeState.UP)], []]

    async def nodes() -> list[Node]:
        return answers.pop(0)

    await joined(nodes, poll=0)
    assert len(answers) == 1
