"""Sentences of the reasons for which a job waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hopyard.policy.vocabulary.reasons.codes import ReasonCode as Code
from hopyard.policy.vocabulary.reasons.template import Sentence

WAITS: Final[Mapping[Code, Sentence]] = {
    Code.WAITS_FOR_GENERATOR: Sentence(
        "waits for the generator's answer",
        "The generator was asked for the configuration of the job.",
    ),
    Code.WAITS_EXPERIMENT_ENDING: Sentence(
        "waits: the experiment is ending",
        "Nothing new begins in an experiment that ends.",
    ),
    Code.WAITS_EXPERIMENT_PAUSED: Sentence(
        "waits: the experiment is {state}[ ({cause:reason})]",
        "Nothing begins in an experiment that does not run.",
    ),
    Code.WAITS_AFTER_SETBACKS: Sentence(
        "waits after {setbacks:d} losses or failures in a row: tries again in {seconds:d} s",
        "The job backs off.",
    ),
    Code.WAITS_FOR_AWAY_SNAPSHOT: Sentence(
        "waits until [job {owner}'s|its] snapshot at {position:d} can be loaded: it is on "
        "{count:?node|nodes} {nodes}, which {count:?is|are} away (try {misses:d} of {tries:d}); tries"
        " again in {seconds:d} s",
        "The nodes that have the snapshot are away.",
    ),
    Code.WAITS_FOR_SNAPSHOT: Sentence(
        "waits until [job {owner}'s|its] snapshot at {position:d} can be loaded: {count:?node|nodes} "
        "{nodes} did not send it (try {misses:d} of {tries:d}); tries again in {seconds:d} s",
        "The nodes that have the snapshot did not send it.",
    ),
    Code.WAITS_FOR_SLOT: Sentence(
        "waits for a slot: {cause:reason}",
        "No slot of the cluster can serve the job.",
    ),
    Code.WAITS_FOR_POLICY: Sentence(
        "waits for the policy[: {cause:reason}][, which has not answered for {seconds:d} s]",
        "The policy was asked and has not answered.",
    ),
    Code.WAITS_FOR_DATA: Sentence(
        "waits for {cause:reason}",
        "Partitions of the data are missing.",
    ),
    Code.WAITS_SHARE_EMPTY: Sentence(
        "waits for a slot: {whose} share is 0 of {slots:d}[: {limit:reason}]",
        "The experiment has no share of the cluster now.",
    ),
    Code.WAITS_SHARE_REDUCED: Sentence(
        "waits for a slot: {whose} share fell to {share:d}, and {placed:is|are} busy",
        "The experiment holds more than its share.",
    ),
    Code.WAITS_SHARE_BUSY: Sentence(
        "waits for a slot: {placed:d} of {share:d} in {whose} share are busy[: {limit:reason}]",
        "All slots of the share are busy.",
    ),
    Code.WAITS_FOR_GANG: Sentence(
        "waits for {gang:d} slots at once: {idle:is|are} idle",
        "Fewer slots are idle than the job needs at once.",
    ),
    Code.WAITS_UNSTARTED: Sentence(
        "the policy has not started it ({idle:slot is|slots are} idle)",
        "Slots are idle, and the policy has not started the job.",
    ),
    Code.WAITS_RESERVED: Sentence(
        "waits for a slot: the policy has reserved {idle:idle slot|idle slots}",
        "The idle slots are reserved.",
    ),
    Code.WAITS_SHARE_NOT_FREE: Sentence(
        "waits for a slot: {placed:d} of {share:d} in {whose} share are busy, and others "
        "still hold {missing:slot|slots}",
        "Others still hold a part of the share.",
    ),
    Code.STARTS_UNHEARD: Sentence(
        "starts on {slots}[, {begun:d} of {ranks:d} have begun]: {count:?node|nodes} {nodes} "
        "{count:?has|have} not confirmed it yet",
        "The nodes have not confirmed the start.",
    ),
    Code.STARTS_PREPARING: Sentence(
        "starts on {slots}[, {begun:d} of {ranks:d} have begun]: its process prepares",
        "The process of the run starts.",
    ),
    Code.STARTS_LOADING: Sentence(
        "starts on {slots}[, {begun:d} of {ranks:d} have begun]: its process loads [job "
        "{owner}'s|its] snapshot at {position:d}",
        "The process of the run loads its snapshot.",
    ),
    Code.WAITS_FOR_DECISION: Sentence(
        "waits at {position:d} for the policy's decision[: {cause:reason}]",
        "The run waits at a boundary.",
    ),
    Code.PARKED: Sentence(
        "parked at {position:d}: waits in memory for the policy",
        "The run waits at its `until`.",
    ),
    Code.NO_SLOT_DRAINED: Sentence(
        "the cluster has no slot ({slots:is|are} on drained or leaving nodes[: {nodes}])",
        "All nodes are drained or leaving.",
    ),
    Code.ONLY_UNSCHEDULABLE_NODES: Sentence(
        "its policy can use slots of {count:?node|nodes} {nodes} only, which {count:?is|are} drained or leaving",
        "The policy can only use nodes that are drained or leaving.",
    ),
    Code.FITTING_SLOTS_UNSCHEDULABLE: Sentence(
        "each job needs [{gang:d} slots|a slot] with {need} (resources.per_job); such slots are on {count:?node|nodes} "
        "{nodes}, which {count:?is|are} drained or leaving",
        "The slots that have what a job needs are on nodes that are drained or leaving.",
    ),
    Code.NO_SLOT_ANNOUNCED: Sentence(
        "the cluster has no slot (its agents have none)",
        "The agents have announced no slot.",
    ),
    Code.NO_AGENT: Sentence(
        "the cluster has no slot (no agent is connected[; {count:?node|nodes} {nodes} {count:?is|are} lost])",
        "No agent is connected.",
    ),
    Code.NO_SLOT_ON_NODES: Sentence(
        "its policy can use slots of {count:?node|nodes} {nodes} only, where there is none now",
        "The policy can only use nodes that have no slot.",
    ),
    Code.NO_FITTING_SLOT: Sentence(
        "each job needs a slot with {need} (resources.per_job); there are {slots}",
        "No slot has what a job needs.",
    ),
    Code.TOO_FEW_FITTING_SLOTS: Sentence(
        "each job needs {gang:d} slots with {need} at once; there are {slots}",
        "Too few slots have what a gang needs.",
    ),
    Code.SLOTS_BELOW_GANG: Sentence(
        "each job needs {gang:d} slots at once; resources.slots allows {slots:d}",
        "`resources.slots` is smaller than the gang.",
    ),
    Code.PARTITIONS_UNKNOWN: Sentence(
        "{count:?partition|partitions} {partitions} of data set {data}: the catalog has none of that "
        "name and content (hopyard data list)",
        "The catalog does not have the partitions.",
    ),
    Code.PARTITIONS_AWAY: Sentence(
        "{count:?partition|partitions} {partitions} of data set {data}: {homes:?node|nodes} {nodes} "
        "{homes:?is|are} away (hopyard data show {data})",
        "The nodes that have the partitions are away.",
    ),
    Code.PARTITIONS_LOST: Sentence(
        "{count:?partition|partitions} {partitions} of data set {data}: {homes:?node|nodes} {nodes} "
        "lost the file (hopyard data show {data})",
        "The nodes of the partitions do not have the files any more.",
    ),
    Code.LIMITED_BY_CONCURRENCY: Sentence(
        "resources.concurrency is {concurrency:d}",
        "The share is not larger because `resources.concurrency` jobs train.",
    ),
    Code.LIMITED_BY_DEMAND: Sentence(
        "the policy can use no more than {demand:d} now",
        "The share is not larger because the policy cannot use more slots.",
    ),
    Code.WITHOUT_DEMAND: Sentence(
        "the policy can use none now",
        "The share is not larger because the policy cannot use any slot.",
    ),
    Code.LIMITED_BY_SLOTS: Sentence(
        "resources.slots is {slots:d}",
        "The share is not larger because of `resources.slots`.",
    ),
    Code.LIMITED_BY_WEIGHT: Sentence(
        "weight {weight:g} against {others}",
        "The share is not larger because of the weights of other experiments.",
    ),
}
"""Sentences of the reasons for which a job waits."""
