"""The history of an experiment in the virtual cluster: its up-calls with their answers, and functions to repeat them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hopyard.policy.base import Policy, make_up_call, useful_nodes
from hopyard.policy.testing.view import IllegalCommand, UpCallMoment, UpCallView, describe
from hopyard.policy.vocabulary import AllocateJobs, Call, Command, Decision, DecisionKind, IterationFinish, Verdict


@dataclass(frozen=True)
class HistoryEntry:
    """One up-call in the history, with everything that is needed to repeat it, and its answer.

    Attributes:
        moment: The state that the policy could see.
        call: The up-call.
        refused: The refused commands that were reported before the up-call.
        decision: The decision of the answer; None: none.
        commands: The commands of the answer.
        demand: The result of `Policy.demand`.
        gang: The result of `Policy.gang`.
        nodes: The result of `Policy.nodes`, sorted; empty for all nodes.
    """

    moment: UpCallMoment
    call: Call
    refused: tuple[Verdict, ...] = ()
    decision: Decision | None = None
    commands: tuple[Command, ...] = ()
    demand: int | None = None
    gang: int = 1
    nodes: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        """The answer as text, to compare answers. Equal answers have equal texts, including those with NaN."""
        return repr((self.decision, self.commands, self.demand, self.gang, self.nodes))

    def __str__(self) -> str:
        call = "" if isinstance(self.call, AllocateJobs) else f" {self.call}"
        return f"{describe(self.moment, self.call)}{call} -> {self.answer}"


def answer(
    policy: Policy, moment: UpCallMoment, call: Call, refused: tuple[Verdict, ...] = ()
) -> tuple[HistoryEntry, UpCallView]:
    """Make one complete up-call on a policy, and check the answer.

    Args:
        policy: The policy.
        moment: The state that the policy sees.
        call: The up-call.
        refused: The refused commands to report first.

    Returns:
        The entry for the history, and the view that collected the commands.

    Raises:
        IllegalCommand: A command or the decision is illegal, or `demand`, `gang` or `nodes` returned an invalid value
            or gave a command.
    """
    view = UpCallView(moment, call)
    for verdict in refused:
        policy.on_refused(view, verdict)
    decision = _check_decision(moment, call, make_up_call(policy, view, call))
    commands = tuple(view.commands)
    looks = UpCallView(moment, call)
    demand, gang = policy.demand(looks), policy.gang(looks)
    where = describe(moment, call)
    if demand is not None and (not isinstance(demand, int) or isinstance(demand, bool) or demand < 0):
        raise IllegalCommand(f"{where}: demand() returned {demand!r}; it must be an int of at least 0, or None")
    if not isinstance(gang, int) or isinstance(gang, bool) or gang < 1:
        raise IllegalCommand(f"{where}: gang() returned {gang!r}; it must be an int of at least 1")
    try:
        nodes = useful_nodes(policy, looks)
    except TypeError as error:
        raise IllegalCommand(f"{where}: {error}") from error
    if looks.commands:
        raise IllegalCommand(
            f"{where}: demand(), gang() or nodes() gave the command {looks.commands[0]}; they must not issue commands"
        )
    return HistoryEntry(moment, call, refused, decision, commands, demand, gang, nodes), view


def replay(policy: Policy, history: Iterable[HistoryEntry]) -> list[HistoryEntry]:
    """Repeat the up-calls of `history` on a new policy, and return the same entries with the answers of this policy.

    Raises:
        IllegalCommand: A command or a decision of the policy is illegal.
    """
    return [answer(policy, entry.moment, entry.call, entry.refused)[0] for entry in history]


def difference(recorded: list[HistoryEntry], again: list[HistoryEntry]) -> str:
    """Return the first up-call that has different answers in two histories of the same up-calls, and both answers, as text.

    The text is empty if all answers are equal.

    Raises:
        ValueError: No answer differs, but the histories have different lengths.
    """
    for one, other in zip(recorded, again, strict=True):
        if one.answer != other.answer:
            return f"{describe(one.moment, one.call)} {one.call}: first {one.answer}, then {other.answer}"
    return ""


def _check_decision(moment: UpCallMoment, call: Call, decision: object) -> Decision | None:
    """Check and return `decision`, the policy's decision on an iteration finish; return None for other up-calls.

    Args:
        moment: The state that the policy could see.
        call: The up-call.
        decision: What the policy returned for it.

    Raises:
        IllegalCommand: The decision has the wrong type, is PARK before the run's `until` position, or has an `up_to` that is
            negative or not with CONTINUE.
    """
    if not isinstance(call, IterationFinish):
        return None
    where = describe(moment, call)
    if not isinstance(decision, Decision):
        raise IllegalCommand(f"{where}: on_iteration_finish returned {decision!r}; it must return a Decision")
    if decision.kind is DecisionKind.PARK and not call.at_until:
        raise IllegalCommand(f"{where}: PARK for job {call.job!r} at {call.position}, where its run is not at `until`")
    if decision.up_to is not None and (decision.kind is not DecisionKind.CONTINUE or decision.up_to < 0):
        raise IllegalCommand(f"{where}: {decision}: up_to is for CONTINUE only and at least 0")
    return decision
