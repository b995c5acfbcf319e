"""Tests of messages on a socket, which arrive in pieces of any length."""

from __future__ import annotations

import pytest

from hopyard._net.rpc.options import MAX_MESSAGE_BYTES
from hopyard._runtime.policy_process.frames import Frames, framed
from hopyard.errors import InvalidInput

pytestmark = pytest.mark.quick

MESSAGES = [b"", b"a", b"bc" * 300, b""]


@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_messages_come_whole(size: int) -> None:
    sent = b"".join(map(framed, MESSAGES))
    frames, found = Frames(), list[bytes]()
    for start in range(0, len(sent), size):
        found += frames.feed(sent[start : start + size])
    assert found == MESSAGES


def test_a_message_that_is_too_large_is_refused_before_it_comes() -> None:
    head = (MAX_MESSAGE_BYTES + 1).to_bytes(4, "big")
    with pytest.raises(InvalidInput, match=f"found {MAX_MESSAGE_BYTES + 1} bytes, at most {MAX_MESSAGE_BYTES}"):
        list(Frames().feed(head))
