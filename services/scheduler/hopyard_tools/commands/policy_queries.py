"""Queries of an experiment's policy: they replay the journal up to an event and ask the policy about its state."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hopyard_engine.core.state.stream import Stream
    from hopyard_engine.policy_host import PolicyHost
    from hopyard_engine.replay import Replay, Until

At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="EVENT|TIME",
        help="As it was there: an event's number (120), a time on the clock since the experiment was created, pauses included "
        "(90s, 2.5m), or ISO time. [default: now]",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class ExperimentMoment:
    """An experiment and its policy as they were after one event of the journal.

    Attributes:
        name: The id of the experiment.
        policy: The name of its policy.
        driven: The replay, which has stopped after the event.
        at: The time of the event, in seconds since the Unix epoch.
    """

    name: str
    policy: str
    driven: Replay
    at: float

    @property
    def standing(self) -> tuple[Stream, PolicyHost] | None:
        """The stream and its policy after the event; None: no event up to this one has called the policy.

        Raises:
            InvalidInput: The policy cannot be created on this computer.
        """
        return standing(self.driven)

    @property
    def title(self) -> str:
        """A text for people that names the event, the time from the creation of the experiment to the event, and the policy."""
        stream = self.driven.experiment
        seconds = self.at - stream.founder.created_at if stream is not None else 0.0
        return f"after event {self.driven.number}, {seconds:.1f} s after it was created: {self.policy}"


def standing(driven: Replay) -> tuple[Stream, PolicyHost] | None:
    """Return the stream and its policy after a replay; None: no replayed event has called the policy.

    Args:
        driven: The replay, which may have stopped before the end of the journal.

    Raises:
        InvalidInput: The policy cannot be created on this computer.
    """
    from hopyard.errors import InvalidInput
    from hopyard_engine.policy_host import MissingPolicy, PolicyHost

    if driven.experiment is None or driven.host is None:
        return None
    if isinstance(driven.host, MissingPolicy):
        raise InvalidInput(str(driven.host.reason))
    assert isinstance(driven.host, PolicyHost)  # A replay creates no other types.
    return driven.experiment, driven.host


async def moment(
    given: str | None, limit: Until | None, purpose: str, server: str | None, data: Path | None, *, quiet: bool
) -> ExperimentMoment:
    """Replay an experiment up to a limit, and return the experiment and its policy as they were then.

    Print a warning if the policy decides differently than recorded, or if the limit is beyond the journal.

    Args:
        given: The experiment's id or name; None: the newest experiment.
        limit: The event or time at which the replay stops; None: the end of the journal.
        purpose: The command that needs the replay, for messages.
        server: Address of a running cluster's scheduler; None: the cluster is found by `data`.
        data: Data folder of a cluster; None: the default folder.
        quiet: Show no progress.

    Raises:
        NotFound: The experiment or the cluster does not exist.
        InvalidInput: The policy runs in a separate process.
    """
    from hopyard.cli.output import say
    from hopyard_scheduler.experiments.program import program_of
    from hopyard_tools.commands.journal_source import opened
    from hopyard_tools.commands.replay import drive

    async with opened(server, data, given, purpose) as source:
        driven, at = await drive(source, limit, quiet=quiet)
    stream = driven.experiment
    policy = program_of(stream.founder.payload).spec.policy.label if stream is not None else ""
    if driven.first is not None:
        say(
            f"the policy decides differently than recorded, so this state may differ from the recorded one: {driven.first.text}"
        )
    if limit is not None and limit.event is not None and limit.event > driven.number:
        say(f"the journal ends at event {driven.number}; there is no {limit.event} yet, so this is the current state")
    return ExperimentMoment(source.experiment.id, policy, driven, at)
