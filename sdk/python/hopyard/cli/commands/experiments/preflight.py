"""Checks an experiment file beyond its syntax, before a cluster is started."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from hopyard._common.plugins import POLICIES, load_plugin, plugin_names, unknown_parameters
from hopyard.cli.init.script_analysis import read_script
from hopyard.client.submission import Submission
from hopyard.errors import InvalidInput
from hopyard.policy import capabilities_of
from hopyard.spec import SpecError, SpecProblem, placed
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


def sharing_note(submission: Submission) -> str:
    """Return a note if the policy continues trials from the training of other trials, but the program saves no checkpoints.

    Without checkpoints, each trial trains from its beginning. Empty: the program saves checkpoints, the policy trains each
    trial alone, or one of both cannot be determined here.
    """
    spec, folder = submission.spec, submission.folder
    made, _ = _made(submission)
    if made is None or not made.shares or spec.command is None or folder is None:
        return ""
    place = folder / (spec.working_directory or "")
    file = next((place / one for one in spec.command if one.endswith(".py") and (place / one).is_file()), None)
    if file is None:
        return ""
    try:
        script = read_script(file)
    except InvalidInput:
        return ""  # It may be valid for another Python version.
    if script.checkpoints or not script.reports:
        return ""
    return (
        f"note: {spec.policy.name} trains once what trials have in common only where the program saves it, and {file.name} gives "
        "hopyard.report no checkpoint: each trial trains from its beginning (docs/programs.md shows how to save)"
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
