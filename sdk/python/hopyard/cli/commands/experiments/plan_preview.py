"""Computes the amount of training that a search needs if common beginnings of its trials are trained once.

Trials whose hyperparameters have the same values up to a position have the same training up to there (Hippo, section 3.2). A trial is
the training of one configuration. Trials of several experiment files share training only if `training_root`, by which the scheduler
looks up earlier training, is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from hopyard._common.plugins import GENERATORS, POLICIES, load_plugin
from hopyard._runtime.bundle import code_hash
from hopyard.cli.commands.experiments.preflight import checked_policy, expected_retraining, policy_notes
from hopyard.cli.commands.experiments.requirements import check_plugins
from hopyard.client.submission import Submission, pack, read_text
from hopyard.errors import InvalidInput
from hopyard.generator import Generator
from hopyard.policy import Policy
from hopyard.sequences import PrefixTree, Request
from hopyard.spec import ExperimentSpec, load_search, read_fields
from hopyard.spec.identity import training_root
from hopyard.spec.models import PROGRAM_FIELDS

_MOST: Final = 100_000


@dataclass(frozen=True)
class PlanPreview:
    """The amount of training of one or several searches, with each trial trained to its full length.

    Attributes:
        trials: Number of configurations.
        total_steps: Positions to train if each trial is trained alone.
        unique_steps: Positions to train if common beginnings are trained once.
        merge_rate: `total_steps` divided by `unique_steps`; for several files, over all their trials (Hippo's k-wise merge
            rate).
        critical_path: Length of the longest chain of positions that must be trained one after another.
        slots: Number of slots assumed for `makespan_lower_bound`.
        makespan_lower_bound: Lower bound for the length of any schedule on these slots, in positions.
        retrained_steps: Expected number of positions that jobs train again, because their policy suspends them and their program saves
            no checkpoint; 0 also if the policy or the program is unknown here, or its suspensions cannot be foreseen.
    """

    trials: int
    total_steps: int
    unique_steps: int
    merge_rate: float
    critical_path: int
    slots: int
    makespan_lower_bound: int
    retrained_steps: int = 0


def planned(files: Sequence[Path], slots: int | None) -> tuple[list[tuple[Path, PlanPreview]], PlanPreview]:
    """Return the preview of each experiment file, and that of all files together.

    Args:
        files: The experiment files.
        slots: Number of slots of the schedule; None: the largest `resources.slots` of the files, or 1.

    Raises:
        SpecError: A file is invalid.
        InvalidInput: A file is unreadable, has no `max_iterations` or number of jobs, its policy cannot be created, or, of several
            files, a code folder cannot be packed.
    """
    submissions = [_submission(file) for file in files]
    again = [expected_retraining(one) for one in submissions]
    specs = [_with_generator(one) for one in submissions]
    count = slots or max((spec.resources.slots or 1 for spec in specs), default=1)
    roots = _roots(submissions) if len(submissions) > 1 else [""]
    requests = [(file, list(_requests(file, spec, root))) for file, spec, root in zip(files, specs, roots, strict=True)]
    alone = [(file, _plan(found, count, more)) for (file, found), more in zip(requests, again, strict=True)]
    return alone, _plan([request for _, found in requests for request in found], count, sum(again))


def plan_notes(files: Sequence[Path]) -> list[str]:
    """Return the notes and warnings of `policy_notes` for experiment files, each one once.

    Raises:
        SpecError: A file is invalid, or a policy cannot serve its experiment.
        InvalidInput: A file is unreadable.
    """
    return list(dict.fromkeys(note for file in files for note in policy_notes(_submission(file))))


def _submission(file: Path) -> Submission:
    text = read_text(file)
    spec = load_search(text, str(file))
    folder = None if read_fields(text).keys().isdisjoint(PROGRAM_FIELDS) else file.absolute().parent
    submission = Submission(text, str(file), spec, folder)
    check_plugins(submission)
    return submission


def _with_generator(submission: Submission) -> ExperimentSpec:
    spec, file = submission.spec, submission.source
    if spec.policy.remote:
        return spec
    if (installed := checked_policy(submission)) is not None:
        return spec.with_generator(installed.generator)
    kind = cast("type[Policy]", load_plugin(POLICIES, spec.policy.name, Policy))
    try:
        policy = kind(**spec.policy.parameters)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{file}: policy {spec.policy.name}: {error}") from error
    return spec.with_generator(policy.generator)


def _roots(submissions: Sequence[Submission]) -> list[str]:
    """Return for each experiment what its trials must have in common with those of another one to share training.

    Files without a program have no code, so they are compared by their other fields.

    Raises:
        InvalidInput: A code folder cannot be packed.
    """
    codes: dict[Path | None, str] = {None: ""}
    roots: list[str] = []
    for one in submissions:
        if one.folder not in codes:
            try:
                codes[one.folder] = code_hash(pack(one.folder).data)
            except InvalidInput as error:
                raise InvalidInput(f"{one.source}: {error}") from error
        roots.append(training_root(one.spec, codes[one.folder], one.interpreter("")))
    return roots


def _plan(requests: Sequence[Request], slots: int, retrained: int) -> PlanPreview:
    tree = PrefixTree(requests)
    return PlanPreview(
        tree.requests,
        tree.total,
        tree.unique,
        tree.total / tree.unique,
        tree.critical_path,
        slots,
        tree.makespan_lower_bound(slots),
        retrained,
    )


def _requests(file: Path, spec: ExperimentSpec, root: str) -> Iterator[Request]:
    length = spec.stop.max_iterations
    if length is None:
        raise InvalidInput(f"{file}: stop.max_iterations is missing: a plan needs to know how long a trial is")
    kind = cast("type[Generator]", load_plugin(GENERATORS, spec.generator.name, Generator))
    generator = kind(spec.search_space, spec.generator.seed, **spec.generator.parameters)
    if generator.size is None and spec.stop.jobs is None and spec.space.size is None and spec.generator.name != "grid":
        raise InvalidInput(f"{file}: stop.jobs is missing: a plan needs to know how many trials there are")
    if spec.stop.jobs == 0:
        raise InvalidInput(f"{file}: stop.jobs is 0: clients request the trials, so they are unknown")
    for number in range(min(spec.stop.jobs or _MOST, _MOST) + 1):
        found = generator.create(str(number), number) if number != spec.stop.jobs else None
        if found is None:
            if number == 0:
                raise InvalidInput(
                    f"{file}: the generator {spec.generator.name} proposes nothing; loosen the constraints"
                )
            return
        if number == _MOST:
            raise InvalidInput(f"{file}: found more than {_MOST} trials, allowed are {_MOST}; set stop.jobs")
        yield Request(cast("dict[str, Any]", found), length, root)
