"""Sentences of the reasons for which the engine refuses a policy's command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hopyard.policy.vocabulary.reasons.codes import ReasonCode as Code
from hopyard.policy.vocabulary.reasons.template import Sentence

REFUSALS: Final[Mapping[Code, Sentence]] = {
    Code.NO_SUCH_JOB: Sentence(
        "there is no job {job!r}",
        "The command names an unknown job.",
    ),
    Code.JOB_HELD: Sentence(
        "job {job!r} is paused by a person",
        "The command concerns a paused job.",
    ),
    Code.JOB_NOT_IDLE: Sentence(
        "job {job!r} is {state}, not PENDING or SUSPENDED",
        "Only an idle job can be started.",
    ),
    Code.JOB_BACKS_OFF: Sentence(
        "job {job!r} waits for a moment after {setbacks:d} losses or failures",
        "The job may be started later.",
    ),
    Code.JOB_WITHOUT_RUN: Sentence(
        "job {job!r} has no run",
        "The command needs a run of the job.",
    ),
    Code.JOB_ENDED: Sentence(
        "job {job!r} is {state}",
        "The job has ended.",
    ),
    Code.JOB_NOT_FAILED: Sentence(
        "job {job!r} is {state}; only failed jobs are retried",
        "The job has not failed.",
    ),
    Code.JOB_WITHOUT_CONFIGURATION: Sentence(
        "job {job!r} failed before it had a configuration",
        "The job never got a configuration from its generator.",
    ),
    Code.JOB_WITHOUT_ORIGIN: Sentence(
        "job {job!r} has no snapshot, and the one that it was forked from is gone",
        "Neither a snapshot of the job nor that of its origin is left.",
    ),
    Code.JOB_NOT_WAITING: Sentence(
        "job {job!r} is {state}; only a waiting job can be answered",
        "The job runs or has ended.",
    ),
    Code.NO_SUCH_EXPERIMENT: Sentence(
        "there is no experiment {experiment!r} in this group; there are: {experiments}",
        "The command names an unknown experiment.",
    ),
    Code.EXPERIMENT_ENDING: Sentence(
        "the experiment is ending",
        "The end of the experiment is decided.",
    ),
    Code.EXPERIMENT_OVER: Sentence(
        "the experiment is over",
        "The experiment has ended.",
    ),
    Code.EXPERIMENT_NOT_RUNNING: Sentence(
        "the experiment is {state}",
        "No run can start now.",
    ),
    Code.NO_SUCH_SNAPSHOT: Sentence(
        "job {job!r} has no snapshot at position {position:d}",
        "The command names a snapshot that is not there.",
    ),
    Code.NO_SUCH_EARLIER_SNAPSHOT: Sentence(
        "{trial}, which was trained earlier, has no snapshot at position {position:d}",
        "The command names a snapshot that an earlier experiment does not have.",
    ),
    Code.SNAPSHOT_KEEPS_VALUES: Sentence(
        "the snapshot of job {job!r} at position {position:d} contains its processes, which continue "
        "with its hyperparameters only; give hopyard.report() a checkpoint to fork with others",
        "A snapshot of processes cannot get other hyperparameters.",
    ),
    Code.NOTHING_TO_EVALUATE: Sentence(
        "job {job!r} has no snapshot to evaluate",
        "An evaluation needs a snapshot.",
    ),
    Code.PARTS_INVALID: Sentence(
        "parts are those of an evaluation, and its slot needs an input",
        "The parts of a start do not fit it.",
    ),
    Code.UNTIL_INVALID: Sentence(
        "until must be in {least:d}..{most:d} for job {job!r}, found {found:d}",
        "The `until` of a start is out of range.",
    ),
    Code.UNTIL_TOO_FAR: Sentence(
        "until must be at most {most:d}, found {found:d}",
        "The `until` of an amendment is out of range.",
    ),
    Code.SLOTS_INVALID: Sentence(
        "a run needs one or more different slots, found {slots}",
        "A start names no slots, or one twice.",
    ),
    Code.SLOTS_NOT_IDLE: Sentence(
        "not idle slots of this experiment: {slots}",
        "A start names slots that are not idle.",
    ),
    Code.CONCURRENCY_REACHED: Sentence(
        "{jobs:d} jobs train; the maximum is {concurrency:d} (resources.concurrency)",
        "The maximum number of jobs train.",
    ),
    Code.SHARE_EXCEEDED: Sentence(
        "the experiment's share is {share:d} slots and {placed:d} are busy",
        "The start needs more than the share.",
    ),
    Code.INPUTS_INVALID: Sentence(
        "inputs for slots that the run is not on: {slots}",
        "A start has inputs for other slots.",
    ),
    Code.NO_SUCH_PARTITION: Sentence(
        "data set {data} has no partition {partition!r}; it has {partitions}",
        "A start names an unknown partition.",
    ),
    Code.PARTITION_ELSEWHERE: Sentence(
        "node {node} does not hold {partition} of data set {data}; {nodes} {count:?does|do}",
        "Other nodes hold the partition.",
    ),
    Code.PARTITION_NOWHERE: Sentence(
        "no live node holds {partition} of data set {data}",
        "No node holds the partition.",
    ),
    Code.RUN_ENDING: Sentence(
        "the run of job {job!r} is ending",
        "A run that ends cannot be amended.",
    ),
    Code.RUN_NOT_TRAINING: Sentence(
        "the run of job {job!r} does not train",
        "Only a training run can be amended.",
    ),
    Code.PARK_BEFORE_UNTIL: Sentence(
        "PARK is legal at a run's until only; job {job!r} is at {position:d} of {until:d}",
        "The decision PARK came too early; the policy fails.",
    ),
    Code.TIME_INVALID: Sentence(
        "a time is a finite number of seconds since the epoch, found {found}",
        "A timer has no finite time.",
    ),
    Code.JOB_NAME_INVALID: Sentence(
        "a new job must be {needed:d}, found {found!r}",
        "Jobs are numbered in order.",
    ),
    Code.GENERATOR_EXHAUSTED: Sentence(
        "the generator is exhausted",
        "There are no more configurations.",
    ),
    Code.JOBS_EXHAUSTED: Sentence(
        "the experiment has all its {jobs:d} jobs",
        "The experiment may have no more jobs.",
    ),
    Code.LIMIT_WITHOUT_VALUES: Sentence(
        "a job with its own limit needs hyperparameters",
        "The generator makes no jobs with a limit.",
    ),
    Code.LIMIT_INVALID: Sentence(
        "limit must be in 1..{most:d}, found {found:d}",
        "The limit of a job is out of range.",
    ),
    Code.FORK_AT_END: Sentence(
        "a job forked at {position:d} has nothing to train: {most:d} is the end",
        "A fork begins at the end.",
    ),
    Code.ANSWERED_FROM_ITSELF: Sentence(
        "job {job!r} cannot be answered from itself",
        "The source of an answer is the job itself.",
    ),
    Code.ANSWERED_BEYOND_END: Sentence(
        "job {job!r} ends at {most:d}, it cannot be answered at {position:d}",
        "The position of an answer is out of range.",
    ),
    Code.SOURCE_TOO_SHORT: Sentence(
        "job {job!r} has reported up to {reported:d}, not {position:d}",
        "The source of an answer is not trained so far.",
    ),
    Code.PRIORITY_INVALID: Sentence(
        "a priority is a number, found NaN",
        "A priority is NaN.",
    ),
    Code.PREDICTION_PARAMETERS_UNKNOWN: Sentence(
        "a prediction takes target and horizon, found {found}",
        "A prediction has unknown parameters.",
    ),
    Code.PREDICTION_TARGET_INVALID: Sentence(
        "the target of a prediction is a finite number, found {found}",
        "The target of a prediction is no number.",
    ),
    Code.PREDICTION_HORIZON_INVALID: Sentence(
        "the horizon of a prediction is a position, at least 1, found {found}",
        "The horizon of a prediction is no position.",
    ),
    Code.PREDICTION_HORIZON_MISSING: Sentence(
        "its experiment sets no stop.max_iterations, so a prediction needs a horizon",
        "A prediction has no horizon.",
    ),
    Code.NOTHING_TO_PREDICT: Sentence(
        "job {job!r} is {state}: there is nothing to predict",
        "The job has ended.",
    ),
    Code.SOLVER_INVALID: Sentence(
        "{solver!r} is not a solver; use the commands for generators and predictors",
        "A question names no solver.",
    ),
    Code.SOLVER_MISSING: Sentence(
        "a question must name a solver; found none",
        "A question names no solver.",
    ),
    Code.SOLVER_TIME_INVALID: Sentence(
        "the time limit of a solver is at most {most:g} seconds, found {found:g}",
        "The time of a solver is out of range.",
    ),
    Code.TICKET_MISSING: Sentence(
        "a question needs a ticket; found none",
        "A question has no ticket.",
    ),
    Code.TICKET_IN_USE: Sentence(
        "question {ticket!r} is already open",
        "A question with this ticket is open.",
    ),
    Code.SLOT_NOT_IDLE: Sentence(
        "slot {slot!r} is not an idle slot of this experiment",
        "Only an idle slot can be reserved or released.",
    ),
    Code.END_REASON_MISSING: Sentence(
        "the end of an experiment needs a reason, which users see; found none",
        "The policy ends an experiment without a text.",
    ),
    Code.WINNER_UNREPORTED: Sentence(
        "job {job!r} has reported nothing, so it cannot have won",
        "The winner has no result.",
    ),
    Code.WINNER_ENDED: Sentence(
        "job {job!r} is {state}, so it cannot have won",
        "The winner failed or is terminated.",
    ),
    Code.WINNER_TERMINATING: Sentence(
        "job {job!r} is being terminated, so it cannot have won",
        "The winner is being terminated.",
    ),
    Code.WINNER_ELSEWHERE: Sentence(
        "job {job!r} is of experiment {experiment!r}",
        "The winner belongs to another experiment.",
    ),
    Code.COMMAND_INVALID: Sentence(
        "{problem}",
        "A test of a policy refuses the command.",
    ),
}
"""Sentences of the reasons for which a command is refused."""
