"""Sentences of the reasons for the state of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hopyard.policy.vocabulary.reasons.codes import ReasonCode as Code
from hopyard.policy.vocabulary.reasons.template import Sentence

EXPERIMENTS: Final[Mapping[Code, Sentence]] = {
    Code.PAUSED_BY_PERSON: Sentence(
        "paused by a person[: {cause:reason}][; continue it with: {command}]",
        "A person paused the experiment or the job. The cause is what its run does until it has left. Clients add the command for an "
        "experiment whose cluster has ended.",
    ),
    Code.STOPPED_BY_PERSON: Sentence(
        "stopped by a person",
        "A person stopped the experiment or ended the job.",
    ),
    Code.CLOSED_BY_CLIENT: Sentence(
        "closed by its client",
        "The client of an experiment that is open for requests closed it.",
    ),
    Code.INTERRUPTED: Sentence(
        "its cluster has ended; continue it with: {command}",
        "The experiment was running when its cluster ended. Clients show it as INTERRUPTED; the engine has no such state.",
    ),
    Code.TARGET_REACHED: Sentence(
        "job {job} reached the target {target:g} with {value:g}[ as the mean of {reports:d} reports] at {position:d}",
        "A job reached the target of the experiment.",
    ),
    Code.TIME_OVER: Sentence(
        "its time of {seconds:g} s is over",
        "The experiment ran for its `stop.max_time`.",
    ),
    Code.IDLE_TIME_OVER: Sentence(
        "it got no request for {seconds:g} s",
        "No client sent a request during `stop.idle`.",
    ),
    Code.ALL_JOBS_ENDED: Sentence(
        "all jobs ended",
        "All jobs ended, and there will be no more.",
    ),
    Code.NOTHING_LEFT: Sentence(
        "the policy has nothing left to do",
        "The policy requests nothing more while jobs wait.",
    ),
    Code.EVERY_JOB_FAILED: Sentence(
        "every job failed, job {job}: {cause:reason}",
        "All jobs of the experiment failed. The cause is that of the first one.",
    ),
    Code.ENDED_BY_POLICY: Sentence(
        "{text}",
        "The policy ended the experiment and gave this text.",
    ),
    Code.GENERATOR_FAILED: Sentence(
        "the generator failed: {error}; after a remedy continue with hopyard resume {experiment}",
        "The generator could not propose the configuration of a job, so the experiment is paused. When it is resumed, the generator is "
        "created anew, gets its recorded calls, and is asked again.",
    ),
    Code.PROGRAM_UNUSABLE: Sentence(
        "its program cannot run on {nodes}: {cause:reason}",
        "The program failed on every node, and another attempt would fail too.",
    ),
    Code.METRIC_MISSING: Sentence(
        "no report contains the metric {metric}; job {job} has reported {reported} up to {position:d}; "
        "change it with hopyard set {experiment} --metric {name}, or resume to continue without it",
        "No job has reported the metric, and one has reported `metric.every` times, so the experiment is paused.",
    ),
    Code.JOBS_FAIL_ALIKE: Sentence(
        "{runs:run|runs} of {jobs:job|jobs} failed from the same cause, and no job has reported: {cause:reason}; "
        "see hopyard logs {experiment} --job {job}; after a change of the code start it anew with hopyard run, "
        "after any other remedy continue it with hopyard resume {experiment}",
        "The first jobs of the experiment all failed from the same cause before any job reported, so the experiment is paused.",
    ),
    Code.CODE_MISSING: Sentence(
        "no undamaged copy of its code is left: {cause:reason}; send the code again with hopyard resend {experiment} FOLDER, "
        "then continue with hopyard resume {experiment}",
        "Neither a node nor the store has an undamaged copy of the code that the experiment records, so the experiment is paused.",
    ),
    Code.POLICY_ERROR: Sentence(
        "policy error: {cause:reason}",
        "The policy failed, and the experiment is paused.",
    ),
    Code.ENGINE_ERROR: Sentence(
        "an error in Hopyard's engine on {event}: {error}",
        "The engine could not handle an event; the stream is quarantined.",
    ),
    Code.JOURNAL_UNREADABLE: Sentence(
        "its journal cannot be read: {error}",
        "The journal could not be read when the scheduler started, or to restore a policy process, so the experiment is paused.",
    ),
    Code.ROW_UNREADABLE: Sentence(
        "its row in the database is damaged ({error}); while no cluster runs, hopyard doctor --rebuild {experiment} writes the row "
        "again from the journal",
        "The row of the experiment in the database cannot be read, so only its id, its state and its time of creation are known.",
    ),
    Code.LEAVING_RUNS: Sentence(
        "waits for {runs:run|runs} to reach a boundary and leave",
        "The experiment is pausing or ending, and has runs.",
    ),
    Code.LEAVING_SNAPSHOTS: Sentence(
        "waits for {snapshots:snapshot|snapshots} to reach the store",
        "The experiment is pausing or ending, and has snapshots that are not in the store.",
    ),
    Code.ONLY_PAUSED_JOBS: Sentence(
        "nothing is left to train but {count:?job|jobs} {jobs}, which {count:?is|are} paused by a "
        "person: resume or stop {count:?it|them}",
        "Only a person can continue the experiment.",
    ),
    Code.NO_RUN_DATA_MISSING: Sentence(
        "no job runs: it waits for {cause:reason}",
        "No run is possible without missing partitions.",
    ),
    Code.OPEN_FOR_REQUESTS: Sentence(
        "is open for requests: ends in {seconds:d} s without a request",
        "The experiment has nothing to do, and its idle time runs.",
    ),
    Code.SHARE_EMPTY: Sentence(
        "{whose} share is 0 of {slots:slot|slots}[: {limit:reason}]",
        "The experiment has no share of the cluster now.",
    ),
    Code.SHARE_NOT_FREE: Sentence(
        "{whose} share is {share:d} of {slots:d}, and others still hold {share:slot|slots}",
        "The experiment has a share that others still hold.",
    ),
    Code.SHARE_REDUCED: Sentence(
        "{whose} share fell to {share:d} of {slots:d}: it must leave {surplus:slot|slots}[ within {seconds:d} s]",
        "The experiment holds more than its share.",
    ),
    Code.NO_RUN_JOB_WAITS: Sentence(
        "no job runs: job {job} {cause:reason}",
        "No job runs. The cause is what the first job waits for.",
    ),
    Code.GENERATOR_ASKED: Sentence(
        "waits for the generator's answer for {jobs:job|jobs}",
        "The generator has not proposed the configurations yet.",
    ),
    Code.POLICY_WITHOUT_JOB: Sentence(
        "the policy has no job to run ({idle:slot is|slots are} idle)",
        "Slots are idle, and the policy starts nothing.",
    ),
}
"""Sentences of the reasons for the state of an experiment."""
