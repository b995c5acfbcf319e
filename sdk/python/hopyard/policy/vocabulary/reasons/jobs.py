"""Sentences of the reasons for the state of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hopyard.policy.vocabulary.reasons.codes import ReasonCode as Code
from hopyard.policy.vocabulary.reasons.template import Sentence

JOBS: Final[Mapping[Code, Sentence]] = {
    Code.REQUESTED: Sentence(
        "requested by a client",
        "A client's request created the job.",
    ),
    Code.CONFIGURED: Sentence(
        "waits for its first slot",
        "The configuration of the job is known.",
    ),
    Code.PLACED: Sentence(
        "starting on {slots}[ from position {position:d}, to which {trial} was trained earlier][ "
        "from position {position:d}, which job {source} has saved]",
        "The policy started the job on slots.",
    ),
    Code.TRAINING: Sentence(
        "training",
        "The run trains.",
    ),
    Code.EVALUATING: Sentence(
        "evaluating",
        "The run evaluates a snapshot.",
    ),
    Code.PROFILING: Sentence(
        "profiling",
        "The run measures the time of an iteration.",
    ),
    Code.PREEMPTED_LEAVING: Sentence(
        "preempted: another experiment's share",
        "The run has to leave because the share shrank.",
    ),
    Code.TERMINATED_LEAVING: Sentence(
        "terminated, leaving at its next boundary",
        "The run has to leave because the job is terminated.",
    ),
    Code.SAVING: Sentence(
        "saving, leaving at its next boundary",
        "The run has to save and leave.",
    ),
    Code.UNTIL_REACHED_SAVING: Sentence(
        "reached position {position:d}, saving",
        "The run reached its `until` and saves.",
    ),
    Code.TRAINED_SAVING: Sentence(
        "trained to its end, saving",
        "The run has trained the job to its end and saves.",
    ),
    Code.RANKS_LEAVING: Sentence(
        "its run is over, and its other processes leave",
        "A gang is over, and some of its processes are still there.",
    ),
    Code.ORIGIN_LOST: Sentence(
        "the snapshot it was forked from was lost before it was stored",
        "A forked job has lost what it starts from.",
    ),
    Code.SNAPSHOT_LOST: Sentence(
        "its snapshot was lost",
        "The last snapshot of a waiting job is gone.",
    ),
    Code.SNAPSHOT_UNUSABLE: Sentence(
        "no undamaged copy of its snapshot at {at:d} is left, so it continues from {position:d}: {cause:reason}",
        "The snapshot of a job is damaged or missing everywhere, so the job goes back to an older one or to its beginning.",
    ),
    Code.ANSWERED: Sentence(
        "answered from job {source}[ of {experiment}] at {position:d}",
        "The results of another job complete the job.",
    ),
    Code.ANSWERED_FROM_EARLIER: Sentence(
        "answered from {trial} at {position:d}, which was trained earlier",
        "The results of an earlier experiment complete the job.",
    ),
    Code.TRAINED_TO_END: Sentence(
        "trained to its end",
        "The job is trained as far as the experiment wants.",
    ),
    Code.TRAINED_TO_EVALUATE: Sentence(
        "trained to its end, to be evaluated",
        "The job is trained, and its policy will evaluate it.",
    ),
    Code.TERMINATED: Sentence(
        "its policy ended it[ at position {position:d}]",
        "The policy ended the job before it was trained to its end.",
    ),
    Code.STOPPED_AT_RUNG: Sentence(
        "stopped at rung {rung:d} of {rungs:d}, position {position:d}",
        "Successive halving did not promote the job from this rung. Rungs are numbered from 0, as `hopyard rungs` shows them.",
    ),
    Code.STOPPED_BY_TARGET: Sentence(
        "ended: target reached by job {job}",
        "Another job reached the target of the experiment while the job trained or waited.",
    ),
    Code.STOPPED_WITH_EXPERIMENT: Sentence(
        "stopped at position {position:d}: the experiment ended[ ({cause:reason})]",
        "The experiment ended before the job was trained to its end. The cause is the reason of the end, unless it is long.",
    ),
    Code.NOT_STARTED: Sentence(
        "not started: the experiment ended first[ (target reached by job {job})| ({cause:reason})]",
        "The experiment ended before the job got a slot. The cause is the reason of the end, unless it is long.",
    ),
    Code.RESUMED_BY_PERSON: Sentence(
        "resumed by a person",
        "A person resumed the paused job.",
    ),
    Code.EXTENDED: Sentence(
        "the experiment was extended",
        "A completed job continues because its experiment was extended.",
    ),
    Code.RETRIED_BY_PERSON: Sentence(
        "a person retries it",
        "A failed job starts again because a person retries it.",
    ),
    Code.TARGET_REACHED_BY_JOB: Sentence(
        "reached the target",
        "The job reached the target of its experiment.",
    ),
    Code.FAILED_FOR_GOOD: Sentence(
        "another attempt would fail too: {cause:reason}",
        "The program or this job fails on every node in a way that another attempt would repeat, such as a missing module.",
    ),
    Code.FAILED_TOO_OFTEN: Sentence(
        "failed {failures:d} times, {allowed:d} allowed: {cause:reason}",
        "The user's code failed more often than `max_failures` allows.",
    ),
    Code.FAILED: Sentence(
        "failed ({left:more failure|more failures} allowed): {cause:reason}",
        "The user's code failed, and the job may try again.",
    ),
    Code.ATTEMPT_AFTER_FAILURE: Sentence(
        "attempt {attempt:d} of {attempts:d} after a failure: {cause:reason}",
        "The job trains again after the user's code failed, and has reported nothing new since. `attempts` is the number of its last "
        "run if all fail.",
    ),
    Code.LOST_TOO_OFTEN: Sentence(
        "lost {losses:d} times in a row without progress: {cause:reason}",
        "Runs of the job were lost repeatedly.",
    ),
    Code.RUN_LOST: Sentence(
        "its run was lost: {cause:reason}",
        "The run of the job was lost; it continues from a snapshot.",
    ),
    Code.RUN_INTERRUPTED: Sentence(
        "its cluster ended while it had a slot; it continues from [its snapshot at {position:d}|its beginning]",
        "The job had a run when its cluster ended, and no cluster runs. Only clients show this reason.",
    ),
    Code.PROFILE_LOST: Sentence(
        "its profile was lost: {cause:reason}",
        "A profiling run was lost.",
    ),
    Code.PROFILE_FAILED: Sentence(
        "its profile was not possible: {cause:reason}",
        "A profiling run failed.",
    ),
    Code.BACK_AT_POSITION: Sentence(
        "back at position {position:d}, because no later snapshot was saved: {cause:reason}",
        "A run left without a snapshot.",
    ),
    Code.NOTHING_SAVED: Sentence(
        "reached position {position:d} {times:d} times without saving: its program saves no checkpoint,"
        " and its policy trains it in parts; docs/programs.md shows how to save",
        "The job would train the same part forever.",
    ),
    Code.PROGRAM_ENDED_EARLY: Sentence(
        "its program ended by itself before position {position:d}; for more, give the program itself more epochs",
        "The program had nothing more to train.",
    ),
    Code.UNTIL_REACHED: Sentence(
        "reached position {position:d}",
        "The run reached its `until`.",
    ),
    Code.PREEMPTED: Sentence(
        "preempted",
        "The run left because the share shrank.",
    ),
    Code.SUSPENDED: Sentence(
        "suspended at {position:d}",
        "The run was suspended.",
    ),
}
"""Sentences of the reasons for the state of a job."""
