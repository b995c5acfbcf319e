"""What a command checks of an experiment file beyond its form, before it starts anything."""

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
    """Looks whether a policy that is installed here takes its parameters. One of the user's own is not imported for that.

    Raises:
        SpecError: It does not, or it does not fit the file's program or data; says where in the file.
    """
    made = checked_policy(submission)
    if made is None:
        return
    from hopyard.policy.compatibility import misfit  # Policies need more than a file's form does.

    found = misfit(submission.spec, capabilities_of(made))
    if found is not None:
        raise placed(InvalidInput(": ".join(found)), submission.text, submission.source)


def checked_policy(submission: Submission) -> Policy | None:
    """The policy of a file, where it is one that is installed here.

    Raises:
        SpecError: It does not take its parameters; says where in the file.
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
    """A line on a program that saves nothing, under a policy whose trials go on from what others trained.

    Empty: it saves, or its policy lets each train alone, or neither can be told here.
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
        return ""  # It may be for another Python than this one.
    if script.checkpoints or not script.reports:
        return ""
    return (
        f"note: {spec.policy.name} trains once what trials have in common only where the program saves it, and {file.name} gives "
        "hopyard.report no checkpoint: each trial trains from its beginning (docs/programs.md shows how to save)"
    )


def _made(submission: Submission) -> tuple[Policy | None, str]:
    """The policy of a file, where it is one that is installed here and can be made; and why it cannot."""
    policy = submission.spec.policy
    if policy.remote or policy.name not in plugin_names(POLICIES):
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
