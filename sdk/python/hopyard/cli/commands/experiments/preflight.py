"""Checks an experiment file beyond its syntax, before a cluster is started."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from hopyard._common.plugins import POLICIES, load_plugin, plugin_names, unknown_parameters
from hopyard.cli.init.script_analysis import read_script
from hopyard.client.submission import Submission
from hopyard.errors import InvalidInput
from hopyard.policy import ENDLESS, ExperimentView, capabilities_of
from hopyard.spec import ExperimentSpec, SpecError, SpecProblem, placed
from hopyard.spec.yaml_document import read_document

if TYPE_CHECKING:
    from hopyard.policy import Policy


def check_policy(submission: Submission) -> None:
    """Check the parameters of the policy, and that the policy supports the program and the data of the experiment.

    Only a plugin that is installed here is checked. Policies given as `remote:NAME` or `module:Class` are not imported.

    Raises:
        SpecError: A check failed. The error names the line and the field in the file.
    """
    made = checked_policy(submission)
    if made is None:
        return
    from hopyard.policy.compatibility import incompatibility  # slow to import, and only needed with a policy

    found = incompatibility(submission.spec, capabilities_of(made))
    if found is not None:
        raise placed(InvalidInput(": ".join(found)), submission.text, submission.source)


def checked_policy(submission: Submission) -> Policy | None:
    """Create the policy that an experiment file names, with its parameters.

    None: the policy is not a plugin that is installed here, or is given as `remote:NAME` or `module:Class`.

    Raises:
        SpecError: The policy does not accept its parameters. The error names the line and the field in the file.
    """
    made, said = _made(submission)
    policy = submission.spec.policy
    if said:
        named = next((word for word in re.findall(r"\w+", said) if word in policy.parameters), "")
        field = f"policy.{named}" if named else "policy"
        line = read_document(submission.text).line(("policy", named) if named else ("policy",))
        raise SpecError([SpecProblem(submission.source, line, field, said)])
    return made


def policy_notes(submission: Submission) -> list[str]:
    """Return what the user should know about the policy of an experiment before the cluster starts, as notes and warnings.

    These are the remarks of the policy (`Policy.review`), for example that there are too few jobs, and the cost of a program without
    checkpoints. Only a plugin that is installed here is asked, and not about partitioned data, which only the cluster knows.

    Raises:
        SpecError: The policy cannot serve the experiment.
    """
    made = checked_policy(submission)
    if made is None or submission.spec.data is not None:
        return []
    try:
        said = made.review(terms_of(submission.spec))
    except ValueError as error:
        found = InvalidInput(f"policy {submission.spec.policy.name}: {error}")
        raise placed(found, submission.text, submission.source) from error
    notes = [f"note: policy {submission.spec.policy.name}: {said}"] if said else []
    return [*notes, *filter(None, [checkpoint_warning(submission)])]


def terms_of(spec: ExperimentSpec) -> ExperimentView:
    """Return an experiment as its policy will see it at the start, without partitioned data."""
    jobs = ENDLESS if spec.stop.jobs is None else spec.stop.jobs
    return ExperimentView(
        metric=spec.metric.name,
        mode=spec.metric.mode,
        max_position=spec.stop.max_iterations or ENDLESS,
        target=spec.metric.target,
        kill_threshold=spec.metric.kill_threshold,
        jobs_left=min(jobs, spec.space.size or ENDLESS),
        seed=spec.generator.seed,
        weight=spec.weight,
        space=spec.search_space,
        concurrency=spec.resources.concurrency,
        low=spec.metric.min,
        high=spec.metric.max,
    )


def checkpoint_warning(submission: Submission) -> str:
    """Return a warning if the policy suspends jobs and the program saves no checkpoint, with its cost; empty: it costs nothing.

    It is empty also if this cannot be determined here.
    """
    program = unsaved_program(submission)
    made, _ = _made(submission)
    if not program or made is None:
        return ""
    expected = made.pauses(terms_of(submission.spec))
    if expected is not None and not expected:
        return ""
    again = "" if expected is None else f", about {retrained(expected)} iterations in this search"
    advice = (
        "give hopyard.report(..., checkpoint=PATH) (docs/programs.md#checkpoints)"
        if submission.spec.command is not None
        else "a script or a trainer can save its state (docs/programs.md)"
    )
    where = "on nodes without CRIU " if submission.spec.snapshot.provider == "auto" else ""
    return (
        f"warning: {submission.spec.policy.name} suspends jobs and continues them later, and {program} saves no checkpoint: "
        f"{where}each time a job trains from its beginning again{again}; {advice}"
    )


def expected_retraining(submission: Submission) -> int:
    """Return how many iterations are expected to be trained again because the program saves no checkpoint; 0: none, or unknown."""
    made, _ = _made(submission)
    if made is None or submission.spec.data is not None or not unsaved_program(submission):
        return 0
    return retrained(made.pauses(terms_of(submission.spec)) or {})


def retrained(pauses: Mapping[int, int]) -> int:
    """Return how many iterations a program without checkpoints trains again. `pauses` is a result of `Policy.pauses`."""
    return sum(position * jobs for position, jobs in pauses.items())


def unsaved_program(submission: Submission) -> str:
    """Return the name of the program of an experiment if it saves no checkpoint; empty: it saves some, or this is not known."""
    spec, folder = submission.spec, submission.folder
    if spec.snapshot.provider == "criu":
        return ""
    if spec.log is not None:
        return spec.log.command[0]
    if spec.command is None or folder is None:
        return ""
    place = folder / (spec.working_directory or "")
    file = next((place / one for one in spec.command if one.endswith(".py") and (place / one).is_file()), None)
    if file is None:
        return ""
    try:
        script = read_script(file)
    except InvalidInput:
        return ""  # It may be valid for another Python version.
    return file.name if script.reports and not script.checkpoints else ""


def sharing_note(submission: Submission) -> str:
    """Return a note if the policy continues trials from the training of other trials, but the program saves no checkpoints.

    Without checkpoints, each trial trains from its beginning. Empty: the program saves checkpoints, the policy trains each
    trial alone, or one of both cannot be determined here.
    """
    made, _ = _made(submission)
    program = unsaved_program(submission) if submission.spec.command is not None else ""
    if made is None or not made.shares or not program:
        return ""
    return (
        f"note: {submission.spec.policy.name} trains once what trials have in common only where the program saves it, and "
        f"{program} gives hopyard.report no checkpoint: each trial trains from its beginning (docs/programs.md shows how to save)"
    )


def _made(submission: Submission) -> tuple[Policy | None, str]:
    """Create the policy that an experiment file names, with its parameters.

    Returns:
        The policy and an empty text; or None and an error message. The message is empty if the policy is not a plugin that
        is installed here, or is given as `remote:NAME` or `module:Class`, so it is not checked.
    """
    policy = submission.spec.policy
    if policy.remote or policy.name not in plugin_names(POLICIES) or any(":" in name for name in policy.names):
        return None, ""
    cls = load_plugin(POLICIES, policy.name)
    assert isinstance(cls, type)
    said = unknown_parameters(cls, policy.parameters)
    if said:
        return None, f"{policy.name} {said}"
    try:
        return cast("Policy", cls(**policy.parameters)), ""
    except (TypeError, ValueError) as error:
        return None, f"{policy.name}: {error}"
