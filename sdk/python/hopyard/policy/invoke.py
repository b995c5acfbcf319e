"""Makes one complete up-call on a policy: refused commands, the up-call, demand, gang and nodes.

The policy process, the scheduler and the simulator use the same code.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from hopyard.policy.base import Policy, make_up_call, useful_nodes
from hopyard.policy.command_buffer import CollectingView
from hopyard.policy.vocabulary import Answer, Call, Decision, IterationFinish, Reason, ReasonCode, Verdict

MOST_BYTES: Final = 16 << 20
"""Maximum size of one answer in messages and in the journal, in bytes."""

_MOST_CHARACTERS: Final = 2_000


@dataclass(frozen=True, slots=True)
class UpCallResult:
    """The result of one up-call.

    Attributes:
        answer: The commands and the decision.
        demand: The result of `Policy.demand`: the number of slots that the policy could use; None: as many as possible.
        gang: The result of `Policy.gang`: the number of slots (>= 1) that the policy needs at the same time.
        nodes: The names of the nodes on which the policy can use slots (`Policy.nodes`), sorted; empty for all.
    """

    answer: Answer
    demand: int | None
    gang: int
    nodes: tuple[str, ...] = ()


def ask(
    policy: Policy, look: Callable[[], CollectingView], number: int, verdicts: Iterable[Verdict], call: Call
) -> UpCallResult:
    """Make one up-call on a policy, and return its answer with its demand, gang and nodes after the up-call.

    Args:
        policy: The policy.
        look: Function that creates a new view of the moment of the up-call.
        number: Number of the up-call in the stream.
        verdicts: The commands refused since the previous up-call; passed to `Policy.on_refused` first.
        call: The up-call.

    Raises:
        TypeError: A method returned a value of the wrong type, or `demand`, `gang` or `nodes` gave a command.
        Exception: Any exception of the policy.
    """
    view = look()
    for verdict in verdicts:
        policy.on_refused(view, verdict)
    decision = make_up_call(policy, view, call)
    # Use a new view of the same moment: a job that is being created counts in `jobs_left` until it exists.
    looks = look()
    demand = policy.demand(looks)
    gang = policy.gang(looks)
    nodes = useful_nodes(policy, looks)
    _check(call, decision, demand, gang)
    if looks.commands:
        raise TypeError(f"demand, gang and nodes must not issue commands, found {looks.commands[0]}")
    return UpCallResult(Answer(number, decision, tuple(view.commands)), demand, gang, nodes)


def describe(policy: Policy, what: str, error: BaseException) -> str:
    """Return a one-line message about an exception of a policy, with the file and line where it was raised.

    Args:
        policy: The policy.
        what: What the policy did, such as the name of the up-call.
        error: The exception.
    """
    place = _place(error)
    where = f" ({place})" if place else ""
    return f"{type(policy).__name__} on {what}: {type(error).__name__}: {text_of(error)}{where}"


def raised(policy: Policy, number: int, call: Call, error: BaseException) -> Reason:
    """Return the reason (code POLICY_RAISED) for a policy that raised an exception during an up-call.

    Args:
        policy: The policy.
        number: Number of the up-call in the stream.
        call: The up-call.
        error: The exception.
    """
    return Reason.of(
        ReasonCode.POLICY_RAISED,
        policy=type(policy).__name__,
        up_call=number,
        call=type(call).__name__,
        error=f"{type(error).__name__}: {text_of(error)}",
        place=_place(error) or None,
    )


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def brief(text: str) -> str:
    """Return a text from user code, shortened to 2,000 characters. Characters that UTF-8 cannot encode are escaped."""
    short = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
    return short.encode(errors="backslashreplace").decode()


def text_of(error: BaseException) -> str:
    """Return the message of an exception from user code, cut to 2,000 characters. It raises nothing, even if `str(error)` does."""
    try:
        return brief(str(error))
    except Exception as another:  # noqa: BLE001 - user code
        return f"(its message cannot be made: {type(another).__name__})"


def too_large(found: int) -> str:
    """Return an error message if a policy's answer of `found` bytes exceeds `MOST_BYTES` (16 MiB), else an empty text."""
    most = MOST_BYTES
    return f"the answer takes {found / 2**20:.1f} MiB; at most {most >> 20} are allowed" if found > most else ""


def _check(call: Call, decision: Decision | None, demand: int | None, gang: int) -> None:
    if isinstance(call, IterationFinish) != isinstance(decision, Decision):
        raise TypeError(f"on_iteration_finish must return a Decision and no other up-call anything, found {decision!r}")
    if demand is not None and (not isinstance(demand, int) or isinstance(demand, bool) or demand < 0):
        raise TypeError(f"demand must return None or a whole number of slots >= 0, found {demand!r}")
    if not isinstance(gang, int) or isinstance(gang, bool) or gang < 1:
        raise TypeError(f"gang must return a whole number of slots >= 1, found {gang!r}")
