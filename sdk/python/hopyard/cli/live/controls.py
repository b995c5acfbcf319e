"""The state that keys change in the live view: the order of the jobs, the selected job, the screen, and the open question.

It uses no terminal: `Controls.press` takes a key and returns the command to perform, if there is one.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hopyard.cli.live.keys import Key, SpecialKey
from hopyard.cli.live.log_tail import LogTail
from hopyard.client.types import Experiment, ExperimentState, Job, JobState

PAGE: Final = 10
"""Number of rows by which the keys Page Up and Page Down move."""

_STEPS: Final[dict[Key, int]] = {
    SpecialKey.UP: -1,
    "k": -1,
    SpecialKey.DOWN: 1,
    "j": 1,
    SpecialKey.PAGE_UP: -PAGE,
    SpecialKey.PAGE_DOWN: PAGE,
}
_FIRST: Final = (SpecialKey.HOME, "g")
_LAST: Final = (SpecialKey.END, "G")
_BACK: Final = (SpecialKey.ESCAPE, "q")


class SortOrder(enum.Enum):
    """The order of the jobs in the live view.

    STATE: the best job, then those on slots, then by state. VALUE: the best value first. TIME: the longest training time first. JOB: in
    order of creation.
    """

    STATE = "state"
    VALUE = "value"
    TIME = "time"
    JOB = "job"

    def next(self) -> SortOrder:
        """Return the order after this one; after the last, the first."""
        orders = list(SortOrder)
        return orders[(orders.index(self) + 1) % len(orders)]


class Screen(enum.Enum):
    """What the live view shows: the table of jobs, the log of one job, or the list of keys."""

    JOBS = "jobs"
    LOG = "log"
    HELP = "help"


class Action(enum.Enum):
    """What a key asks for. PAUSE and RESUME are for the experiment, LEAVE ends the view."""

    FOLLOW_LOG = "follow log"
    CLOSE_LOG = "close log"
    PAUSE_JOB = "pause job"
    RESUME_JOB = "resume job"
    PAUSE = "pause"
    RESUME = "resume"
    LEAVE = "leave"
    REDRAW = "redraw"


@dataclass(frozen=True, slots=True)
class Command:
    """An action, and the job that it is for; empty: none."""

    action: Action
    job: str = ""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A question to which the key y answers yes, and any other key no; and the command that yes gives."""

    text: str
    command: Command


class Controls:
    """The state of the live view that keys change.

    Args:
        owns_cluster: Whether the command has started the cluster, which ends with it, so that leaving suspends the experiment.
        interrupt_effect: What Ctrl-C does, for the list of keys.

    Attributes:
        sort: The order of the jobs.
        selected: Id of the selected job; None: none.
        screen: What is shown.
        question: The question that the next key answers; None: none.
        notice: A message about the last command, shown until the next key; empty: none.
        log: The log that the log screen shows; None: it is not open.
    """

    def __init__(self, *, owns_cluster: bool = False, interrupt_effect: str = "leave") -> None:
        self.owns_cluster = owns_cluster
        self.interrupt_effect = interrupt_effect
        self.sort = SortOrder.STATE
        self.selected: str | None = None
        self.screen = Screen.JOBS
        self.question: Confirmation | None = None
        self.notice = ""
        self.log: LogTail | None = None

    def press(self, key: Key, jobs: Sequence[Job], experiment: Experiment | None) -> Command | None:
        """Apply a key and return the command to perform; None: there is nothing to perform.

        Args:
            key: The key. A key without a meaning changes nothing.
            jobs: The jobs in the order in which they are shown.
            experiment: The experiment; None: its state is not known yet.
        """
        self.notice = ""
        if self.question is not None:
            asked, self.question = self.question, None
            return asked.command if key in ("y", "Y") else None
        if key is SpecialKey.REDRAW:
            return Command(Action.REDRAW)
        if self.screen is Screen.HELP:
            self.screen = Screen.JOBS
            return None
        if self.screen is Screen.LOG and self.log is not None:
            return self._press_in_log(key, self.log)
        return self._press_in_table(key, jobs, experiment)

    def _press_in_log(self, key: Key, log: LogTail) -> Command | None:
        if key in _BACK:
            self.screen, self.log = Screen.JOBS, None
            return Command(Action.CLOSE_LOG)
        if key in _STEPS:
            log.scroll(-_STEPS[key])
        elif key in _FIRST:
            log.scroll(len(log.lines()))
        elif key in _LAST:
            log.above = 0
        return None

    def _press_in_table(self, key: Key, jobs: Sequence[Job], experiment: Experiment | None) -> Command | None:
        if key in _STEPS or key in _FIRST or key in _LAST:
            self._select(key, jobs)
            return None
        match key:
            case SpecialKey.ESCAPE:
                self.selected = None
            case "s":
                self.sort = self.sort.next()
            case "?":
                self.screen = Screen.HELP
            case "l" | SpecialKey.ENTER:
                if (job := self._job(jobs)) is not None:
                    self.screen, self.log = Screen.LOG, LogTail(job.id)
                    return Command(Action.FOLLOW_LOG, job.id)
            case "p":
                if (job := self._job(jobs)) is not None:
                    return self._pause_job(job)
            case "P":
                return self._pause(experiment)
            case "q":
                return self._leave(experiment)
        return None

    def _select(self, key: Key, jobs: Sequence[Job]) -> None:
        if not jobs:
            return
        ids = [job.id for job in jobs]
        if key in _FIRST or key in _LAST:
            self.selected = ids[0] if key in _FIRST else ids[-1]
        elif self.selected not in ids:
            self.selected = ids[0]
        else:
            self.selected = ids[max(0, min(len(ids) - 1, ids.index(self.selected) + _STEPS[key]))]

    def _job(self, jobs: Sequence[Job]) -> Job | None:
        found = next((job for job in jobs if job.id == self.selected), None)
        if found is None:
            self.notice = "no job is selected: the arrow keys select one"
        return found

    def _pause_job(self, job: Job) -> Command | None:
        if job.state.ended:
            self.notice = f"job {job.id} has ended"
            return None
        if job.state is JobState.HELD:
            return Command(Action.RESUME_JOB, job.id)
        command = Command(Action.PAUSE_JOB, job.id)
        if not job.state.live:
            return command
        self.question = Confirmation(f"pause job {job.id}, which trains now? It saves and leaves its slot", command)
        return None

    def _pause(self, experiment: Experiment | None) -> Command | None:
        if experiment is None or experiment.state.ended or experiment.state is ExperimentState.ENDING:
            self.notice = "the experiment has ended" if experiment is not None else ""
            return None
        if experiment.state in (ExperimentState.PAUSED, ExperimentState.PAUSING):
            return Command(Action.RESUME)
        text = "pause the experiment? Its jobs save and leave their slots"
        self.question = Confirmation(text, Command(Action.PAUSE))
        return None

    def _leave(self, experiment: Experiment | None) -> Command | None:
        command = Command(Action.LEAVE)
        if not self.owns_cluster or experiment is None or experiment.state.ended:
            return command
        self.question = Confirmation("leave and suspend the experiment? Its cluster ends, too", command)
        return None
