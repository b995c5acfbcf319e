"""Explains why a new experiment cannot reuse the training of experiments with the same name or the same `share` key.

A log file in the code folder or another seed is enough to prevent reuse. Without this explanation, users would only
notice that the training takes longer.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hopyard._runtime.bundle import IGNORE_FILE
from hopyard.errors import HopyardError
from hopyard.spec import spec_from_json
from hopyard.v1 import experiment_pb2
from hopyard_scheduler.experiments.program import ExperimentProgram
from hopyard_scheduler.search_plan.reader import files_of_code

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc

_LOG = logging.getLogger(__name__)

_LOOKED_AT: Final = 3
"""Number of other experiments to compare with, the newest first."""

_NAMED: Final = 4
"""Maximum number of differing files that the message names."""

_OVER: Final = (
    experiment_pb2.EXPERIMENT_STATE_COMPLETED,
    experiment_pb2.EXPERIMENT_STATE_STOPPED,
    experiment_pb2.EXPERIMENT_STATE_FAILED,
)

_FIELDS: Final = {"cpus": "resources.per_job.cpus", "gpus": "resources.per_job.gpus", "provider": "snapshot.provider"}
"""Fields of `ExperimentProgram.sameness` by key, with their names in experiment files where these differ."""


async def unlike_others(
    stub: appstat_pb2_grpc.AppStatServiceAsyncStub,
    known: Sequence[experiment_pb2.Experiment],
    name: str,
    program: ExperimentProgram,
) -> str:
    """Return why a new experiment shares no training with its group or with earlier experiments whose specification has the same name.

    Args:
        stub: Client of AppStat, from which the code bundles are read.
        known: All experiments, newest first.
        name: The id of the new experiment.
        program: The program of the new experiment.

    Returns:
        A sentence for people. It is empty if the new experiment can share training with one of the compared
        experiments, if there is none to compare with, or if the comparison fails.
    """
    said = ""
    for other in _expected(known, name, program):
        try:
            found = await _difference(stub, program, other)
        except HopyardError as error:
            _LOG.warning("experiment %s cannot be compared with %s: %s", name, other.id, error)
            return ""
        if not found:
            return ""
        said = said or f"nothing that {other.id} trains or has trained is shared: {found}"
    return said


def _expected(
    known: Sequence[experiment_pb2.Experiment], name: str, program: ExperimentProgram
) -> list[experiment_pb2.Experiment]:
    """Return at most `_LOOKED_AT` experiments to compare a new one with.

    They are the unfinished ones of its group if there are any, else those whose specification has the same name
    and the same policy.

    Args:
        known: All experiments, newest first.
        name: The id of the new experiment.
        program: The program of the new experiment.
    """
    spec, group, before = program.spec, [], []
    for other in known:
        if other.id == name:
            continue
        # Not validated: there may be thousands, and old ones may not fit this version.
        said = json.loads(other.spec_json)
        if spec.share is not None and said.get("share") == spec.share and other.state not in _OVER:
            group.append(other)
        elif other.name == spec.name and (said.get("policy") or {}).get("name") == spec.policy.name:
            before.append(other)
    return (group or before)[:_LOOKED_AT]


async def _difference(
    stub: appstat_pb2_grpc.AppStatServiceAsyncStub, program: ExperimentProgram, other: experiment_pb2.Experiment
) -> str:
    """Return a text that lists what makes the training of two experiments different; empty: no difference is known.

    Args:
        stub: Client of AppStat, from which the code bundles are read.
        program: The program of the new experiment.
        other: The experiment to compare with.

    Raises:
        HopyardError: A code bundle or the specification of `other` cannot be read.
    """
    theirs = ExperimentProgram(spec_from_json(other.spec_json), other.bundle, program.interpreter)
    mine, its = program.sameness(""), theirs.sameness("")
    named = [_FIELDS.get(field, field) for field in mine if mine[field] != its[field]]
    said = [f"{', '.join(named)} {'is' if len(named) == 1 else 'are'} not the same"] if named else []
    if program.bundle != other.bundle:
        files = differing(await files_of_code(stub, program.bundle), await files_of_code(stub, other.bundle))
        if files:
            more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
            listed = ", ".join(files[:_NAMED])
            said.append(f"its code differs in {listed}{more} ({IGNORE_FILE} leaves out what is no code)")
    return "; ".join(said)


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the sorted names of files that exist in only one of two folders or whose contents differ.

    Args:
        one: For each file of the first folder, a text that identifies its content.
        other: The same for the second folder.
    """
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
