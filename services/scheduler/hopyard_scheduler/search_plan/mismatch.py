"""Why a new experiment shares no training with others of which one would expect it.

A log beside the code, or a seed, is enough for two searches to have nothing in common. Without a word one would find out by the bill.
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
"""So many others are compared with it, the newest ones."""

_NAMED: Final = 4
"""So many files are named."""

_OVER: Final = (
    experiment_pb2.EXPERIMENT_STATE_COMPLETED,
    experiment_pb2.EXPERIMENT_STATE_STOPPED,
    experiment_pb2.EXPERIMENT_STATE_FAILED,
)

_FIELDS: Final = {"cpus": "resources.per_job.cpus", "gpus": "resources.per_job.gpus", "provider": "snapshot.provider"}
"""What is called otherwise in an experiment file."""


async def unlike_others(
    stub: appstat_pb2_grpc.AppStatServiceAsyncStub,
    known: Sequence[experiment_pb2.Experiment],
    name: str,
    program: ExperimentProgram,
) -> str:
    """What keeps an experiment from sharing with those of its group, or else with earlier ones of its name.

    Args:
        stub: AppStat, which has the code.
        known: All experiments, newest first.
        name: The new one.
        program: What its runs execute.

    Returns:
        In words, for a person; empty: it shares with one of them, or there are none.
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
    """With whom one would expect it to share: with its group, or with earlier ones of its name if it begins one."""
    spec, group, before = program.spec, [], []
    for other in known:
        if other.id == name:
            continue
        said = json.loads(other.spec_json)  # There may be thousands, of versions long gone.
        if spec.share is not None and said.get("share") == spec.share and other.state not in _OVER:
            group.append(other)
        elif other.name == spec.name and (said.get("policy") or {}).get("name") == spec.policy.name:
            before.append(other)
    return (group or before)[:_LOOKED_AT]


async def _difference(
    stub: appstat_pb2_grpc.AppStatServiceAsyncStub, program: ExperimentProgram, other: experiment_pb2.Experiment
) -> str:
    """In what another experiment's training differs, in words; empty: in nothing that is known of it."""
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
    """Names of files that only one of them has, or that are not the same in both."""
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
